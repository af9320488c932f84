//! Position of every stored step in its episode.

use crate::error::{KernelError, Result};
use crate::replay::pages::Pages;
use crate::replay::ring::Ring;

/// Marks steps of an episode whose end is unknown.
const GOES_ON: u32 = u32::MAX;

/// Number of steps of its episode before and after each stored step.
#[derive(Debug)]
pub(super) struct Episodes {
    n_envs: usize,
    capacity: u32,
    /// By slot, steps of the episode before this one, including overwritten ones.
    before: Pages<u32>,
    /// By slot, steps of the episode after this one, or [`GOES_ON`].
    after: Pages<u32>,
    /// By env, steps of the running episode, up to the capacity.
    running: Vec<u32>,
    /// The env whose step comes next.
    env: usize,
}

/// The stored steps of an episode around a given one.
#[derive(Debug, PartialEq)]
pub(super) struct Around {
    /// Number of steps before it.
    pub(super) before: usize,
    /// Number of steps after it.
    pub(super) after: usize,
    /// Slots from one step to the next.
    pub(super) stride: usize,
}

impl Episodes {
    /// Bytes of the positions of `capacity` steps; `None` if no address space could hold them.
    pub(super) fn memory_bytes(capacity: usize) -> Option<usize> {
        capacity.checked_mul(2 * size_of::<u32>())
    }

    pub(super) fn new(capacity: usize, n_envs: usize) -> Result<Self> {
        let Ok(limit) = u32::try_from(capacity) else {
            #[expect(clippy::cast_precision_loss, reason = "for a message")]
            let (value, high) = (capacity as f64, f64::from(u32::MAX));
            return Err(KernelError::Range { name: "capacity", low: 1.0, high, value });
        };
        let pages = || Pages::new(capacity, "capacity", capacity);
        let (before, after) = (pages()?, pages()?);
        Ok(Self { n_envs, capacity: limit, before, after, running: vec![0; n_envs], env: 0 })
    }

    /// Forgets everything; the caller then pushes `stored` steps, the oldest first. The newest
    /// belongs to the last env.
    pub(super) fn begin(&mut self, stored: usize) {
        self.running.fill(0);
        self.env = (self.n_envs - stored % self.n_envs) % self.n_envs;
    }

    /// Adds the step in `slot`, the newest of `stored`.
    pub(super) fn push(&mut self, slot: usize, ends: bool, stored: usize) {
        let before = self.running[self.env];
        self.before[slot] = before;
        self.after[slot] = GOES_ON;
        self.running[self.env] = if ends { 0 } else { (before + 1).min(self.capacity) };
        self.env = if self.env + 1 == self.n_envs { 0 } else { self.env + 1 };
        if !ends {
            return;
        }
        let stored_of_env = (stored - 1) / self.n_envs + 1;
        let mut slot = slot;
        for after in (0..=before).take(stored_of_env) {
            self.after[slot] = after;
            let around = if slot < self.n_envs { self.capacity as usize } else { 0 };
            slot = slot + around - self.n_envs;
        }
    }

    /// The stored steps around the one in `slot` in its episode.
    pub(super) fn around(&self, slot: usize, ring: &Ring) -> Around {
        let newer = ring.newer(slot);
        let older = ring.len() - 1 - newer;
        let before = (older / self.n_envs).min(self.before[slot] as usize);
        let after = match self.after[slot] {
            GOES_ON => newer / self.n_envs,
            after => after as usize,
        };
        Around { before, after, stride: self.n_envs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_32_bits() {
        let error = Episodes::new(1 << 32, 1).err();
        assert!(matches!(error, Some(KernelError::Range { name: "capacity", .. })), "{error:?}");
    }
}
