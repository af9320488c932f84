//! A replay buffer with any way of drawing, and the one that draws uniformly.

use super::batch::{Batch, Sequences, Transitions};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use crate::error::{KernelError, Result, StateError};

/// A way of drawing transitions from a ring: its data per transition and its choice of slots.
pub trait Draw: Send {
    /// Additional input of a push.
    type Given<'a>: Copy;
    /// Additional output of a sample.
    type Drawn<'a>: ?Sized;
    /// Additional content of a saved state.
    type Saved<'a>: ?Sized;

    /// Bytes of memory in addition to the ring's; `None` if no address space could hold them.
    #[must_use]
    fn memory_bytes(_layout: &Layout) -> Option<usize> {
        Some(0)
    }

    /// Checks `n` transitions that the ring accepts.
    ///
    /// # Errors
    /// Errors of the transitions; nothing is stored then.
    fn check_push(
        &self,
        _layout: &Layout,
        _rows: &Transitions<'_>,
        _n: usize,
        _given: Self::Given<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Notes that the `k`-th of `rows` is in `slot`; `stored` transitions are in the ring.
    fn stored(
        &mut self,
        _slot: usize,
        _k: usize,
        _stored: usize,
        _rows: &Transitions<'_>,
        _given: Self::Given<'_>,
    ) {
    }

    /// Notes that all transitions of a push are stored.
    fn pushed(&mut self, _given: Self::Given<'_>) {}

    /// Checks the output buffers.
    ///
    /// # Errors
    /// Errors of the buffers; nothing is drawn then.
    fn check_out(&self, _ring: &Ring, _out: &Batch<'_>, _drawn: &Self::Drawn<'_>) -> Result<()> {
        Ok(())
    }

    /// Appends `n` slots to `slots`, which has room for them.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`]; nothing is drawn then.
    fn choose(
        &mut self,
        ring: &Ring,
        stream: &mut Stream,
        n: usize,
        slots: &mut Vec<usize>,
        drawn: &mut Self::Drawn<'_>,
    ) -> Result<()>;

    /// Changes the drawn transitions.
    fn finish(&self, _ring: &Ring, _drawn: &Self::Drawn<'_>, _out: &mut Batch<'_>) {}

    /// Checks a saved state of `has_next_obs.len()` transitions.
    ///
    /// # Errors
    /// Errors of the state.
    fn check_saved(&self, _has_next_obs: &[bool], _saved: &Self::Saved<'_>) -> Result<()> {
        Ok(())
    }

    /// Notes that the newest step of every env is its episode's last.
    fn cut(&mut self, _ring: &Ring) {}

    /// Restores a checked state after the ring has been restored.
    fn restored(&mut self, _ring: &Ring, _saved: &Self::Saved<'_>) {}
}

/// A ring of the last transitions, sampled with replacement by `D`.
#[derive(Debug)]
pub struct Replay<D> {
    pub(super) ring: Ring,
    stream: Stream,
    pub(super) draw: D,
    /// The slots of the last batch, kept to reuse their memory.
    slots: Vec<usize>,
}

impl<D: Draw> Replay<D> {
    pub(super) fn of(ring: Ring, draw: D, stream: Stream) -> Self {
        Self { ring, stream, draw, slots: Vec::new() }
    }

    /// Bytes of memory that a buffer of this layout takes when it is full.
    ///
    /// # Errors
    /// As [`Layout::memory_bytes`].
    pub fn memory_bytes(layout: &Layout) -> Result<usize> {
        let ring = layout.memory_bytes()?;
        let bytes = D::memory_bytes(layout).and_then(|n| n.checked_add(ring));
        bytes.ok_or(KernelError::OutOfMemory { name: "capacity", requested: layout.capacity })
    }

    /// Truncates running episodes: the newest step of each env becomes its episode's last.
    pub fn truncate_episodes(&mut self) {
        self.ring.truncate_newest();
        self.draw.cut(&self.ring);
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

    /// Stores transitions with the additional data `given`; in a full buffer each replaces the
    /// oldest.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::DType`], [`KernelError::NonFinite`],
    /// [`KernelError::Envs`], and errors of [`Draw::check_push`]; nothing is stored then.
    pub fn push(&mut self, rows: &Transitions<'_>, given: D::Given<'_>) -> Result<()> {
        let n = self.ring.check_push(rows)?;
        let capacity = self.ring.layout().capacity;
        self.draw.check_push(self.ring.layout(), rows, n, given)?;
        let (mut slot, stored) = (self.ring.position(), self.ring.len());
        self.ring.write(rows);
        for k in 0..n {
            self.draw.stored(slot, k, (stored + k + 1).min(capacity), rows, given);
            slot = self.ring.after(slot, 1);
        }
        self.draw.pushed(given);
        Ok(())
    }

    /// Draws a transition for each row of `out`, with a stream of the `seed` or with the buffer's.
    ///
    /// # Errors
    /// [`StateError::EmptyBuffer`]; [`StateError::NextObsUnknown`] if `out` has next observations
    /// and a stored transition has none; [`KernelError::Shape`], [`KernelError::DType`],
    /// [`KernelError::OutOfMemory`], and errors of [`Draw::check_out`]. Nothing is drawn then.
    pub fn sample(
        &mut self,
        seed: Option<u64>,
        out: &mut Batch<'_>,
        drawn: &mut D::Drawn<'_>,
    ) -> Result<()> {
        let n = out.rewards.len();
        if self.ring.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        self.ring.check_out(out, n)?;
        self.draw.check_out(&self.ring, out, drawn)?;
        reserve(&mut self.slots, n)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        self.draw.choose(&self.ring, stream, n, &mut self.slots, drawn)?;
        self.ring.draw(&self.slots, out);
        self.draw.finish(&self.ring, drawn, out);
        Ok(())
    }

    /// Draws sequences of `seq_len` single steps of one env each, uniformly for every `D`.
    ///
    /// A sequence stays within its episode and is padded with zeros; with `cross_episodes` it
    /// continues into the env's next episode and is always whole. All possible first transitions
    /// are equally likely.
    ///
    /// # Errors
    /// As [`Replay::sample`], and [`StateError::TooFew`].
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

    /// Restores exactly the results of [`Ring::export`], [`Ring::position`], [`Replay::stream`] and
    /// the getters of such a buffer.
    ///
    /// # Errors
    /// Errors of the state; the buffer is unchanged then.
    pub fn restore(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
        stream: Stream,
        saved: &D::Saved<'_>,
    ) -> Result<()> {
        self.ring.check_import(rows, has_next_obs, position)?;
        self.draw.check_saved(has_next_obs, saved)?;
        self.ring.import(rows, has_next_obs, position);
        self.draw.restored(&self.ring, saved);
        self.stream = stream;
        Ok(())
    }
}

/// Empties `drawn` and makes room for `n`.
pub(super) fn reserve<T>(drawn: &mut Vec<T>, n: usize) -> Result<()> {
    drawn.clear();
    let out_of_memory = |_| KernelError::OutOfMemory { name: "batch_size", requested: n };
    drawn.try_reserve(n).map_err(out_of_memory)
}

/// Draws uniformly: with a seed, the slots of `numpy.random.default_rng(seed).integers(len, size=n)`.
#[derive(Debug)]
pub struct Uniform;

/// A ring of the last transitions, sampled uniformly with replacement.
pub type UniformReplay = Replay<Uniform>;

impl UniformReplay {
    /// An empty buffer that draws from `stream`.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0,
    /// [`KernelError::OutOfMemory`].
    pub fn new(layout: Layout, stream: Stream) -> Result<Self> {
        Ok(Self::of(Ring::new(layout)?, Uniform, stream))
    }
}

impl Draw for Uniform {
    type Given<'a> = ();
    type Drawn<'a> = ();
    type Saved<'a> = ();

    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    fn choose(
        &mut self,
        ring: &Ring,
        stream: &mut Stream,
        n: usize,
        slots: &mut Vec<usize>,
        (): &mut (),
    ) -> Result<()> {
        let stored = ring.len() as u64;
        slots.extend((0..n).map(|_| stream.below(stored) as usize));
        Ok(())
    }
}
