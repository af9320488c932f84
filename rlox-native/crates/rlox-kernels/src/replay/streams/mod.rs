//! The stream buffer: sequences of rows, one stream per env.
//!
//! Row number k of stream i of N lies in slot (k mod ring) N + i. A row consists of the bytes of
//! its fields, so fields may have any type.

mod saved;

use std::collections::VecDeque;
use std::ops::Range;

pub use saved::StreamsState;

use super::pages::Pages;
use super::stream::Stream;
use crate::error::{KernelError, Result, check_len};
use crate::memory::filled;

/// Slots per unit of change tracking.
const BLOCK: usize = 64;

/// Sizes of a stream buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Largest number of rows, of all streams together.
    pub capacity: usize,
    /// Number of streams N, at least 1.
    pub n_envs: usize,
    /// Rows per new sequence, each drawn once before uniform ones; `None` draws only uniformly.
    pub online_length: Option<usize>,
}

/// The last rows of each stream, drawn as sequences of consecutive rows.
#[derive(Debug)]
pub struct SequenceReplay {
    sizes: Streams,
    ring: usize,
    row_bytes: Vec<usize>,
    fields: Vec<Pages<u8>>,
    state: StreamsState,
    changes: u64,
    changed: Vec<u64>,
}

impl SequenceReplay {
    /// An empty buffer with the given number of bytes per row for each field.
    ///
    /// # Errors
    /// [`KernelError::Range`] if fewer than two rows of each stream fit,
    /// [`KernelError::OutOfMemory`].
    pub fn new(sizes: Streams, row_bytes: Vec<usize>, stream: Stream) -> Result<Self> {
        let Streams { capacity, n_envs, .. } = sizes;
        let ring = capacity.checked_div(n_envs).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "for a message")]
        if ring < 2 {
            let (low, value) = (2.0 * n_envs.max(1) as f64, capacity as f64);
            return Err(KernelError::Range { name: "capacity", low, high: f64::INFINITY, value });
        }
        let slots = ring * n_envs;
        let pages = |&bytes: &usize| {
            let too_much = KernelError::OutOfMemory { name: "capacity", requested: capacity };
            // a map has at least one byte
            Pages::new(slots.checked_mul(bytes).ok_or(too_much)?.max(1), "capacity", capacity)
        };
        let fields = row_bytes.iter().map(pages).collect::<Result<_>>()?;
        let counts = || filled("n_envs", n_envs, 0_u64, n_envs);
        let queue = VecDeque::new();
        let state = StreamsState { totals: counts()?, queued: counts()?, queue, stream };
        let changed = filled("capacity", capacity, 0, slots.div_ceil(BLOCK))?;
        Ok(Self { sizes, ring, row_bytes, fields, state, changes: 0, changed })
    }

    /// Largest number of rows.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.ring * self.sizes.n_envs
    }

    /// Number of stored rows.
    #[must_use]
    pub fn len(&self) -> usize {
        (0..self.sizes.n_envs).map(|env| self.stored(env)).sum()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of leading slots that contain all rows.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.filled_by(&self.state.totals)
    }

    fn filled_by(&self, totals: &[u64]) -> usize {
        totals.iter().map(|&total| self.within(total)).max().unwrap_or(0) * self.sizes.n_envs
    }

    /// A number of rows, capped at a stream's share.
    fn within(&self, rows: u64) -> usize {
        usize::try_from(rows).map_or(self.ring, |rows| rows.min(self.ring))
    }

    fn stored(&self, env: usize) -> usize {
        self.within(self.state.totals[env])
    }

    fn oldest(&self, env: usize) -> u64 {
        self.state.totals[env].saturating_sub(self.ring as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
    fn slot(&self, env: usize, number: u64) -> usize {
        (number % self.ring as u64) as usize * self.sizes.n_envs + env
    }

    fn row(&self, field: usize, slot: usize) -> Range<usize> {
        let bytes = self.row_bytes[field];
        slot * bytes..(slot + 1) * bytes
    }

    fn note(&mut self, slot: usize) {
        self.changed[slot / BLOCK] = self.changes;
    }

    /// Appends one row to the streams of some envs.
    ///
    /// # Errors
    /// [`KernelError::Index`] for an unknown stream, [`KernelError::Twice`] for a repeated one,
    /// [`KernelError::Shape`] for a field without `envs.len()` rows; nothing is stored then.
    pub fn push(&mut self, rows: &[&[u8]], envs: &[usize]) -> Result<()> {
        let len = self.sizes.n_envs;
        for (place, &env) in envs.iter().enumerate() {
            if env >= len {
                let value = i128::try_from(env).unwrap_or(i128::MAX);
                return Err(KernelError::Index { name: "envs", place, value, len });
            }
            if envs[..place].contains(&env) {
                return Err(KernelError::Twice { name: "envs", value: env });
            }
        }
        self.check(rows, envs.len())?;
        self.changes += 1;
        for (place, &env) in envs.iter().enumerate() {
            let slot = self.slot(env, self.state.totals[env]);
            for (field, source) in rows.iter().enumerate() {
                let (to, from) = (self.row(field, slot), self.row(field, place));
                self.fields[field][to].copy_from_slice(&source[from]);
            }
            self.note(slot);
            self.state.totals[env] += 1;
            self.enqueue(env);
        }
        self.forget_overwritten();
        Ok(())
    }

    fn check(&self, rows: &[&[u8]], count: usize) -> Result<()> {
        check_len("rows", rows.len(), "the fields", self.row_bytes.len())?;
        rows.iter().zip(&self.row_bytes).try_for_each(|(row, bytes)| {
            check_len("rows", row.len(), "the envs", count.saturating_mul(*bytes))
        })
    }

    /// Queues the newest sequence of a stream once it is complete.
    fn enqueue(&mut self, env: usize) {
        let Some(length) = self.sizes.online_length else { return };
        let queued = self.state.queued[env];
        if self.state.totals[env] - 1 - queued >= length as u64 {
            self.state.queue.push_back((env, queued));
            self.state.queued[env] += length as u64;
        }
    }

    /// Drops the queue's first sequences that have been overwritten.
    fn forget_overwritten(&mut self) {
        while let Some(&(env, first)) = self.state.queue.front()
            && first < self.oldest(env)
        {
            self.state.queue.pop_front();
        }
    }

    /// Cumulative number, over streams, of sequences of a context row and `length` rows.
    ///
    /// # Errors
    /// [`KernelError::ShortStreams`] if there are none.
    pub fn ends(&self, length: usize) -> Result<Vec<u64>> {
        let starts = |env| self.stored(env).saturating_sub(length) as u64;
        let sums = (0..self.sizes.n_envs).scan(0, |end, env| {
            *end += starts(env);
            Some(*end)
        });
        let ends: Vec<u64> = sums.collect();
        if ends.last().is_some_and(|&total| total > 0) {
            return Ok(ends);
        }
        let stored = (0..self.sizes.n_envs).map(|env| self.stored(env)).max().unwrap_or(0);
        Err(KernelError::ShortStreams { length, stored })
    }

    /// Draws `indices.len() / (length + 1)` sequences of a context row and `length` rows, time-major.
    ///
    /// New sequences come first. With a seed, the queue and the buffer's own stream are left alone.
    ///
    /// # Errors
    /// As [`SequenceReplay::ends`], and [`KernelError::Shape`] if `out` and `indices` differ in
    /// size.
    pub fn sample(
        &mut self,
        seed: Option<u64>,
        length: usize,
        out: &mut [&mut [u8]],
        indices: &mut [i64],
    ) -> Result<()> {
        let ends = self.ends(length)?;
        let total = ends.last().copied().unwrap_or(0);
        check_len("out", out.len(), "the fields", self.row_bytes.len())?;
        for (out, bytes) in out.iter().zip(&self.row_bytes) {
            check_len("out", out.len(), "indices", indices.len().saturating_mul(*bytes))?;
        }
        let count = indices.len() / (length + 1);
        let mut own = seed.map(Stream::from_seed);
        let online = own.is_none() && self.sizes.online_length == Some(length);
        for sequence in 0..count {
            let newest = if online { self.dequeue() } else { None };
            let (env, first) = newest.unwrap_or_else(|| {
                let drawn = own.as_mut().unwrap_or(&mut self.state.stream).below(total);
                let env = ends.partition_point(|&end| end <= drawn);
                let before = if env == 0 { 0 } else { ends[env - 1] };
                (env, self.oldest(env) + drawn - before)
            });
            for step in 0..=length {
                let (number, place) = (first + step as u64, step * count + sequence);
                let slot = self.slot(env, number);
                for (field, out) in out.iter_mut().enumerate() {
                    out[self.row(field, place)]
                        .copy_from_slice(&self.fields[field][self.row(field, slot)]);
                }
                // `check_totals` and the address space keep it below the largest
                indices[place] = (number * self.sizes.n_envs as u64 + env as u64).cast_signed();
            }
        }
        Ok(())
    }

    fn dequeue(&mut self) -> Option<(usize, u64)> {
        loop {
            let (env, first) = self.state.queue.pop_front()?;
            if first >= self.oldest(env) {
                return Some((env, first));
            }
        }
    }

    /// Writes some fields of rows; rows overwritten since they were drawn are left alone.
    ///
    /// # Errors
    /// [`KernelError::Shape`] for a field without `indices.len()` rows; nothing is written then.
    ///
    /// # Panics
    /// For an unknown field.
    pub fn update(&mut self, indices: &[i64], fields: &[(usize, &[u8])]) -> Result<()> {
        for &(field, rows) in fields {
            let expected = indices.len().saturating_mul(self.row_bytes[field]);
            check_len("fields", rows.len(), "indices", expected)?;
        }
        self.changes += 1;
        let n_envs = self.sizes.n_envs;
        for (place, &index) in indices.iter().enumerate() {
            let Ok(index) = u64::try_from(index) else { continue };
            #[expect(clippy::cast_possible_truncation, reason = "less than n_envs")]
            let (env, number) = ((index % n_envs as u64) as usize, index / n_envs as u64);
            if number < self.oldest(env) || number >= self.state.totals[env] {
                continue;
            }
            let slot = self.slot(env, number);
            for &(field, rows) in fields {
                let (to, from) = (self.row(field, slot), self.row(field, place));
                self.fields[field][to].copy_from_slice(&rows[from]);
            }
            self.note(slot);
        }
        Ok(())
    }
}
