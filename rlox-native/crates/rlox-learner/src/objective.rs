//! The objectives: each row's part of the loss and its gradient.

use super::Real;
use rlox_kernels::error::{Result, check_range, check_weight};

/// The policy's objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// PPO's clipped surrogate (Schulman et al. 2017, equation 7).
    Clipped {
        /// ε, the range of the probability ratio.
        clip_eps: f64,
        /// The bound of the objective at negative advantages (Ye et al. 2020, equation 5).
        dual_clip: Option<f64>,
        /// The range of the value clip (openai/baselines ppo2).
        vf_clip_eps: Option<f64>,
        /// If set, the value loss of a row is not `(V - G)²` but Huber's, with slope 1 from a
        /// distance of 1 on, bounded by this value, where the gradient vanishes.
        vf_bound: Option<f64>,
    },
    /// `A ln π(a|s)` (Mnih et al. 2016).
    PolicyGradient,
}

/// The loss of a minibatch: `-mean objective + vf_coef mean (V - G)² - ent_coef mean H`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// The policy's objective.
    pub objective: Objective,
    /// Weight of the value loss, c₁.
    pub vf_coef: f64,
    /// Weight of the entropy bonus, c₂.
    pub ent_coef: f64,
    /// Whether advantages are standardised over each minibatch.
    pub normalize_advantages: bool,
}

impl Loss {
    pub(super) fn check(&self) -> Result<()> {
        check_weight("vf_coef", self.vf_coef)?;
        check_weight("ent_coef", self.ent_coef)?;
        let Objective::Clipped { clip_eps, dual_clip, vf_clip_eps, vf_bound } = self.objective
        else {
            return Ok(());
        };
        check_weight("clip_eps", clip_eps)?;
        // Below 1 it would bound the objective even at a ratio of 1.
        dual_clip.map_or(Ok(()), |c| check_range("dual_clip", c, 1.0, f64::INFINITY))?;
        vf_bound.map_or(Ok(()), |bound| check_range("vf_bound", bound, 0.0, f64::INFINITY))?;
        vf_clip_eps.map_or(Ok(()), |range| check_range("vf_clip_eps", range, 0.0, f64::INFINITY))
    }
}

/// Metrics of a minibatch, means over its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// The policy's part of the loss.
    pub policy_loss: f64,
    /// The value's unweighted part of the loss.
    pub value_loss: f64,
    /// In nats.
    pub entropy: f64,
    /// Schulman's k3 estimate of KL(old policy, policy), in nats.
    pub approx_kl: f64,
    /// Share of rows whose ratio lay outside the clip range.
    pub clip_fraction: f64,
}

impl Terms {
    /// The terms as an array, in the order of the fields.
    #[must_use]
    pub fn to_array(self) -> [f64; 5] {
        [self.policy_loss, self.value_loss, self.entropy, self.approx_kl, self.clip_fraction]
    }

    pub(super) fn map2(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            policy_loss: f(self.policy_loss, other.policy_loss),
            value_loss: f(self.value_loss, other.value_loss),
            entropy: f(self.entropy, other.entropy),
            approx_kl: f(self.approx_kl, other.approx_kl),
            clip_fraction: f(self.clip_fraction, other.clip_fraction),
        }
    }
}

/// Inputs of the loss for one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<F> {
    /// ln π(a|s) minus its value at the time of acting.
    pub(super) log_ratio: F,
    /// Its exponential.
    pub(super) ratio: F,
    pub(super) log_prob: F,
    pub(super) entropy: F,
    pub(super) value: F,
    pub(super) old_value: F,
    pub(super) advantage: F,
    /// G.
    pub(super) target: F,
}

impl Objective {
    /// The row's terms, the derivative of its policy loss by ln π and that of its value loss by V.
    #[inline(always)]
    pub(super) fn row<F: Real>(&self, row: Row<F>) -> (Terms, F, F) {
        let error = row.value - row.target;
        let mut terms = Terms {
            value_loss: (error * error).widen(),
            entropy: row.entropy.widen(),
            ..Terms::default()
        };
        let mut value_gradient = error + error;
        let Self::Clipped { clip_eps, dual_clip, vf_clip_eps, vf_bound } = *self else {
            terms.policy_loss = -(row.advantage * row.log_prob).widen();
            return (terms, -row.advantage, value_gradient);
        };
        let clipped_ratio = row.ratio.max(F::of(1.0 - clip_eps)).min(F::of(1.0 + clip_eps));
        let (plain, clipped) = (row.advantage * row.ratio, row.advantage * clipped_ratio);
        // The gradient flows if the minimum is the unclipped objective.
        let mut follows = plain <= clipped;
        let mut objective = if clipped < plain { clipped } else { plain };
        if let Some(bound) = dual_clip.map(|factor| F::of(factor) * row.advantage)
            && row.advantage < F::zero()
            && objective < bound
        {
            (objective, follows) = (bound, false);
        }
        if let Some(bound) = vf_bound.map(F::of) {
            let (distance, half) = (error.abs(), F::of(0.5));
            let near = distance < F::one();
            let loss = if near { half * error * error } else { distance - half };
            terms.value_loss = loss.min(bound).widen();
            let slope = if near { error } else { error.signum() };
            value_gradient = if loss <= bound { slope } else { F::zero() };
        } else if let Some(range) = vf_clip_eps.map(F::of) {
            let change = row.value - row.old_value;
            let held = row.old_value + change.max(-range).min(range) - row.target;
            // Within the range both errors are equal up to rounding, which must not decide.
            if change.abs() > range && held * held > error * error {
                terms.value_loss = (held * held).widen();
                value_gradient = F::zero();
            }
        }
        terms.policy_loss = -objective.widen();
        terms.approx_kl = (row.ratio - F::one() - row.log_ratio).widen();
        terms.clip_fraction = f64::from(row.ratio != clipped_ratio);
        (terms, if follows { -plain } else { F::zero() }, value_gradient)
    }
}
