//! The buffer that draws all transitions alike.

use super::buffer::{Draw, Replay};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use crate::error::Result;

/// Draws uniformly: with a seed, the slots of `numpy.random.default_rng(seed).integers(len, size=n)`.
#[derive(Debug)]
pub struct Uniform;

/// A ring of the last transitions, drawn from uniformly with replacement.
pub type UniformReplay = Replay<Uniform>;

impl UniformReplay {
    /// An empty buffer that draws from `stream`.
    ///
    /// # Errors
    /// [`Range`](crate::KernelError::Range) for a size of 0,
    /// [`OutOfMemory`](crate::KernelError::OutOfMemory).
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
