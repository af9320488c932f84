//! A recorded dataset, for sampling only.

use bytemuck::cast_slice;

use super::batch::{Batch, Transitions};
use super::buffer::reserve;
use super::layout::Layout;
use super::ring::Ring;
use super::ring::sequences::check_pieces;
use super::stream::Stream;
use super::values::{DType, Values};
use crate::error::{KernelError, Result, check_len};

/// Recorded episodes, sampled by transitions or by pieces of trajectories.
#[derive(Debug)]
pub struct OfflineDataset {
    ring: Ring,
    stream: Stream,
    /// The first transition of every episode, then the number of transitions.
    bounds: Vec<usize>,
    /// Sum of the rewards from each transition to the end of its episode.
    returns_to_go: Vec<f32>,
    /// The undiscounted return of every episode.
    returns: Vec<f64>,
    normalizer: Option<Normalizer>,
    slots: Vec<usize>,
}

/// Output of `n` pieces of trajectories, each field in rows of `seq_len` steps.
#[derive(Debug)]
pub struct Trajectories<'a> {
    /// The transitions, `n * seq_len`; zeros after the end of an episode.
    pub batch: Batch<'a>,
    /// Sum of the rewards from each step to the end of the episode, `n * seq_len`.
    pub returns_to_go: &'a mut [f32],
    /// The number of each step in its episode, from 0, `n * seq_len`.
    pub timesteps: &'a mut [i64],
    /// False for places after the end of an episode, `n * seq_len`.
    pub mask: &'a mut [bool],
}

impl OfflineDataset {
    /// Takes the episodes stored one after the other in `rows`, each ended by a termination or a
    /// truncation. With `normalize`, float observations are normalised.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::DType`], [`KernelError::NonFinite`],
    /// [`KernelError::OutOfMemory`]; [`KernelError::NoEpisodeEnd`] if the last episode has no end.
    pub fn new(
        mut layout: Layout,
        rows: &Transitions<'_>,
        normalize: bool,
        stream: Stream,
    ) -> Result<Self> {
        layout.capacity = rows.rewards.len();
        let mut ring = Ring::new(layout.whole())?;
        let n = ring.check(rows)?;
        let ends = || rows.terminated.iter().zip(rows.truncated).map(|(&a, &b)| a || b);
        if !ends().next_back().unwrap_or_default() {
            return Err(KernelError::NoEpisodeEnd { last: n - 1 });
        }
        let after_ends = ends().enumerate().filter_map(|(k, end)| end.then_some(k + 1));
        let bounds: Vec<usize> = std::iter::once(0).chain(after_ends).collect();
        let (returns, returns_to_go) = returns(rows.rewards, &bounds);
        let normalizer = normalize.then(|| Normalizer::of(rows.obs, layout.obs.len)).flatten();
        ring.write(rows);
        if let Some(normalizer) = &normalizer {
            ring.for_each_obs(|obs| normalizer.apply(layout.obs.dtype, obs));
        }
        Ok(Self { ring, stream, bounds, returns_to_go, returns, normalizer, slots: Vec::new() })
    }

    /// The transitions, in the order of the recording.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The dataset's own random stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Replaces the random stream.
    pub fn set_stream(&mut self, stream: Stream) {
        self.stream = stream;
    }

    /// The undiscounted return of every episode.
    #[must_use]
    pub fn returns(&self) -> &[f64] {
        &self.returns
    }

    /// The number of transitions of every episode.
    #[must_use]
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> {
        self.bounds.windows(2).map(|bounds| bounds[1] - bounds[0])
    }

    /// The normaliser applied to the observations.
    #[must_use]
    pub fn normalizer(&self) -> Option<&Normalizer> {
        self.normalizer.as_ref()
    }

    /// Draws transitions as [`super::Replay::sample`] does.
    ///
    /// # Errors
    /// Those of `sample`.
    pub fn sample(&mut self, seed: Option<u64>, out: &mut Batch<'_>) -> Result<()> {
        self.ring.check_out(out, out.rewards.len())?;
        self.draw(seed, out.rewards.len(), 1)?;
        self.ring.gather(&self.slots, out);
        Ok(())
    }

    /// Draws pieces of `seq_len` steps: every transition begins one with equal probability. A piece
    /// ends with its episode and is padded with zeros.
    ///
    /// # Errors
    /// As [`OfflineDataset::sample`].
    pub fn sample_trajectories(
        &mut self,
        seed: Option<u64>,
        seq_len: usize,
        out: &mut Trajectories<'_>,
    ) -> Result<()> {
        let n = out.mask.len();
        check_len("rewards", out.batch.rewards.len(), "mask", n)?;
        check_len("returns_to_go", out.returns_to_go.len(), "mask", n)?;
        check_len("timesteps", out.timesteps.len(), "mask", n)?;
        check_pieces(n, seq_len)?;
        self.ring.check_out(&out.batch, n)?;
        self.draw(seed, n / seq_len, seq_len)?;
        self.complete(seq_len, out);
        self.ring.gather_masked(&self.slots, out.mask, &mut out.batch);
        Ok(())
    }

