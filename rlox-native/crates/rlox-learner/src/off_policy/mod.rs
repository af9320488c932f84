//! Gradient steps of off-policy algorithms on a batch of transitions.

mod actor;
mod continuous;
mod critics;
mod implicit;
mod penalty_step;
mod q_learner;
mod q_network;
mod target;

pub use actor::Actor;
pub use continuous::{Cloning, ContinuousLearner, PolicyStep, PolicyTerms, ValueStep};
pub use implicit::{ImplicitLearner, ImplicitLosses, ImplicitParts, ImplicitTerms};
pub use penalty_step::Samples;
pub use q_learner::{ElementLoss, QLearner, QStep};
pub use q_network::QNetwork;

use super::actor_critic::check_width;
use rlox_kernels::error::{KernelError, Result, check_len, check_size};

/// B transitions, each field in rows.
#[derive(Debug, Clone, Copy)]
pub struct Transitions<'a> {
    /// Observations, B × `obs_dim`.
    pub obs: &'a [f32],
    /// Next observations, B × `obs_dim`.
    pub next_obs: &'a [f32],
    /// Rewards, B.
    pub rewards: &'a [f32],
    /// Discounts of the values of `next_obs`, B: 0 where the task ended.
    pub discounts: &'a [f32],
    /// Weights of the rows' losses, B; `None` for equal weights.
    pub weights: Option<&'a [f32]>,
}

impl Transitions<'_> {
    /// Number of transitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether there are no transitions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    fn check(&self, obs_dim: usize) -> Result<()> {
        let rows = self.len();
        check_size("batch_size", rows, usize::MAX)?;
        check_len("obs", self.obs.len(), "rewards * obs_dim", rows * obs_dim)?;
        check_len("next_obs", self.next_obs.len(), "rewards * obs_dim", rows * obs_dim)?;
        check_len("discounts", self.discounts.len(), "rewards", rows)?;
        check_len("weights", self.weights.map_or(rows, <[f32]>::len), "rewards", rows)
    }

    /// The weight of a row's loss.
    fn weight(&self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }
}

/// Metrics of a gradient step of action values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ValueTerms {
    /// The loss.
    pub loss: f64,
    /// Mean of the chosen actions' values.
    pub value: f64,
}

/// Checks the widths of a network's layers, the named and the hidden ones.
fn check_sizes(named: &[(&'static str, usize)], hidden: &[usize]) -> Result<()> {
    named.iter().try_for_each(|&(name, width)| check_width(name, width))?;
    hidden.iter().try_for_each(|&width| check_width("hidden", width))
}

/// Checks that bounds of logarithmic deviations are an interval.
fn check_log_std_bounds([low, high]: [f64; 2]) -> Result<()> {
    if low.is_finite() && high.is_finite() && low <= high {
        return Ok(());
    }
    Err(KernelError::Bounds { name: "log_std_bounds", low, high })
}

#[expect(clippy::cast_precision_loss, reason = "a batch is far below 2^53 rows")]
fn mean_of(sum: f64, n: usize) -> f64 {
    sum / n as f64
}

/// A range of rows of `width` elements; empty for empty values.
fn part<F>(values: &[F], first: usize, rows: usize, width: usize) -> &[F] {
    if values.is_empty() { values } else { &values[first * width..][..rows * width] }
}
