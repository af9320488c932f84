//! Advantages of completions relative to their group.
//!
//! `A_i = (r_i - mean(r)) / (std(r) + ε)` over the group of completions of one prompt.
//!
//! Source: Shao et al., "`DeepSeekMath`", 2024, section 4.1.2. Without the division: Liu et al.,
//! "Understanding R1-Zero-Like Training", 2025 (Dr. GRPO).
//!
//! Blocks of groups are divided among threads if there is enough to do ([`crate::threads`]); the
//! standard deviation of all rewards is computed on the calling thread.

use crate::error::{KernelError, Result, check_len, check_parts, check_range};
use crate::number::Float;
use crate::threads::Meter;

/// Rewards per block of a thread's work; a larger group is a block of its own.
const BLOCK: usize = 4096;

static COST: Meter = Meter::new();

/// Divisor of the deviations from the group's mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The standard deviation of the group.
    Group,
    /// The standard deviation of all rewards.
    Batch,
    /// Nothing.
    None,
}

/// How advantages are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalization {
    /// Divisor of the deviations.
    pub scale: Scale,
    /// Delta degrees of freedom: 0 for the population's standard deviation, 1 for the sample's.
    pub ddof: usize,
    /// ε, added to the standard deviation.
    pub eps: f64,
}

/// Writes the advantages of groups of `group_size` rewards, one group after the other.
///
/// Groups of equal rewards and groups of one have advantages of 0.
///
/// # Errors
/// [`KernelError::Range`] for a `group_size` of 0, a `ddof` that leaves no degree of freedom, or an
/// `eps` that is negative or not finite; [`KernelError::Parts`] for an incomplete group,
/// [`KernelError::Shape`] for an output of another length.
#[expect(clippy::cast_precision_loss, reason = "only for the message")]
pub fn group_advantages<F: Float>(
    rewards: &[F],
    group_size: usize,
    how: Normalization,
    advantages: &mut [F],
) -> Result<()> {
    let len = rewards.len();
    let high = usize::MAX as f64;
    check_range("group_size", group_size as f64, 1.0, high)?;
    check_range("eps", how.eps, 0.0, f64::MAX)?;
    check_ddof(how.ddof, group_size)?;
    check_parts("rewards", len, "groups", "group_size", group_size)?;
    check_len("advantages", advantages.len(), "rewards", len)?;

    let whole = match how.scale {
        Scale::Batch => Some(Moments::of(rewards, how.ddof)),
        Scale::Group | Scale::None => None,
    };
    let size = (BLOCK / group_size).max(1) * group_size;
    let blocks = rewards.chunks(size).zip(advantages.chunks_mut(size)).collect();
    COST.for_each(len, blocks, |(rewards, advantages)| {
        let groups = rewards.chunks_exact(group_size).zip(advantages.chunks_exact_mut(group_size));
        for (rewards, advantages) in groups {
            let group = Moments::of(rewards, how.ddof);
            let factor = match (how.scale, whole) {
                (Scale::None, _) => 1.0,
                (_, None) => group.inverse_std(how.eps),
                (_, Some(whole)) => whole.inverse_std(how.eps),
            };
            for (advantage, &reward) in advantages.iter_mut().zip(rewards) {
                *advantage = F::from_f64((reward.to_f64() - group.mean) * factor);
            }
        }
    });
    Ok(())
}

/// Checks that `ddof` leaves a degree of freedom to `len` elements. A single element, whose
/// deviation is 0 anyway, accepts any `ddof`.
#[expect(clippy::cast_precision_loss, reason = "only for the message")]
pub(crate) fn check_ddof(ddof: usize, len: usize) -> Result<()> {
    if len > 1 && ddof >= len {
        let (high, value) = ((len - 1) as f64, ddof as f64);
        return Err(KernelError::Range { name: "ddof", low: 0.0, high, value });
    }
    Ok(())
}

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(crate) mean: f64,
    pub(crate) std: f64,
}

impl Moments {
    /// Computed in two passes, relative to the first element: exact for equal elements, without
    /// cancellation if the mean is large. Too few elements have a deviation of 0.
    #[expect(clippy::cast_precision_loss, reason = "no array has 2^53 elements")]
    pub(crate) fn of<F: Float>(elements: &[F], ddof: usize) -> Self {
        let Some(origin) = elements.first().map(|first| first.to_f64()) else {
            return Self { mean: 0.0, std: 0.0 };
        };
        let len = elements.len();
        let offset = |element: &F| element.to_f64() - origin;
        let mean = origin + elements.iter().map(offset).sum::<f64>() / len as f64;
        let squares: f64 = elements.iter().map(|e| (e.to_f64() - mean).powi(2)).sum();
        let freedom = len.saturating_sub(ddof).max(1) as f64;
        Self { mean, std: (squares / freedom).sqrt() }
    }

    /// `1 / (std + eps)`, or 0 for equal elements.
    pub(crate) fn inverse_std(self, eps: f64) -> f64 {
        if self.std == 0.0 { 0.0 } else { (self.std + eps).recip() }
    }
}
