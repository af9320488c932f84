//! The buffer with its newest transitions in memory and the others in a file.

mod file;
mod system;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;

use self::file::{ColdFile, Commit};
use super::batch::{Batch, Transitions};
use super::buffer::reserve;
use super::layout::{Layout, Parts};
use super::ring::Ring;
use super::ring::gather::{copy_column, copy_records};
use super::ring::saved::changed;
use super::stream::Stream;
use crate::error::{KernelError, Result, StateError, check_len, check_size};

/// Most transitions written to the file at once.
const TOGETHER: u64 = 256;

/// The last `capacity` transitions, sampled uniformly with replacement: the newest `hot` in a ring,
/// the others in a file.
///
/// Transitions are numbered as they are pushed. A transition is in the file before its place in the
/// ring is reused, so a file error loses none: pushed transitions stay, others are refused.
#[derive(Debug)]
pub struct TieredReplay {
    hot: Ring,
    /// None once the buffer is closed.
    cold: Option<ColdFile>,
    layout: Layout,
    parts: Parts,
    /// Number of transitions pushed.
    count: u64,
    /// Number of the ring's first transition when the buffer was opened.
    base: u64,
    /// Transitions below this number are in the file or obsolete.
    written: u64,
    /// Number of transitions pushed by the last commit.
    committed: u64,
    /// Number of transitions written before the count restarted with a restored state.
    written_before: u64,
    /// The numbers of the stored transitions without a next observation.
    without_next: VecDeque<u64>,
    stream: Stream,
    slots: Vec<usize>,
    /// Records read from the file, kept to reuse their memory.
    records: Vec<u8>,
}

impl TieredReplay {
    /// An empty buffer, or with `keep` the one last flushed to the file at `path`.
    ///
    /// # Errors
    /// [`KernelError::Range`] if a size is 0, `hot` exceeds the capacity, or no file is that long,
    /// [`KernelError::OutOfMemory`]; [`KernelError::Io`] and [`KernelError::File`] if the file
    /// cannot be opened, is not a buffer's, or is damaged.
    pub fn open(
        layout: Layout,
        hot: usize,
        path: &Path,
        keep: bool,
        stream: Stream,
    ) -> Result<Self> {
        check_size("hot_capacity", hot, layout.capacity)?;
        let layout = layout.whole();
        let ring = Ring::new(Layout { capacity: hot, ..layout })?;
        let parts = Parts::new(&layout)?;
        // Room for pushes between two commits, so that they do not overwrite committed transitions.
        let slack = if keep { 2 * hot as u64 } else { 0 };
        let largest = ColdFile::most_slots(parts.payload()).saturating_sub(slack);
        let most = usize::try_from(largest).unwrap_or(usize::MAX);
        check_size("total_capacity", layout.capacity, most)?;
        let n_slots = layout.capacity as u64 + slack;
        let (cold, commit) = ColdFile::open(path, &layout, n_slots, keep, stream.to_words())?;
        let mut buffer = Self {
            hot: ring,
            cold: Some(cold),
            layout,
            parts,
            count: 0,
            base: 0,
            written: 0,
            committed: 0,
            written_before: 0,
            without_next: VecDeque::new(),
            stream,
            slots: Vec::new(),
            records: Vec::new(),
        };
        if let Some(commit) = commit {
            buffer.recover(&commit)?;
        }
        Ok(buffer)
    }

    /// Restores a commit: checks all its transitions and loads the newest.
    fn recover(&mut self, commit: &Commit) -> Result<()> {
        self.stream = Stream::from_words(commit.stream)?;
        (self.count, self.written, self.committed) = (commit.count, commit.count, commit.count);
        self.base = commit.count - commit.count.min(self.hot.layout().capacity as u64);
        for number in commit.count - self.len() as u64..commit.count {
            self.records.clear();
            open(&mut self.cold)?.read(number, &mut self.records)?;
            if !self.parts.has_next_obs(&self.records) {
                self.without_next.push_back(number);
            }
            if number >= self.base {
                self.hot.push_payload(&self.records);
            }
        }
        Ok(())
    }

    /// Sizes and types of the buffer.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of stored transitions.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most the capacity")]
    pub fn len(&self) -> usize {
        self.count.min(self.layout.capacity as u64) as usize
    }

    /// Whether no transition is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether every stored transition has its next observation.
    #[must_use]
    pub fn has_all_next_obs(&self) -> bool {
        self.without_next.is_empty()
    }