    /// Draws `n` slots that begin pieces.
    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    fn draw(&mut self, seed: Option<u64>, n: usize, seq_len: usize) -> Result<()> {
        reserve(&mut self.slots, n * seq_len)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        let len = self.ring.len() as u64;
        for _ in 0..n {
            let slot = stream.below(len) as usize;
            self.slots.extend(std::iter::repeat_n(slot, seq_len));
        }
        Ok(())
    }

    /// Advances the slots of each piece and writes all fields except the transitions.
    #[expect(clippy::cast_possible_wrap, reason = "an episode is shorter than 2^63")]
    fn complete(&mut self, seq_len: usize, out: &mut Trajectories<'_>) {
        let pieces = self.slots.chunks_exact_mut(seq_len);
        let returns_to_go = out.returns_to_go.chunks_exact_mut(seq_len);
        let timesteps = out.timesteps.chunks_exact_mut(seq_len);
        let masks = out.mask.chunks_exact_mut(seq_len);
        for (((slots, returns_to_go), timesteps), mask) in
            pieces.zip(returns_to_go).zip(timesteps).zip(masks)
        {
            let first = slots[0];
            let episode = self.bounds.partition_point(|&bound| bound <= first);
            let (begin, end) = (self.bounds[episode - 1], self.bounds[episode]);
            for k in 0..seq_len {
                let there = first + k < end;
                let slot = if there { first + k } else { first };
                slots[k] = slot;
                mask[k] = there;
                returns_to_go[k] = if there { self.returns_to_go[slot] } else { 0.0 };
                timesteps[k] = if there { (slot - begin) as i64 } else { 0 };
            }
        }
    }
}

/// The return of every episode, and the return to go of every transition.
#[expect(clippy::cast_possible_truncation, reason = "returns to go are single precision")]
fn returns(rewards: &[f32], bounds: &[usize]) -> (Vec<f64>, Vec<f32>) {
    let mut returns_to_go = vec![0.0; rewards.len()];
    let episodes = bounds.windows(2).map(|bounds| bounds[0]..bounds[1]);
    let returns = episodes
        .map(|episode| {
            episode.rev().fold(0.0, |sum, k| {
                let sum = sum + f64::from(rewards[k]);
                returns_to_go[k] = sum as f32;
                sum
            })
        })
        .collect();
    (returns, returns_to_go)
}

/// Added to the standard deviation of every number of an observation.
///
/// S. Fujimoto and S. Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021, equation 6.
pub const NORMALIZER_EPSILON: f64 = 1e-3;

/// Elementwise normalisation of observations: `(obs - mean) / scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalizer {
    /// The mean over all observations.
    pub mean: Vec<f64>,
    /// The standard deviation, plus [`NORMALIZER_EPSILON`].
    pub scale: Vec<f64>,
}

impl Normalizer {
    /// The statistics of observations of `len` numbers; `None` for integer observations.
    pub(super) fn of(obs: Values<'_>, len: usize) -> Option<Self> {
        match obs.dtype() {
            DType::F32 => Some(Self::of_floats::<f32>(cast_slice(obs.bytes()), len)),
            DType::F64 => Some(Self::of_floats::<f64>(cast_slice(obs.bytes()), len)),
            DType::U8 | DType::I32 | DType::I64 => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a dataset has fewer than 2^53 rows")]
    fn of_floats<T: Copy + Into<f64>>(values: &[T], len: usize) -> Self {
        let rows = || values.chunks_exact(len);
        let n = rows().len() as f64;
        let mut mean = vec![0.0; len];
        for row in rows() {
            mean.iter_mut().zip(row).for_each(|(mean, &value)| *mean += value.into());
        }
        for mean in &mut mean {
            *mean /= n;
        }
        let mut squares = vec![0.0; len];
        for row in rows() {
            for ((squares, mean), &value) in squares.iter_mut().zip(&mean).zip(row) {
                *squares += (value.into() - mean).powi(2);
            }
        }
        let scale = squares.iter().map(|squares| (squares / n).sqrt() + NORMALIZER_EPSILON);
        Self { scale: scale.collect(), mean }
    }

    /// Normalises the bytes of one observation.
    #[expect(clippy::cast_possible_truncation, reason = "an observation keeps its type")]
    pub(super) fn apply(&self, dtype: DType, obs: &mut [u8]) {
        let moments = self.mean.iter().zip(&self.scale);
        for (bytes, (mean, scale)) in obs.chunks_exact_mut(dtype.size()).zip(moments) {
            if dtype == DType::F32 {
                let x: f32 = bytemuck::pod_read_unaligned(bytes);
                let normalized = ((f64::from(x) - mean) / scale) as f32;
                bytes.copy_from_slice(&normalized.to_ne_bytes());
            } else {
                let x: f64 = bytemuck::pod_read_unaligned(bytes);
                bytes.copy_from_slice(&((x - mean) / scale).to_ne_bytes());
            }
        }
    }
}
