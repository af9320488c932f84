//! Statistics of observations, and what is made of observations with them.

use super::values::{DType, Values};

/// Added to the standard deviation of every number of an observation.
///
/// S. Fujimoto and S. Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021, equation 6.
pub const NORMALIZER_EPSILON: f64 = 1e-3;

/// What observations are normalised with, a number for each of theirs: `(obs - mean) / scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalizer {
    /// The mean over all observations.
    pub mean: Vec<f64>,
    /// The standard deviation, plus [`NORMALIZER_EPSILON`].
    pub scale: Vec<f64>,
}

impl Normalizer {
    /// The statistics of `len` numbers per observation; `None` for observations of integers.
    pub(super) fn of(obs: Values<'_>, len: usize) -> Option<Self> {
        match obs {
            Values::F32(values) => Some(Self::of_floats(values, len)),
            Values::F64(values) => Some(Self::of_floats(values, len)),
            Values::U8(_) | Values::I32(_) | Values::I64(_) => None,
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