    /// Checks that the buffer is open.
    ///
    /// # Errors
    /// [`StateError::Closed`].
    pub fn check_open(&self) -> Result<()> {
        if self.cold.is_some() { Ok(()) } else { Err(StateError::Closed.into()) }
    }

    /// Stores transitions; in a full buffer each replaces the oldest.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::DType`] and [`KernelError::NonFinite`], and
    /// [`StateError::Closed`]: nothing is stored then. [`KernelError::Io`]: the first transitions
    /// are stored as far as there was room, in multiples of the ring's capacity.
    pub fn push(&mut self, rows: &Transitions<'_>) -> Result<()> {
        let n = self.hot.check(rows)?;
        open(&mut self.cold)?;
        let hot = self.hot.layout().capacity;
        for start in (0..n).step_by(hot) {
            let some = rows.part(start..n.min(start + hot), &self.layout);
            self.make_room(some.rewards.len() as u64)?;
            self.hot.write(&some);
            let numbers = self.count..self.count + some.rewards.len() as u64;
            self.count = numbers.end;
            if some.next_obs.is_none() {
                self.without_next.extend(numbers);
            }
            let oldest = self.count - self.len() as u64;
            while self.without_next.front().is_some_and(|&number| number < oldest) {
                self.without_next.pop_front();
            }
        }
        Ok(())
    }

    /// Writes to the file the transitions that `n` new ones would push out of the ring.
    fn make_room(&mut self, n: u64) -> Result<()> {
        let (hot, capacity) = (self.hot.layout().capacity as u64, self.layout.capacity as u64);
        let cold = open(&mut self.cold)?;
        if cold.keeps() && self.count + n > self.committed + (cold.n_slots() - capacity) {
            self.flush()?;
        }
        let leaves = (self.count + n).saturating_sub(hot);
        if leaves <= self.written || hot == capacity {
            return Ok(());
        }
        self.write((leaves.max(self.written + TOGETHER)).min(self.count))
    }

    /// Writes the transitions below a number to the file.
    fn write(&mut self, upto: u64) -> Result<()> {
        let (hot, base) = (self.hot.layout().capacity as u64, self.base);
        self.written = self.written.max(self.count.saturating_sub(hot));
        while self.written < upto {
            let numbers = self.written..upto.min(self.written + TOGETHER);
            #[expect(clippy::cast_possible_truncation, reason = "less than the ring's capacity")]
            let slots = numbers.clone().map(|number| ((number - base) % hot) as usize);
            let records = slots.map(|slot| self.hot.payload(slot));
            open(&mut self.cold)?.write(numbers.start, records)?;
            self.written = numbers.end;
        }
        Ok(())
    }

    /// Makes all transitions and the random stream durable, if the file is to be kept; otherwise
    /// does nothing.
    ///
    /// # Errors
    /// [`KernelError::Io`], [`StateError::Closed`]; the last durable state stays.
    pub fn flush(&mut self) -> Result<()> {
        if !open(&mut self.cold)?.keeps() {
            return Ok(());
        }
        self.write(self.count)?;
        let commit = Commit { count: self.count, stream: self.stream.to_words() };
        open(&mut self.cold)?.commit(&commit)?;
        self.committed = self.count;
        Ok(())
    }

    /// Flushes and closes the file, which is deleted unless it is to be kept. Closing twice does
    /// nothing.
    ///
    /// # Errors
    /// As [`TieredReplay::flush`]; the buffer stays open then.
    pub fn close(&mut self) -> Result<()> {
        if self.cold.is_some() {
            self.flush()?;
        }
        self.cold = None;
        Ok(())
    }

    /// Draws a transition for each row of `out`, the same as [`super::Replay::sample`] of equal
    /// capacity.
    ///
    /// # Errors
    /// As there, [`StateError::Closed`], [`KernelError::Io`], and [`KernelError::File`] if a
    /// transition is damaged.
    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    pub fn sample(&mut self, seed: Option<u64>, out: &mut Batch<'_>) -> Result<()> {
        let n = out.rewards.len();
        open(&mut self.cold)?;
        if self.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        if out.next_obs.is_some() && !self.has_all_next_obs() {
            return Err(StateError::NextObsUnknown.into());
        }
        self.hot.check_out(out, n)?;
        reserve(&mut self.slots, n)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        let len = self.count.min(self.layout.capacity as u64);
        self.slots.extend((0..n).map(|_| stream.below(len) as usize));
        self.gather(out)
    }

