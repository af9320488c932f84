//! Saving a stream buffer: its changed rows and the rest of its state.

use std::collections::VecDeque;
use std::ops::Range;

use super::{BLOCK, SequenceReplay};
use crate::error::{KernelError, Result, check_len};
use crate::replay::stream::Stream;

/// Everything except the rows that later draws depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsState {
    /// Rows ever pushed to each stream, `n_envs`.
    pub totals: Vec<u64>,
    /// Rows of each stream up to which sequences were queued, `n_envs`.
    pub queued: Vec<u64>,
    /// New sequences: the stream, and the number of the context row.
    pub queue: VecDeque<(usize, u64)>,
    /// The random stream.
    pub stream: Stream,
}

impl SequenceReplay {
    /// A mark of the present, and the ranges of slots that may have changed since an older mark.
    #[must_use]
    pub fn changed(&self, since: u64) -> (u64, Vec<Range<usize>>) {
        let filled = self.filled();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (block, &changed) in self.changed[..filled.div_ceil(BLOCK)].iter().enumerate() {
            if changed <= since {
                continue;
            }
            let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(filled));
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        (self.changes, runs)
    }

    /// Copies the fields of some slots.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if the slots are not filled or `out` has another size.
    pub fn export(&self, slots: Range<usize>, out: &mut [&mut [u8]]) -> Result<()> {
        check_len(
            "slots",
            slots.end.max(slots.start).max(self.filled()),
            "the rows",
            self.filled(),
        )?;
        check_len("out", out.len(), "the fields", self.row_bytes.len())?;
        for (field, out) in out.iter_mut().enumerate() {
            let bytes = self.row_bytes[field];
            let rows = &self.fields[field][slots.start * bytes..slots.end.max(slots.start) * bytes];
            check_len("out", out.len(), "the slots", rows.len())?;
            out.copy_from_slice(rows);
        }
        Ok(())
    }

    /// The state except the rows.
    #[must_use]
    pub const fn state(&self) -> &StreamsState {
        &self.state
    }

    /// Number of slots that the rows of such a state fill.
    ///
    /// # Errors
    /// [`KernelError::Shape`] and [`KernelError::Corrupt`] for a state impossible with these sizes.
    pub fn check_state(&self, state: &StreamsState) -> Result<usize> {
        let n_envs = self.sizes.n_envs;
        let corrupt = |name, reason| Err(KernelError::Corrupt { name, reason });
        check_len("totals", state.totals.len(), "n_envs", n_envs)?;
        check_len("queued", state.queued.len(), "n_envs", n_envs)?;
        let most = i64::MAX.unsigned_abs() / 2 / n_envs as u64;
        if state.totals.iter().any(|&total| total > most) {
            return corrupt("totals", "a stream has had fewer rows");
        }
        if state.queued.iter().zip(&state.totals).any(|(queued, total)| queued > total) {
            return corrupt("queued", "a row is queued after it is stored");
        }
        let length = self.sizes.online_length.unwrap_or(0) as u64;
        let complete = |&(env, first): &(usize, u64)| {
            env < n_envs && first.saturating_add(length) < state.totals[env]
        };
        if !state.queue.iter().all(complete) {
            return corrupt("queue", "a sequence is queued when all of its rows are stored");
        }
        Ok(self.filled_by(&state.totals))
    }

    /// Restores a state and its rows.
    ///
    /// # Errors
    /// As [`SequenceReplay::check_state`], and [`KernelError::Shape`]; nothing is restored then.
    pub fn import(&mut self, state: StreamsState, rows: &[&[u8]]) -> Result<()> {
        let filled = self.check_state(&state)?;
        self.check(rows, filled)?;
        for (field, rows) in self.fields.iter_mut().zip(rows) {
            field[..rows.len()].copy_from_slice(rows);
        }
        self.state = state;
        self.changes += 1;
        self.changed.fill(self.changes);
        Ok(())
    }
}
