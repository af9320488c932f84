//! Actions from a policy's outputs, and the backward pass.

use pulp::{Arch, Simd, WithSimd};

use super::continuous::ContinuousLearner;
use super::part;
use crate::Real;
use crate::linalg::BLOCK_ROWS;
use crate::passes::{FEW_ROWS, forward_few};
use crate::runs::Hidden;
use rlox_kernels::error::{Result, check_len};

/// Policies of continuous actions in [-1, 1].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Actor {
    /// tanh of the network.
    Deterministic,
    /// tanh of a sample of a Gaussian; the network outputs its means and logarithmic deviations
    /// (Haarnoja et al. 2018, appendix C).
    SquashedGaussian {
        /// Bounds that logarithmic deviations are clipped to.
        log_std_bounds: [f64; 2],
    },
}

impl Actor {
    /// Number of outputs of the network.
    #[inline]
    pub(super) fn n_outputs(self, act_dim: usize) -> usize {
        match self {
            Self::Deterministic => act_dim,
            Self::SquashedGaussian { .. } => 2 * act_dim,
        }
    }

    /// Turns `outputs` into an action; returns its log-probability, 0 for a deterministic one.
    ///
    /// `noise` is standard normal for a Gaussian. For a deterministic action it is empty, or it is
    /// added before clipping (Fujimoto et al. 2018, equation 14).
    #[inline(always)]
    pub(super) fn act(self, outputs: &[f32], noise: &[f32], actions: &mut [f32]) -> f32 {
        let one = 1.0;
        let Self::SquashedGaussian { log_std_bounds } = self else {
            for (i, action) in actions.iter_mut().enumerate() {
                *action = outputs[i].tanh();
                if let Some(&noise) = noise.get(i) {
                    *action = clip(*action + noise, -one, one);
                }
            }
            return 0.0;
        };
        let half_log_tau = f32::of(0.5 * std::f64::consts::TAU.ln());
        let [low, high] = log_std_bounds.map(f32::of);
        let (means, log_stds) = outputs.split_at(actions.len());
        let mut log_prob = 0.0;
        for (i, action) in actions.iter_mut().enumerate() {
            let log_std = clip(log_stds[i], low, high);
            let pre_tanh = means[i] + log_std.exp() * noise[i];
            *action = pre_tanh.tanh();
            let log_density = -f32::of(0.5) * noise[i] * noise[i] - log_std - half_log_tau;
            let log_slope = f32::of(2.0)
                * (f32::of(std::f64::consts::LN_2) - pre_tanh - softplus(-f32::of(2.0) * pre_tanh));
            log_prob = log_prob + log_density - log_slope;
        }
        log_prob
    }

    /// Writes the gradient with respect to `outputs`, given those with respect to the action from
    /// [`Actor::act`] and to its log-probability.
    #[inline(always)]
    pub(super) fn differentiate(
        self,
        outputs: &[f32],
        noise: &[f32],
        actions: &[f32],
        of_actions: &[f32],
        of_log_prob: f32,
        gradients: &mut [f32],
    ) {
        for (i, (&action, &of_action)) in actions.iter().zip(of_actions).enumerate() {
            let of_pre_tanh = of_action * (1.0 - action * action);
            let Self::SquashedGaussian { log_std_bounds } = self else {
                gradients[i] = of_pre_tanh;
                continue;
            };
            // d log π / du = 2 tanh u
            let of_pre_tanh = of_pre_tanh + of_log_prob * f32::of(2.0) * action;
            let [low, high] = log_std_bounds.map(f32::of);
            let log_std = outputs[actions.len() + i];
            let of_log_std = of_pre_tanh * log_std.exp() * noise[i] - of_log_prob;
            gradients[i] = of_pre_tanh;
            gradients[actions.len() + i] =
                if log_std >= low && log_std <= high { of_log_std } else { 0.0 };
        }
    }
}

/// Not `max` and `min`, which would hide NaN.
pub(super) fn clip(value: f32, low: f32, high: f32) -> f32 {
    if value < low {
        low
    } else if value > high {
        high
    } else {
        value
    }
}

/// ln(1 + eˣ).
fn softplus(x: f32) -> f32 {
    if x > f32::of(20.0) { x } else { x.exp().ln_1p() }
}

impl ContinuousLearner {
    /// Writes the policy's action for each row of `obs`, `act_dim` numbers each.
    ///
    /// `noise`, laid out as the actions, is standard normal for a Gaussian policy; for a
    /// deterministic one it is added to the actions or empty.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit.
    pub fn act(
        &mut self,
        policy: &[f32],
        obs: &[f32],
        noise: &[f32],
        actions: &mut [f32],
    ) -> Result<()> {
        check_len("policy", policy.len(), "the policy", self.policy.end())?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows * self.obs_dim)?;
        check_len("actions", actions.len(), "rows * act_dim", rows * self.act_dim)?;
        self.check_noise(noise, rows)?;
        Arch::new().dispatch(Choose { learner: self, policy, obs, noise, actions });
        Ok(())
    }
}

/// The arguments of [`ContinuousLearner::act`].
struct Choose<'a> {
    learner: &'a mut ContinuousLearner,
    policy: &'a [f32],
    obs: &'a [f32],
    noise: &'a [f32],
    actions: &'a mut [f32],
}

impl WithSimd for Choose<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { learner, policy, obs, noise, actions } = self;
        let (obs_dim, act_dim) = (learner.obs_dim, learner.act_dim);
        let rows = actions.len() / act_dim;
        if rows <= FEW_ROWS {
            forward_few(simd, &learner.policy, policy, obs, rows, &mut learner.policy_block);
            learner.make_actions(noise, rows);
            return actions.copy_from_slice(&learner.actions[..actions.len()]);
        }
        learner.packed_policy.load(&learner.policy, policy);
        for (i, actions) in actions.chunks_mut(BLOCK_ROWS * act_dim).enumerate() {
            let (first, rows) = (i * BLOCK_ROWS, actions.len() / act_dim);
            let noise = part(noise, first, rows, act_dim);
            learner.choose(simd, part(obs, first, rows, obs_dim), noise, rows, Hidden::Overwritten);
            actions.copy_from_slice(&learner.actions[..actions.len()]);
        }
    }
}
