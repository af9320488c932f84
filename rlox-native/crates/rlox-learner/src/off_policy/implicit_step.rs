//! One gradient step of implicit Q-learning.

use pulp::{Simd, WithSimd};

use super::implicit::{ImplicitLearner, ImplicitLosses, ImplicitParts, ImplicitTerms, Learnt};
use super::squashed::clip;
use super::{Transitions, mean_of, part};
use crate::Real;
use crate::distribution::gaussian_log_prob;
use crate::linalg::{BLOCK_ROWS, Gathered};
use crate::network::Network;
use crate::passes::{Gradients, backward, forward, load_each, loads};
use crate::runs::Hidden;

/// The arguments of [`ImplicitLearner::step`].
pub(super) struct Step<'a, 'm, F> {
    pub(super) learner: &'a mut ImplicitLearner<F>,
    pub(super) parts: ImplicitParts<'m, F>,
    pub(super) target: &'a [F],
    pub(super) batch: Transitions<'a, F>,
    pub(super) actions: &'a [F],
    pub(super) losses: ImplicitLosses,
}

impl<F: Real> WithSimd for Step<'_, '_, F> {
    type Output = ImplicitTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> ImplicitTerms {
        let n = self.batch.len();
        let blocks = || (0..n).step_by(BLOCK_ROWS).map(|first| (first, BLOCK_ROWS.min(n - first)));
        let mut sums = ImplicitTerms::default();
        self.begin();
        for (first, rows) in blocks() {
            sums.value_loss += self.regress_value(simd, first, rows);
        }
        let learner = &mut *self.learner;
        let helpers = learner.policy.helpers(n);
        let of_value = learner.value_block.gradients(&learner.value);
        learner.factors[0] = step(simd, helpers, of_value, &mut self.parts.value);
        // Policy and critics see the new value.
        learner.packed_value.load(&learner.value, self.parts.value.parameters);
        for (first, rows) in blocks() {
            self.extract_policy(simd, first, rows, &mut sums);
            self.regress_critics(simd, first, rows, &mut sums);
        }
        let learner = &mut *self.learner;
        learner.factors[1] =
            step(simd, helpers, learner.policy_gradients(), &mut self.parts.policy);
        let of_critics = learner.online.gradients(&learner.critics);
        learner.factors[2] = step(simd, helpers, of_critics, &mut self.parts.critics);
        ImplicitTerms {
            value_loss: mean_of(sums.value_loss, n),
            q_loss: mean_of(sums.q_loss, n),
            policy_loss: mean_of(sums.policy_loss, n),
            q_value: mean_of(sums.q_value, n * learner.critics.len()),
            weight: mean_of(sums.weight, n),
        }
    }
}

#[inline(always)]
fn step<'a, F: Real, S: Simd>(
    simd: S,
    helpers: usize,
    gradients: impl Iterator<Item = Gathered<'a, F>>,
    learnt: &mut Learnt<'_, F>,
) -> F {
    learnt.rule.step(simd, helpers, gradients, learnt.parameters, &mut learnt.moments)
}

impl<F: Real> Step<'_, '_, F> {
    #[inline(always)]
    fn begin(&mut self) {
        let Self { learner, parts, target, .. } = self;
        let learner = &mut **learner;
        let ImplicitLearner { value, policy, critics, packed_value, packed_policy, .. } = learner;
        let values_and_policy: [(_, &Network, &[F]); 2] = [
            (packed_value, value, parts.value.parameters),
            (packed_policy, policy, parts.policy.parameters),
        ];
        let of_critics = learner.online.loads(critics, parts.critics.parameters);
        let of_targets = loads(&mut learner.target, &*critics, target);
        let loads = values_and_policy.into_iter().chain(of_critics).chain(of_targets);
        load_each(policy.helpers(self.batch.len()), loads);
        learner.value_block.clear_gradients();
        learner.policy_block.clear_gradients();
        learner.online.clear_gradients();
        learner.log_std_gradients.fill(F::zero());
    }

    /// Gathers the gradients of the expectile loss (equation 5); returns its sum over the rows.
    #[inline(always)]
    fn regress_value<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> f64 {
        let ImplicitLearner {
            obs_dim,
            act_dim,
            value,
            critics,
            packed_value,
            value_block,
            online,
            target,
            smallest,
            ..
        } = &mut *self.learner;
        let obs = part(self.batch.obs, first, rows, *obs_dim);
        let actions = part(self.actions, first, rows, *act_dim);
        online.forward_target(simd, critics, target, obs, actions, rows);
        forward(simd, value, packed_value, obs, rows, value_block, Hidden::Kept);
        let expectile = F::of(self.losses.expectile);
        let slope = F::of(mean_of(-2.0, self.batch.len()));
        let stride = value.output_stride();
        let mut sum = 0.0;
        for (r, smallest) in smallest[first..][..rows].iter_mut().enumerate() {
            *smallest = online.smallest(critics, r);
            let (output, gradient) = value_block.output_and_gradient(r * stride, 1);
            let difference = *smallest - output[0];
            let weight = if difference < F::zero() { F::one() - expectile } else { expectile };
            gradient[0] = slope * weight * difference;
            sum += (weight * difference * difference).widen();
        }
        backward(simd, value, packed_value, obs, rows, value_block, Gradients::Parameters);
        sum
    }

