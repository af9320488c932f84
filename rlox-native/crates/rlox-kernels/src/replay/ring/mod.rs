//! The memory of a buffer: a ring of records.

pub(super) mod frames;
pub(super) mod gather;
mod n_step;
pub(super) mod saved;
pub(super) mod sequences;

use crate::error::{KernelError, Result, StateError, check_len};
use crate::replay::batch::{Batch, Transitions};
use crate::replay::layout::{Field, Layout, NO_NEXT_OBS, Parts, TAIL, TERMINATED, TRUNCATED};
use crate::replay::pages::Pages;
use crate::replay::values::{Values, ValuesMut};
use crate::threads::Meter;
use frames::Frames;

/// The last `capacity` transitions that were pushed, in a ring of slots.
///
/// A transition's data lies together, so that drawing it costs the fewest cache misses. The address
/// space is reserved at construction, which reports a lack of it; the system provides the memory as
/// slots are first written.
#[derive(Debug)]
pub struct Ring {
    layout: Layout,
    parts: Parts,
    /// The records of all slots.
    bytes: Pages<u8>,
    /// The frames whose numbers are in the records, if frames are shared.
    frames: Option<Frames>,
    len: usize,
    /// The slot of the next transition.
    position: usize,
    /// Number of stored transitions without a next observation.
    n_without_next: usize,
    /// Number of transitions ever written.
    written: u64,
    /// Cost of drawing a transition.
    cost: Meter,
}

impl Ring {
    pub(super) fn new(layout: Layout) -> Result<Self> {
        layout.memory_bytes()?;
        let parts = Parts::new(&layout)?;
        let bytes = Pages::new(parts.stride * layout.capacity, "capacity", layout.capacity)?;
        let frames = Frames::new(&layout);
        Ok(Self {
            layout,
            parts,
            bytes,
            frames,
            len: 0,
            position: 0,
            n_without_next: 0,
            written: 0,
            cost: Meter::new(),
        })
    }

    /// Sizes and types of the buffer.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of stored transitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no transition is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot of the next transition.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether every stored transition has its next observation.
    #[must_use]
    pub fn has_all_next_obs(&self) -> bool {
        self.n_without_next == 0
    }

    /// Checks a push of one or several steps of every env, makes room for its frames, and returns
    /// the number of transitions.
    pub(super) fn check_push(&mut self, rows: &Transitions<'_>) -> Result<usize> {
        let (n, n_envs) = (self.check(rows)?, self.layout.n_step.n_envs);
        if !n.is_multiple_of(n_envs) {
            return Err(KernelError::Envs { n_envs, got: n });
        }
        self.reserve_frames(n)?;
        Ok(n)
    }

