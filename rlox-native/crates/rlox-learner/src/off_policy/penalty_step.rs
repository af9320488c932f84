//! The penalty of conservative Q-learning.

use std::f64::consts::LN_2;

use pulp::{Arch, Simd, WithSimd};

use super::continuous::ContinuousLearner;
use super::{mean_of, part};
use crate::Real;
use crate::linalg::BLOCK_ROWS;
use crate::passes::{forward, load_each};
use crate::runs::Hidden;
use rlox_kernels::error::{Result, check_len, check_size};

/// Largest number of actions of each kind: those of all kinds and the dataset's form one block.
const MOST: usize = (BLOCK_ROWS - 1) / 3;

/// The actions whose values are pushed down, N × B × `act_dim` each, and their bounds.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a> {
    /// Uniform in [-1, 1].
    pub random: &'a [f32],
    /// Standard normal noise for the policy at the observations.
    pub here: &'a [f32],
    /// Standard normal noise for the policy at the next observations.
    pub there: &'a [f32],
    /// Lower bounds applied to the values of the policy's actions, B.
    pub lower_bounds: Option<&'a [f32]>,
}

impl ContinuousLearner {
    /// Computes the penalty of each critic, mean of log Σ exp Q(s, a) - Q(s, `a_data`), with values
    /// weighted by the inverse density of the actions, and keeps its gradient for the next
    /// [`ContinuousLearner::step_values`]. Values below their bound are replaced by it and have no
    /// gradient.
    ///
    /// Kumar et al. 2020, "Conservative Q-learning for offline reinforcement learning", equation 4
    /// and appendix f32; for the bounds, Nakamoto et al. 2023, "Cal-QL: calibrated offline RL
    /// pre-training for efficient online fine-tuning", equation 5.1.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit or more than 85
    /// actions of a kind; nothing changes then.
    pub fn penalize(
        &mut self,
        critics: &[f32],
        policy: &[f32],
        obs: &[f32],
        next_obs: &[f32],
        actions: &[f32],
        samples: Samples<'_>,
    ) -> Result<Vec<f64>> {
        check_len("critics", critics.len(), "the critics", self.n_critic_parameters)?;
        check_len("policy", policy.len(), "the policy", self.policy.end())?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows.max(1) * self.obs_dim)?;
        check_len("next_obs", next_obs.len(), "obs", obs.len())?;
        check_len("actions", actions.len(), "rows * act_dim", rows * self.act_dim)?;
        let n_samples = samples.random.len() / actions.len();
        check_size("random actions", n_samples, MOST)?;
        let expected = n_samples * actions.len();
        for (name, values) in
            [("random", samples.random), ("here", samples.here), ("there", samples.there)]
        {
            check_len(name, values.len(), "samples * actions", expected)?;
        }
        if let Some(bounds) = samples.lower_bounds {
            check_len("lower_bounds", bounds.len(), "rows", rows)?;
        }
        let call =
            Penalize { learner: self, critics, policy, obs, next_obs, actions, samples, n_samples };
        Ok(Arch::new().dispatch(call))
    }

    /// The mean of -log π over the policy's actions with `noise`, B × `act_dim`.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit.
    pub fn entropy(&mut self, policy: &[f32], obs: &[f32], noise: &[f32]) -> Result<f64> {
        check_len("policy", policy.len(), "the policy", self.policy.end())?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows.max(1) * self.obs_dim)?;
        check_len("noise", noise.len(), "rows * act_dim", rows * self.act_dim)?;
        Ok(Arch::new().dispatch(Entropy { learner: self, policy, obs, noise }))
    }
}

/// The arguments of [`ContinuousLearner::entropy`].
struct Entropy<'a> {
    learner: &'a mut ContinuousLearner,
    policy: &'a [f32],
    obs: &'a [f32],
    noise: &'a [f32],
}

impl WithSimd for Entropy<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let learner = self.learner;
        learner.packed_policy.load(&learner.policy, self.policy);
        let (obs_dim, act_dim) = (learner.obs_dim, learner.act_dim);
        let n = self.obs.len() / obs_dim;
        let mut sum = 0.0;
        for first in (0..n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(n - first);
            let obs = part(self.obs, first, rows, obs_dim);
            let noise = part(self.noise, first, rows, act_dim);
            learner.choose(simd, obs, noise, rows, Hidden::Overwritten);
            sum -= learner.log_probs[..rows].iter().map(|&log_prob| log_prob.widen()).sum::<f64>();
        }
        mean_of(sum, n)
    }
}

/// The arguments of [`ContinuousLearner::penalize`].
struct Penalize<'a> {
    learner: &'a mut ContinuousLearner,
    critics: &'a [f32],
    policy: &'a [f32],
    obs: &'a [f32],
    next_obs: &'a [f32],
    actions: &'a [f32],
    samples: Samples<'a>,
    n_samples: usize,
}

/// The policy's actions, N per observation, and the logarithms of their densities.
struct Drawn {
    actions: Vec<f32>,
    log_probs: Vec<f32>,
}