    fn gather(&mut self, out: &mut Batch<'_>) -> Result<()> {
        let (hot, base) = (self.hot.layout().capacity as u64, self.base);
        let first_hot = self.count.saturating_sub(hot).max(base);
        self.records.clear();
        for &slot in &self.slots {
            let number = number(slot, self.count, self.layout.capacity as u64);
            if number < first_hot {
                open(&mut self.cold)?.read(number, &mut self.records)?;
            }
        }
        let mut cold = self.records.chunks_exact(self.parts.payload());
        let records = self.slots.iter().map(|&slot| {
            let number = number(slot, self.count, self.layout.capacity as u64);
            if number < first_hot {
                return cold.next().unwrap_or_default();
            }
            #[expect(clippy::cast_possible_truncation, reason = "less than the ring's capacity")]
            self.hot.payload(((number - base) % hot) as usize)
        });
        copy_records(self.parts, records, out, copy_column);
        Ok(())
    }
}

/// Saving and restoring of a buffer whose file is not to be kept.
impl TieredReplay {
    /// The slot of the next transition in a ring of all transitions.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "less than the capacity")]
    pub fn position(&self) -> usize {
        (self.count % self.layout.capacity as u64) as usize
    }

    /// The buffer's own random stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Number of transitions ever written, including those of restored states.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written_before + self.count
    }

    /// The slots that have changed since the count of written transitions was `since`.
    #[must_use]
    pub fn changed(&self, since: u64) -> [Range<usize>; 2] {
        let capacity = self.layout.capacity;
        changed(self.written(), since, 0, self.len(), capacity, self.position())
    }

    /// Copies the transitions in some slots, and whether each has its next observation.
    ///
    /// # Errors
    /// As [`TieredReplay::sample`]; [`KernelError::Shape`] if a slot is empty.
    pub fn export_rows(
        &mut self,
        slots: Range<usize>,
        out: &mut Batch<'_>,
        has_next_obs: &mut [bool],
    ) -> Result<()> {
        let slots = slots.start.min(self.len())..slots.end.min(self.len());
        check_len("rewards", out.rewards.len(), "the slots", slots.len())?;
        check_len("has_next_obs", has_next_obs.len(), "the slots", slots.len())?;
        reserve(&mut self.slots, slots.len())?;
        self.slots.extend(slots.clone());
        self.gather(out)?;
        for (slot, has_next_obs) in slots.zip(has_next_obs) {
            let number = number(slot, self.count, self.layout.capacity as u64);
            *has_next_obs = self.without_next.binary_search(&number).is_err();
        }
        Ok(())
    }

    /// Restores exactly the result of [`TieredReplay::export_rows`] for all slots, with the
    /// position and the stream of that time.
    ///
    /// # Errors
    /// Errors of the state, [`StateError::Closed`]: the buffer is unchanged then.
    /// [`KernelError::Io`]: the buffer holds some of the transitions.
    pub fn restore(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
        stream: Stream,
    ) -> Result<()> {
        let n = self.hot.check(rows)?;
        check_len("has_next_obs", has_next_obs.len(), "rewards", n)?;
        let capacity = self.layout.capacity;
        let corrupt = |name, reason| Err(KernelError::Corrupt { name, reason });
        if n > capacity {
            return corrupt("rewards", "there are more transitions than the capacity");
        }
        if position >= capacity || (n < capacity && position != n) {
            return corrupt(
                "position",
                "the next slot follows the last one, or lies in a full ring",
            );
        }
        if open(&mut self.cold)?.keeps() {
            return corrupt("state", "a buffer with keep goes on from its own file");
        }
        self.hot.empty();
        let first = if n == capacity { position } else { 0 };
        self.written_before += self.count;
        self.count = first as u64;
        (self.base, self.written, self.committed) = (self.count, self.count, self.count);
        self.without_next.clear();
        for half in [first..n, 0..first] {
            let mut start = half.start;
            while start < half.end {
                let known = has_next_obs[start];
                let alike = has_next_obs[start..half.end].iter().take_while(|&&has| has == known);
                let end = start + alike.count();
                let mut some = rows.part(start..end, &self.layout);
                some.next_obs = some.next_obs.filter(|_| known);
                self.push(&some)?;
                start = end;
            }
        }
        self.stream = stream;
        Ok(())
    }
}

/// The file, unless the buffer is closed.
fn open(cold: &mut Option<ColdFile>) -> Result<&mut ColdFile> {
    cold.as_mut().ok_or_else(|| StateError::Closed.into())
}

/// The number of the transition in a slot of a ring of all transitions, after `count` pushes.
fn number(slot: usize, count: u64, capacity: u64) -> u64 {
    let (slot, position) = (slot as u64, count % capacity);
    if slot < position { count - position + slot } else { count - position - capacity + slot }
}
