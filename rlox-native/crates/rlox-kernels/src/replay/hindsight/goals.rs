//! Goals in observations, the choice of new ones, and the reward for reaching them.

use std::ops::Range;

use super::episodes::Around;
use crate::error::{KernelError, Result, check_range};
use crate::replay::batch::Batch;
use crate::replay::layout::Layout;
use crate::replay::ring::Ring;
use crate::replay::values::DType;

/// Places of the goals in an observation, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goals {
    /// Numbers per goal, at least 1.
    pub len: usize,
    /// Start of the achieved goal.
    pub achieved: usize,
    /// Start of the desired goal.
    pub desired: usize,
}

/// The step of the episode whose achieved goal a transition gets (section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The transition itself or a later one.
    Future,
    /// The last one.
    Final,
    /// Any one.
    Episode,
}

/// Settings of the relabelling of goals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hindsight {
    /// Places of the goals.
    pub goals: Goals,
    /// Choice of the new goals.
    pub selection: Selection,
    /// Relabelled transitions per transition that keeps its goal, k in the paper.
    pub n_sampled_goal: usize,
    /// Largest Euclidean distance of a reached goal, if distance decides the reward.
    pub threshold: Option<f64>,
}

impl Selection {
    /// The slot of the step that provides the goal, for a `pick` in [0, 1).
    pub(super) fn pick(self, slot: usize, around: &Around, pick: f64, ring: &Ring) -> usize {
        let Around { before, after, stride } = *around;
        let capacity = ring.layout().capacity;
        match self {
            Self::Future => ring.after(slot, nth(pick, after + 1) * stride),
            Self::Final => ring.after(slot, after * stride),
            Self::Episode => {
                let first = ring.after(slot, capacity - before * stride);
                ring.after(first, nth(pick, before + 1 + after) * stride)
            }
        }
    }
}

/// The index below `n` for a number in [0, 1).
#[expect(clippy::cast_precision_loss, reason = "an episode has fewer than 2^53 steps")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, below n")]
fn nth(pick: f64, n: usize) -> usize {
    (pick * n as f64) as usize
}

impl Hindsight {
    pub(super) fn check(&self, layout: &Layout) -> Result<()> {
        let Goals { len, achieved, desired } = self.goals;
        let obs_len = layout.obs.len;
        let places = [
            ("n_sampled_goal", self.n_sampled_goal, 1, usize::MAX),
            ("goal_dim", len, 1, obs_len),
            ("achieved_goal", achieved, 0, obs_len.saturating_sub(len)),
            ("desired_goal", desired, 0, obs_len.saturating_sub(len)),
        ];
        #[expect(clippy::cast_precision_loss, reason = "for a message")]
        for (name, value, low, high) in places {
            if value < low || value > high {
                let (low, high, value) = (low as f64, high as f64, value as f64);
                return Err(KernelError::Range { name, low, high, value });
            }
        }
        if achieved.abs_diff(desired) < len {
            return Err(KernelError::GoalsOverlap { achieved, desired, len });
        }
        let threshold = self.threshold.unwrap_or(0.0);
        check_range("distance_threshold", threshold, 0.0, f64::INFINITY)
    }

    /// The probability that a transition gets another goal.
    #[expect(clippy::cast_precision_loss, reason = "rounding a probability")]
    pub(super) fn chance(&self) -> f64 {
        let k = self.n_sampled_goal as f64;
        k / (k + 1.0)
    }

    /// Gives a row of `out` the achieved goal of `reached`, the bytes of an observation.
    pub(super) fn relabel(&self, row: usize, reached: &[u8], out: &mut Batch<'_>) {
        let dtype = out.obs.as_values().dtype();
        let bytes = |begin: usize| begin * dtype.size()..(begin + self.goals.len) * dtype.size();
        let (achieved, desired) = (bytes(self.goals.achieved), bytes(self.goals.desired));
        let goal = &reached[achieved.clone()];
        let in_row =
            |part: &Range<usize>| row * reached.len() + part.start..row * reached.len() + part.end;
        out.obs.bytes()[in_row(&desired)].copy_from_slice(goal);
        let Some(next_obs) = &mut out.next_obs else { return };
        let next_obs = next_obs.bytes();
        next_obs[in_row(&desired)].copy_from_slice(goal);
        if let Some(threshold) = self.threshold {
            let there = distance(dtype, &next_obs[in_row(&achieved)], goal) <= threshold;
            out.rewards[row] = if there { 0.0 } else { -1.0 };
        }
    }
}

/// The Euclidean distance between two goals, summed from their first numbers on.
fn distance(dtype: DType, a: &[u8], b: &[u8]) -> f64 {
    let pairs = a.chunks_exact(dtype.size()).zip(b.chunks_exact(dtype.size()));
    let squares = pairs.map(|(a, b)| (dtype.to_f64(a) - dtype.to_f64(b)).powi(2));
    squares.fold(0.0, |sum, square| sum + square).sqrt()
}