impl WithSimd for Penalize<'_> {
    type Output = Vec<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> Vec<f64> {
        let ContinuousLearner { policy, packed_policy, critics, online, .. } = &mut *self.learner;
        let of_policy = [(packed_policy, &*policy, self.policy)];
        let loads = of_policy.into_iter().chain(online.loads(critics, self.critics));
        load_each(policy.helpers(BLOCK_ROWS), loads);
        online.clear_gradients();
        let here = self.draw(simd, self.obs, self.samples.here);
        let there = self.draw(simd, self.next_obs, self.samples.there);
        let (n, n_critics) = (self.obs.len() / self.learner.obs_dim, self.learner.critics.len());
        let together = BLOCK_ROWS / (3 * self.n_samples + 1);
        // One critic after the other, to keep its parameters and gradients in the caches.
        let penalize = |k| {
            let blocks = (0..n).step_by(together);
            let penalties = blocks.map(|first| {
                self.push_down(simd, k, first, together.min(n - first), [&here, &there])
            });
            mean_of(penalties.sum(), n)
        };
        let penalties = (0..n_critics).map(penalize).collect();
        self.learner.penalized = true;
        penalties
    }
}

impl Penalize<'_> {
    /// Draws actions from the policy.
    #[inline(always)]
    fn draw<S: Simd>(&mut self, simd: S, obs: &[f32], noise: &[f32]) -> Drawn {
        let ContinuousLearner {
            obs_dim, act_dim, actor, policy, packed_policy, policy_block, ..
        } = &mut *self.learner;
        let (n_samples, size) = (self.n_samples, self.actions.len());
        let mut actions = vec![0.0; n_samples * size];
        let mut log_probs = vec![0.0; n_samples * size / *act_dim];
        let places = actions.chunks_exact_mut(n_samples * *act_dim);
        let mut places = places.zip(log_probs.chunks_exact_mut(n_samples)).enumerate();
        for obs in obs.chunks(BLOCK_ROWS * *obs_dim) {
            let rows = obs.len() / *obs_dim;
            forward(simd, policy, packed_policy, obs, rows, policy_block, Hidden::Overwritten);
            let outputs = policy_block.output().chunks_exact(policy.output_stride()).take(rows);
            for (outputs, (row, (actions, log_probs))) in outputs.zip(&mut places) {
                let drawn = actions.chunks_exact_mut(*act_dim).zip(log_probs);
                for (j, (action, log_prob)) in drawn.enumerate() {
                    let noise = &noise[j * size + row * *act_dim..][..*act_dim];
                    *log_prob = actor.act(&outputs[..actor.n_outputs(*act_dim)], noise, action);
                }
            }
        }
        Drawn { actions, log_probs }
    }

    /// Accumulates the gradients of critic k's penalties for `count` observations from `first` on,
    /// and returns the sum of these penalties.
    #[inline(always)]
    fn push_down<S: Simd>(
        &mut self,
        simd: S,
        k: usize,
        first: usize,
        count: usize,
        drawn: [&Drawn; 2],
    ) -> f64 {
        let (obs_dim, act_dim) = (self.learner.obs_dim, self.learner.act_dim);
        let (n_samples, size) = (self.n_samples, self.actions.len());
        let n_rows = 3 * n_samples + 1;
        let mut obs = Vec::with_capacity(count * n_rows * obs_dim);
        let mut actions = Vec::with_capacity(count * n_rows * act_dim);
        for row in first..first + count {
            obs.extend_from_slice(&part(self.obs, row, 1, obs_dim).repeat(n_rows));
            for j in 0..n_samples {
                actions
                    .extend_from_slice(&self.samples.random[j * size + row * act_dim..][..act_dim]);
            }
            for drawn in drawn {
                actions.extend_from_slice(part(&drawn.actions, row, 1, n_samples * act_dim));
            }
            actions.extend_from_slice(part(self.actions, row, 1, act_dim));
        }
        let ContinuousLearner { critics, online, .. } = &mut *self.learner;
        online.forward(simd, critics, k..k + 1, &obs, &actions, count * n_rows);
        let share = f32::of(mean_of(1.0, self.obs.len() / obs_dim));
        let of_random = (0..act_dim).fold(0.0, |sum, _| sum - f32::of(LN_2));
        let mut values = vec![0.0; 3 * n_samples];
        let mut penalties = 0.0;
        for i in 0..count {
            let begin = i * n_rows;
            let of_policy =
                drawn.iter().flat_map(|drawn| part(&drawn.log_probs, first + i, 1, n_samples));
            let densities = std::iter::repeat_n(&of_random, n_samples).chain(of_policy);
            let bounds = self.samples.lower_bounds;
            let bound = bounds.map_or_else(|| f32::NEG_INFINITY, |bounds| bounds[first + i]);
            let bounded = |j, value| j >= n_samples && value < bound;
            for (j, (value, &density)) in values.iter_mut().zip(densities).enumerate() {
                let of_action = online.value(critics, k, begin + j);
                *value = if bounded(j, of_action) { bound } else { of_action } - density;
            }
            let log_sum = log_sum_exp(&values);
            for (j, &value) in values.iter().enumerate() {
                let free = !bounded(j, online.value(critics, k, begin + j));
                let gradient = if free { share * (value - log_sum).exp() } else { 0.0 };
                online.set_gradient(critics, k, begin + j, gradient);
            }
            let of_data = begin + n_rows - 1;
            online.set_gradient(critics, k, of_data, -share);
            penalties += (log_sum - online.value(critics, k, of_data)).widen();
        }
        online.backward(simd, critics, k..k + 1, count * n_rows);
        penalties
    }
}

/// log Σ exp of the values.
fn log_sum_exp(values: &[f32]) -> f32 {
    let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum = values.iter().fold(0.0, |sum, &value| sum + (value - largest).exp());
    largest + sum.ln()
}