    /// Checks lengths, types and that all numbers are finite; returns the number of transitions.
    pub(super) fn check(&self, rows: &Transitions<'_>) -> Result<usize> {
        let n = rows.rewards.len();
        check_len("terminated", rows.terminated.len(), "rewards", n)?;
        check_len("truncated", rows.truncated.len(), "rewards", n)?;
        if let Some(index) = rows.rewards.iter().position(|reward| !reward.is_finite()) {
            return Err(KernelError::NonFinite { name: "rewards", index });
        }
        let check = |name, field: Field, values: Values<'_>| {
            field.check(name, values, "rewards", n)?;
            let finite = |index| Err(KernelError::NonFinite { name, index });
            values.first_non_finite().map_or(Ok(()), finite)
        };
        check("obs", self.layout.obs, rows.obs)?;
        check("actions", self.layout.action, rows.actions)?;
        rows.next_obs.map_or(Ok(()), |values| check("next_obs", self.layout.obs, values))?;
        Ok(n)
    }

    /// Stores transitions that have passed [`Ring::check_push`], from [`Ring::position`] on.
    pub(super) fn write(&mut self, rows: &Transitions<'_>) {
        let parts = self.parts;
        let obs = rows.obs.bytes().chunks_exact(parts.obs_row);
        let actions = rows.actions.bytes().chunks_exact(parts.action);
        let mut next_obs = rows.next_obs.map(|values| values.bytes().chunks_exact(parts.obs_row));
        let ends = rows.terminated.iter().zip(rows.truncated);
        for (((obs, action), reward), (&terminated, &truncated)) in
            obs.zip(actions).zip(rows.rewards).zip(ends)
        {
            let next_obs = next_obs.as_mut().and_then(Iterator::next);
            let flags = (if terminated { TERMINATED } else { 0 })
                | (if truncated { TRUNCATED } else { 0 })
                | (if next_obs.is_none() { NO_NEXT_OBS } else { 0 });
            let shares = self.frames.is_some();
            self.take_frames(obs, next_obs);
            let slot = self.claim_slot();
            self.write_numbers(slot);
            let record = self.record_mut(slot);
            let (to_obs, record) = record.split_at_mut(parts.obs);
            let (to_next_obs, record) = record.split_at_mut(parts.obs);
            let (to_action, record) = record.split_at_mut(parts.action);
            if !shares {
                to_obs.copy_from_slice(obs);
                match next_obs {
                    Some(next_obs) => to_next_obs.copy_from_slice(next_obs),
                    None => to_next_obs.fill(0),
                }
            }
            to_action.copy_from_slice(action);
            let [a, b, c, d] = reward.to_ne_bytes();
            record[..TAIL].copy_from_slice(&[a, b, c, d, flags]);
            self.n_without_next += usize::from(next_obs.is_none());
        }
    }

    /// Makes room in the slot at `position` and moves on.
    fn claim_slot(&mut self) -> usize {
        let slot = self.position;
        self.written += 1;
        if self.len < self.layout.capacity {
            self.len += 1;
        } else {
            self.n_without_next -= usize::from(!self.has_next_obs(slot));
        }
        self.position = if slot + 1 == self.layout.capacity { 0 } else { slot + 1 };
        slot
    }

    fn record(&self, slot: usize) -> &[u8] {
        &self.bytes[slot * self.parts.stride..][..self.parts.stride]
    }

    fn record_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * self.parts.stride..][..self.parts.stride]
    }

    pub(super) fn has_next_obs(&self, slot: usize) -> bool {
        self.parts.has_next_obs(self.record(slot))
    }

    /// The next observation of the transition in `slot`, or the numbers of its frames.
    pub(super) fn next_obs(&self, slot: usize) -> &[u8] {
        &self.record(slot)[self.parts.obs..2 * self.parts.obs]
    }

    pub(super) fn reward_and_flags(&self, slot: usize) -> (f32, u8) {
        let tail = &self.record(slot)[2 * self.parts.obs + self.parts.action..];
        tail.first_chunk().map_or((0.0, 0), |&[a, b, c, d, flags]: &[u8; TAIL]| {
            (f32::from_ne_bytes([a, b, c, d]), flags)
        })
    }

    /// Writes the next observation of the transition in `slot`.
    fn copy_next_obs(&self, slot: usize, to: &mut [u8]) {
        match &self.frames {
            None => to.copy_from_slice(self.next_obs(slot)),
            Some(frames) => frames.copy(to, self.next_obs(slot)),
        }
    }

    /// The record in `slot`, without its padding.
    pub(super) fn payload(&self, slot: usize) -> &[u8] {
        &self.record(slot)[..self.parts.payload()]
    }

    /// Stores a record returned by [`Ring::payload`]; its flags say whether it has a next
    /// observation.
    pub(super) fn push_payload(&mut self, payload: &[u8]) {
        let slot = self.claim_slot();
        self.record_mut(slot)[..payload.len()].copy_from_slice(payload);
        self.n_without_next += usize::from(!self.has_next_obs(slot));
    }

    /// Truncates the newest step of every env unless it ended its episode.
    pub(super) fn truncate_newest(&mut self) {
        let flags = self.parts.payload() - 1;
        for age in 1..=self.len.min(self.layout.n_step.n_envs) {
            let slot = self.after(self.position, self.layout.capacity - age);
            if !self.ends_episode(slot) {
                self.record_mut(slot)[flags] |= TRUNCATED;
            }
        }
    }

    /// Forgets all transitions.
    pub(super) fn empty(&mut self) {
        (self.len, self.position, self.n_without_next) = (0, 0, 0);
        self.clear_frames();
    }

    /// Number of transitions stored after the one in `slot`.
    pub(super) fn newer(&self, slot: usize) -> usize {
        if slot < self.position {
            self.position - 1 - slot
        } else {
            self.position + self.layout.capacity - 1 - slot
        }
    }

    /// The slot of the n-th transition after the one in `slot`; n is at most the capacity.
    pub(super) fn after(&self, slot: usize, n: usize) -> usize {
        let to_the_end = self.layout.capacity - slot;
        if n < to_the_end { slot + n } else { n - to_the_end }
    }

    /// Checks that `out` has `n` rows of every field, and next observations only if none is
    /// missing.
    pub(super) fn check_out(&self, out: &Batch<'_>, n: usize) -> Result<()> {
        self.layout.obs.check("obs", out.obs.as_values(), "rewards", n)?;
        self.layout.action.check("actions", out.actions.as_values(), "rewards", n)?;
        check_len("terminated", out.terminated.len(), "rewards", n)?;
        check_len("truncated", out.truncated.len(), "rewards", n)?;
        if let Some(discounts) = &out.discounts {
            check_len("discounts", discounts.len(), "rewards", n)?;
        }
        let Some(next_obs) = &out.next_obs else { return Ok(()) };
        if !self.has_all_next_obs() {
            return Err(StateError::NextObsUnknown.into());
        }
        self.layout.obs.check("next_obs", next_obs.as_values(), "rewards", n)
    }

    /// Sets the numbers of one row of `out` to zero.
    pub(super) fn clear_row(&self, row: usize, out: &mut Batch<'_>) {
        let clear = |values: &mut ValuesMut<'_>, size: usize| {
            values.bytes()[row * size..][..size].fill(0);
        };
        clear(&mut out.obs, self.parts.obs_row);
        clear(&mut out.actions, self.parts.action);
        if let Some(next_obs) = &mut out.next_obs {
            clear(next_obs, self.parts.obs_row);
        }
        (out.rewards[row], out.terminated[row], out.truncated[row]) = (0.0, false, false);
    }

    /// Changes the bytes of every observation and next observation.
    pub(super) fn for_each_obs(&mut self, change: impl Fn(&mut [u8])) {
        let size = self.parts.obs;
        for slot in 0..self.len {
            self.record_mut(slot)[..2 * size].chunks_exact_mut(size).for_each(&change);
        }
    }

    /// Restores the results of [`Ring::export`], which have passed [`Ring::check_import`].
    pub(super) fn import(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
    ) {
        self.empty();
        self.write(rows);
        let flags = self.parts.payload() - 1;
        for (slot, _) in has_next_obs.iter().enumerate().filter(|(_, known)| !**known) {
            self.record_mut(slot)[flags] |= NO_NEXT_OBS;
            self.n_without_next += 1;
        }
        self.position = position;
    }
}
