//! Saving and restoring a ring, as a whole or in parts.

use std::ops::Range;

use super::Ring;
use crate::error::{KernelError, Result, check_len};
use crate::replay::batch::{Batch, Transitions};

impl Ring {
    /// Copies every stored transition, in the order of the slots, and whether each has its next
    /// observation.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if `out` has another length than the buffer, [`KernelError::DType`]
    /// if it has another type.
    pub fn export(&self, out: &mut Batch<'_>, has_next_obs: &mut [bool]) -> Result<()> {
        self.export_rows(0..self.len(), out, has_next_obs)
    }

    /// Copies the transitions in some slots; [`Ring::export`] copies all.
    ///
    /// # Errors
    /// As there, and [`KernelError::Shape`] if a slot is empty.
    pub fn export_rows(
        &self,
        slots: Range<usize>,
        out: &mut Batch<'_>,
        has_next_obs: &mut [bool],
    ) -> Result<()> {
        let slots = slots.start.min(self.len())..slots.end.min(self.len());
        let n = slots.len();
        check_len("rewards", out.rewards.len(), "the slots", n)?;
        check_len("has_next_obs", has_next_obs.len(), "the slots", n)?;
        let next_obs = out.next_obs.take();
        self.check_out(out, n)?;
        if let Some(next_obs) = &next_obs {
            self.layout().obs.check("next_obs", next_obs.as_values(), "the slots", n)?;
        }
        out.next_obs = next_obs;
        self.copy(slots.clone(), out);
        for (slot, has_next_obs) in slots.zip(has_next_obs) {
            *has_next_obs = self.has_next_obs(slot);
        }
        Ok(())
    }

    /// Number of transitions ever written, including those of restored states.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The slots that may have changed since the count of written transitions was `since`.
    #[must_use]
    pub fn changed(&self, since: u64) -> [Range<usize>; 2] {
        // The newest step of every env may have been truncated since.
        let newest = self.layout().n_step.n_envs;
        changed(self.written, since, newest, self.len(), self.layout().capacity, self.position())
    }

    /// Checks the input of [`Ring::import`] and makes room for its frames.
    pub(in crate::replay) fn check_import(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
    ) -> Result<()> {
        let n = self.check(rows)?;
        check_len("has_next_obs", has_next_obs.len(), "rewards", n)?;
        let corrupt = |name, reason| Err(KernelError::Corrupt { name, reason });
        if n > self.layout().capacity {
            return corrupt("rewards", "there are more transitions than the capacity");
        }
        let full = n == self.layout().capacity;
        if !full && !n.is_multiple_of(self.layout().n_step.n_envs) {
            return corrupt("rewards", "there are steps of some envs without those of the others");
        }
        if position >= self.layout().capacity || !(full || position == n) {
            return corrupt(
                "position",
                "the next slot follows the last one, or lies in a full ring",
            );
        }
        self.reserve_frames(n)
    }
}

/// The slots of the transitions after the first `since` of `written` ones, and of at least the `newest`
/// ones, in a ring of which `len` slots are filled and whose next one is at `position`.
pub(in crate::replay) fn changed(
    written: u64,
    since: u64,
    newest: usize,
    len: usize,
    capacity: usize,
    position: usize,
) -> [Range<usize>; 2] {
    let new = usize::try_from(written.saturating_sub(since)).unwrap_or(len);
    let n = new.max(newest).min(len);
    if n <= position {
        return [position - n..position, 0..0];
    }
    [0..position, capacity - (n - position)..capacity]
}
