//! The buffer that draws all transitions alike.

use super::batch::{Batch, Sequences, Transitions};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use crate::error::{KernelError, Result, StateError};

/// A ring of the last transitions, drawn from uniformly with replacement.
#[derive(Debug)]
pub struct UniformReplay {
    ring: Ring,
    stream: Stream,
    /// The slots of the last batch, kept for their memory.
    slots: Vec<usize>,
}

impl UniformReplay {
    /// An empty buffer that draws from `stream`.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, [`KernelError::OutOfMemory`].
    pub fn new(layout: Layout, stream: Stream) -> Result<Self> {
        Ok(Self { ring: Ring::new(layout)?, stream, slots: Vec::new() })
    }

    /// The stored transitions.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The buffer's own random stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Stores transitions, each in the place of the oldest where the buffer is full.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::DType`] and [`KernelError::NonFinite`]; nothing is
    /// stored then.
    pub fn push(&mut self, rows: &Transitions<'_>) -> Result<()> {
        self.ring.check_push(rows)?;
        self.ring.write(rows, |_| ());
        Ok(())
    }

    /// Draws as many transitions as `out` has rows.
    ///
    /// With a seed the slots are those of `numpy.random.default_rng(seed).integers(len, size=n)`;
    /// without one, the buffer's own stream goes on.
    ///
    /// # Errors
    /// [`StateError::EmptyBuffer`]; [`StateError::NextObsUnknown`] where `out` has next observations
    /// and a stored transition has none; [`KernelError::Shape`], [`KernelError::DType`],
    /// [`KernelError::OutOfMemory`]. Nothing is drawn or written then.
    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    pub fn sample(&mut self, seed: Option<u64>, out: &mut Batch<'_>) -> Result<()> {
        let n = out.rewards.len();
        if self.ring.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        self.ring.check_out(out, n)?;
        reserve(&mut self.slots, n)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        let len = self.ring.len() as u64;
        self.slots.extend((0..n).map(|_| stream.below(len) as usize));
        self.ring.draw(&self.slots, out);
        Ok(())
    }

    /// Draws sequences of `seq_len` steps of one env each, of one step per transition.
    ///
    /// A sequence stays within its episode, and what is missing is zeros; or with `cross_episodes` it goes
    /// on with the env's next episode, and is always whole. Every transition that can begins one with equal
    /// probability.
    ///
    /// # Errors
    /// As [`UniformReplay::sample`], and [`StateError::TooFew`].
    pub fn sample_sequences(
        &mut self,
        seed: Option<u64>,
        seq_len: usize,
        cross_episodes: bool,
        out: &mut Sequences<'_>,
    ) -> Result<()> {
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        self.ring.sample_sequences(stream, &mut self.slots, seq_len, cross_episodes, out)
    }

    /// Goes on exactly from what [`Ring::export`], [`Ring::position`] and [`UniformReplay::stream`]
    /// gave.
    ///
    /// # Errors
    /// What is wrong with the state; the buffer is as it was then.
    pub fn restore(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
        stream: Stream,
    ) -> Result<()> {
        self.ring.check_import(rows, has_next_obs, position)?;
        self.ring.import(rows, has_next_obs, position);
        self.stream = stream;
        Ok(())
    }
}

/// Empties `slots` and makes room for `n`.
pub(super) fn reserve(slots: &mut Vec<usize>, n: usize) -> Result<()> {
    slots.clear();
    let out_of_memory = |_| KernelError::OutOfMemory { name: "batch_size", requested: n };
    slots.try_reserve(n).map_err(out_of_memory)
}
