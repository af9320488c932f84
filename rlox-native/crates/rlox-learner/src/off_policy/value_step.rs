//! The step of the critics of continuous actions.

use pulp::{Simd, WithSimd};

use super::continuous::{ContinuousLearner, ValueStep};
use super::{Transitions, ValueTerms, mean_of, part};
use crate::Real;
use crate::linalg::BLOCK_ROWS;
use crate::optimizer::Moments;
use crate::passes::{load_each, loads};
use crate::runs::Hidden;

/// The arguments of [`ContinuousLearner::step_values`].
pub(super) struct Values<'a, 'm, F> {
    pub(super) learner: &'a mut ContinuousLearner<F>,
    pub(super) parameters: &'a mut [F],
    pub(super) target: &'a [F],
    pub(super) policy: &'a [F],
    pub(super) moments: &'a mut Moments<'m, F>,
    pub(super) batch: Transitions<'a, F>,
    pub(super) actions: &'a [F],
    pub(super) noise: &'a [F],
    pub(super) step: ValueStep,
    pub(super) errors: &'a mut [F],
}

impl<F: Real> WithSimd for Values<'_, '_, F> {
    type Output = ValueTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> ValueTerms {
        let ContinuousLearner { policy, packed_policy, critics, online, target, .. } =
            &mut *self.learner;
        let n = self.batch.len();
        let (own, of_target) = (&*self.parameters, self.target);
        let of_policy = [(packed_policy, &*policy, self.policy)];
        let of_critics = online.loads(critics, own).chain(loads(target, &*critics, of_target));
        load_each(policy.helpers(n), of_policy.into_iter().chain(of_critics));
        if self.step.penalty_weight == 0.0 {
            online.clear_gradients();
        } else {
            online.scale_gradients(F::of(self.step.penalty_weight));
        }
        self.learner.penalized = false;
        let mut sums = ValueTerms::default();
        for first in (0..n).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(n - first));
            sums.loss += terms.loss;
            sums.value += terms.value;
        }
        let ContinuousLearner { policy, critics, online, critic_factor, .. } = &mut *self.learner;
        let (helpers, gradients) = (policy.helpers(n), online.gradients(critics));
        let rule = self.step.rule;
        *critic_factor = rule.step(simd, helpers, gradients, self.parameters, self.moments);
        ValueTerms { loss: mean_of(sums.loss, n), value: mean_of(sums.value, n * critics.len()) }
    }
}

impl<F: Real> Values<'_, '_, F> {
    /// Gathers the gradients of `rows` rows from `first` on; returns sums over them.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> ValueTerms {
        let Self { learner, batch, step, .. } = self;
        let (obs_dim, act_dim, n) = (learner.obs_dim, learner.act_dim, batch.len());
        let next_obs = part(batch.next_obs, first, rows, obs_dim);
        learner.choose(
            simd,
            next_obs,
            part(self.noise, first, rows, act_dim),
            rows,
            Hidden::Overwritten,
        );
        let ContinuousLearner { critics, online, target, actions, log_probs, .. } = &mut **learner;
        let n_critics = critics.len();
        let next_actions = &actions[..rows * act_dim];
        online.forward_target(simd, critics, target, next_obs, next_actions, rows);
        let alpha = F::of(step.alpha);
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let next_value = online.smallest(critics, r) - alpha * log_prob;
            let row = first + r;
            self.errors[row] = batch.rewards[row] + batch.discounts[row] * next_value;
        }
        let (obs, actions) =
            (part(batch.obs, first, rows, obs_dim), part(self.actions, first, rows, act_dim));
        online.forward(simd, critics, 0..n_critics, obs, actions, rows);
        let scale = F::of(step.scale);
        let slope = F::of(mean_of(2.0 * step.scale, n));
        let mut sums = ValueTerms::default();
        for r in 0..rows {
            let row = first + r;
            let expected = self.errors[row];
            let weight = batch.weight(row);
            for k in 0..n_critics {
                let value = online.value(critics, k, r);
                let error = value - expected;
                self.errors[k * n + row] = error;
                online.set_gradient(critics, k, r, weight * error * slope);
                sums.loss += (scale * weight * error * error).widen();
                sums.value += value.widen();
            }
        }
        online.backward(simd, critics, 0..n_critics, rows);
        sums
    }
}