    /// Gathers the gradients of the weighted log-likelihood (equation 7).
    #[inline(always)]
    fn extract_policy<S: Simd>(
        &mut self,
        simd: S,
        first: usize,
        rows: usize,
        sums: &mut ImplicitTerms,
    ) {
        let Self { learner, parts, batch, losses, .. } = self;
        let ImplicitLearner {
            obs_dim,
            act_dim,
            log_std_bounds,
            value,
            policy,
            packed_value,
            packed_policy,
            value_block,
            policy_block,
            log_std_gradients,
            smallest,
            ..
        } = &mut **learner;
        let obs = part(batch.obs, first, rows, *obs_dim);
        forward(simd, value, packed_value, obs, rows, value_block, Hidden::Overwritten);
        forward(simd, policy, packed_policy, obs, rows, policy_block, Hidden::Kept);
        let values = value_block.output().chunks_exact(value.output_stride());
        let actions = part(self.actions, first, rows, *act_dim).chunks_exact(*act_dim);
        let targets = &smallest[first..][..rows];
        let [low, high] = log_std_bounds.map(F::of);
        let (temperature, max_weight) = (F::of(losses.temperature), F::of(losses.max_weight));
        let share = F::of(mean_of(1.0, batch.len()));
        let log_stds = &parts.policy.parameters[..*act_dim];
        for (r, ((action, value), &target)) in actions.zip(values).zip(targets).enumerate() {
            let weight = (temperature * (target - value[0])).exp();
            // Not `min`, which would hide NaN.
            let weight = if weight > max_weight { max_weight } else { weight };
            let at = r * policy.output_stride();
            let (outputs, gradients) = policy_block.output_and_gradient(at, *act_dim);
            let mut log_prob = F::zero();
            for (i, (&action, &raw)) in action.iter().zip(log_stds).enumerate() {
                let log_std = clip(raw, low, high);
                let (mean, inverse_std) = (outputs[i].tanh(), (-log_std).exp());
                let z = (action - mean) * inverse_std;
                log_prob = log_prob + gaussian_log_prob(z, log_std);
                gradients[i] = -share * weight * z * inverse_std * (F::one() - mean * mean);
                if raw == log_std {
                    log_std_gradients[i] =
                        log_std_gradients[i] - share * weight * (z * z - F::one());
                }
            }
            sums.policy_loss -= (weight * log_prob).widen();
            sums.weight += weight.widen();
        }
        backward(simd, policy, packed_policy, obs, rows, policy_block, Gradients::Parameters);
    }

    /// Gathers the gradients of the critics' squared errors (equation 6).
    #[inline(always)]
    fn regress_critics<S: Simd>(
        &mut self,
        simd: S,
        first: usize,
        rows: usize,
        sums: &mut ImplicitTerms,
    ) {
        let Self { learner, batch, .. } = self;
        let ImplicitLearner {
            obs_dim,
            act_dim,
            value,
            critics,
            packed_value,
            value_block,
            online,
            ..
        } = &mut **learner;
        let next_obs = part(batch.next_obs, first, rows, *obs_dim);
        forward(simd, value, packed_value, next_obs, rows, value_block, Hidden::Overwritten);
        let obs = part(batch.obs, first, rows, *obs_dim);
        let actions = part(self.actions, first, rows, *act_dim);
        online.forward(simd, critics, 0..critics.len(), obs, actions, rows);
        let slope = F::of(mean_of(2.0, batch.len()));
        let next_values = value_block.output().chunks_exact(value.output_stride());
        for (r, next_value) in next_values.enumerate().take(rows) {
            let row = first + r;
            let expected = batch.rewards[row] + batch.discounts[row] * next_value[0];
            let weight = batch.weight(row);
            for k in 0..critics.len() {
                let value = online.value(critics, k, r);
                let error = value - expected;
                online.set_gradient(critics, k, r, weight * error * slope);
                sums.q_loss += (weight * error * error).widen();
                sums.q_value += value.widen();
            }
        }
        online.backward(simd, critics, 0..critics.len(), rows);
    }
}
