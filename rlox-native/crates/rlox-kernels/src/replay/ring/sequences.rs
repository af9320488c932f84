//! Sequences of consecutive steps of an env.

use super::Ring;
use crate::error::{KernelError, Result, StateError, check_len};
use crate::replay::batch::{Batch, Sequences};
use crate::replay::buffer::reserve;
use crate::replay::layout::{TERMINATED, TRUNCATED};
use crate::replay::stream::Stream;

impl Ring {
    /// Draws sequences for the buffers' method `sample_sequences`.
    #[expect(clippy::cast_possible_truncation, reason = "an age is less than a usize")]
    pub(in crate::replay) fn sample_sequences(
        &self,
        stream: &mut Stream,
        slots: &mut Vec<usize>,
        seq_len: usize,
        cross_episodes: bool,
        out: &mut Sequences<'_>,
    ) -> Result<()> {
        let n = out.mask.len();
        check_len("rewards", out.batch.rewards.len(), "mask", n)?;
        check_len("is_first", out.is_first.len(), "mask", n)?;
        if self.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        check_pieces(n, seq_len)?;
        self.check_out(&out.batch, n)?;
        // If sequences must be whole, only steps with enough newer ones can be first.
        let newer = if cross_episodes { seq_len - 1 } else { 0 };
        let newer = newer.saturating_mul(self.layout().n_step.n_envs);
        let n_starts = self.len().saturating_sub(newer) as u64;
        if n_starts == 0 {
            let (needed, stored) = (newer.saturating_add(1), self.len());
            return Err(StateError::TooFew { needed, stored }.into());
        }
        reserve(slots, n)?;
        slots.resize(n, 0);
        for first in slots.iter_mut().step_by(seq_len) {
            *first = stream.below(n_starts) as usize;
        }
        self.follow(slots, seq_len, cross_episodes, out);
        self.gather_masked(slots, out.mask, &mut out.batch);
        Ok(())
    }

    /// Writes the transitions in `slots`, and zeros in rows without one.
    pub(in crate::replay) fn gather_masked(
        &self,
        slots: &[usize],
        mask: &[bool],
        out: &mut Batch<'_>,
    ) {
        self.gather(slots, out);
        for (row, _) in mask.iter().enumerate().filter(|(_, there)| !**there) {
            self.clear_row(row, out);
        }
    }

    /// Turns the ages of the first steps (0 for the oldest), each at the start of `seq_len` places,
    /// into slots, and marks which steps exist and which are the first of an episode.
    fn follow(
        &self,
        places: &mut [usize],
        seq_len: usize,
        cross_episodes: bool,
        out: &mut Sequences<'_>,
    ) {
        let pieces = places.chunks_exact_mut(seq_len);
        let masks = out.mask.chunks_exact_mut(seq_len);
        for ((slots, mask), is_first) in
            pieces.zip(masks).zip(out.is_first.chunks_exact_mut(seq_len))
        {
            let mut slot = self.after(self.oldest(), slots[0]);
            (mask[0], is_first[0]) = (true, self.begins_episode(slot));
            slots[0] = slot;
            for k in 1..seq_len {
                let n_envs = self.layout().n_step.n_envs;
                let ends = self.ends_episode(slot);
                let goes_on = cross_episodes || !ends;
                let there = mask[k - 1] && self.newer(slot) >= n_envs && goes_on;
                (mask[k], is_first[k]) = (there, there && ends);
                if there {
                    slot = self.after(slot, n_envs);
                }
                slots[k] = slot;
            }
        }
    }

    pub(in crate::replay) fn oldest(&self) -> usize {
        if self.len() < self.layout().capacity { 0 } else { self.position() }
    }

    pub(in crate::replay) fn ends_episode(&self, slot: usize) -> bool {
        self.reward_and_flags(slot).1 & (TERMINATED | TRUNCATED) != 0
    }

    /// Whether the previous step ended an episode or is not stored.
    fn begins_episode(&self, slot: usize) -> bool {
        let (capacity, n_envs) = (self.layout().capacity, self.layout().n_step.n_envs);
        if self.newer(slot) + n_envs >= self.len() {
            return true;
        }
        self.ends_episode(self.after(slot, capacity - n_envs))
    }
}

/// Checks that `n` rows form whole pieces of `seq_len` steps.
pub(in crate::replay) fn check_pieces(n: usize, seq_len: usize) -> Result<()> {
    if seq_len > 0 && n.is_multiple_of(seq_len) {
        return Ok(());
    }
    let (name, like) = ("mask", "seq_len");
    let expected = vec![n / seq_len.max(1), seq_len];
    Err(KernelError::Shape { name, expected, like, got: vec![n] })
}
