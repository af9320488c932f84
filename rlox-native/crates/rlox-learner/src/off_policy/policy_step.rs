//! The step of the policy of continuous actions.

use pulp::{Simd, WithSimd};

use super::continuous::{Cloning, ContinuousLearner, PolicyStep, PolicyTerms};
use super::squashed::Actor;
use super::{mean_of, part};
use crate::Real;
use crate::linalg::BLOCK_ROWS;
use crate::optimizer::Moments;
use crate::passes::{Gradients, backward, load_each};
use crate::runs::Hidden;

/// The arguments of [`ContinuousLearner::step_policy`].
pub(super) struct Policy<'a, 'm, F> {
    pub(super) learner: &'a mut ContinuousLearner<F>,
    pub(super) parameters: &'a mut [F],
    pub(super) critics: &'a [F],
    pub(super) moments: &'a mut Moments<'m, F>,
    pub(super) obs: &'a [F],
    pub(super) noise: &'a [F],
    pub(super) step: PolicyStep<'a, F>,
}

impl<F: Real> WithSimd for Policy<'_, '_, F> {
    type Output = PolicyTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> PolicyTerms {
        let ContinuousLearner {
            obs_dim, policy, packed_policy, policy_block, critics, online, ..
        } = &mut *self.learner;
        let n = self.obs.len() / *obs_dim;
        let (own, of_critics) = (&*self.parameters, self.critics);
        let mut loads: Vec<_> = online.loads(critics, of_critics).collect();
        // In the middle, so that a thread copies the critics that it evaluates then.
        loads.insert(loads.len() / 2, (packed_policy, &*policy, own));
        load_each(policy.helpers(n), loads);
        policy_block.clear_gradients();
        let value_weight = match self.step.cloning {
            Some(cloning) => cloning.alpha / self.mean_size(simd, n),
            None => 1.0,
        };
        let mut sums = PolicyTerms::default();
        for first in (0..n).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(n - first), n, value_weight);
            sums.loss += terms.loss;
            sums.entropy += terms.entropy;
        }
        let ContinuousLearner { policy, policy_block, policy_factor, .. } = &mut *self.learner;
        let (helpers, gradients) = (policy.helpers(n), policy_block.gradients(policy));
        let rule = self.step.rule;
        *policy_factor = rule.step(simd, helpers, gradients, self.parameters, self.moments);
        PolicyTerms { loss: mean_of(sums.loss, n), entropy: mean_of(sums.entropy, n) }
    }
}

impl<F: Real> Policy<'_, '_, F> {
    /// Chooses the actions of `rows` rows from `first` on and judges them; returns how many critics
    /// did.
    #[inline(always)]
    fn judge<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> usize {
        let Self { learner, .. } = self;
        let (obs_dim, act_dim) = (learner.obs_dim, learner.act_dim);
        let obs = part(self.obs, first, rows, obs_dim);
        learner.choose(simd, obs, part(self.noise, first, rows, act_dim), rows, Hidden::Kept);
        let ContinuousLearner { actor, critics, online, actions, .. } = &mut **learner;
        let used = if *actor == Actor::Deterministic { 1 } else { critics.len() };
        online.forward(simd, critics, 0..used, obs, &actions[..rows * act_dim], rows);
        used
    }

    /// The mean of the sizes of the values of all `n` rows.
    #[inline(always)]
    fn mean_size<S: Simd>(&mut self, simd: S, n: usize) -> f64 {
        let mut sum = 0.0;
        for first in (0..n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(n - first);
            let used = self.judge(simd, first, rows);
            let ContinuousLearner { critics, online, .. } = &*self.learner;
            sum +=
                (0..rows).map(|r| online.smallest(&critics[..used], r).abs().widen()).sum::<f64>();
        }
        mean_of(sum, n)
    }

    /// Gathers the gradients of `rows` of `n` rows from `first` on; returns sums over them.
    #[inline(always)]
    fn block<S: Simd>(
        &mut self,
        simd: S,
        first: usize,
        rows: usize,
        n: usize,
        value_weight: f64,
    ) -> PolicyTerms {
        let used = self.judge(simd, first, rows);
        let Self { learner, step: PolicyStep { alpha, cloning, .. }, .. } = self;
        let (obs_dim, act_dim, actor) = (learner.obs_dim, learner.act_dim, learner.actor);
        let obs = part(self.obs, first, rows, obs_dim);
        let noise = part(self.noise, first, rows, act_dim);
        let ContinuousLearner {
            policy,
            packed_policy,
            policy_block,
            critics,
            online,
            actions,
            action_gradients,
            log_probs,
            ..
        } = &mut **learner;
        let critics = &critics[..used];
        let actions = &actions[..rows * act_dim];
        let share = F::of(mean_of(1.0, n));
        let mut sums = PolicyTerms::default();
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let value = online.smallest(critics, r);
            // Equal values share the gradient, as in torch; so do all if one is NaN.
            let larger = (0..used).filter(|&k| online.value(critics, k, r) > value).count();
            let gradient = -share * F::of(value_weight) / count(used - larger);
            for k in 0..used {
                let passes = if online.value(critics, k, r) > value { F::zero() } else { gradient };
                online.set_gradient(critics, k, r, passes);
            }
            sums.loss += *alpha * log_prob.widen() - value_weight * value.widen();
            sums.entropy -= log_prob.widen();
        }
        let of_actions = &mut action_gradients[..rows * act_dim];
        of_actions.fill(F::zero());
        online.backward_to_actions(simd, critics, used, rows, of_actions);
        if let Some(Cloning { actions: wanted, .. }) = cloning {
            let wanted = part(wanted, first, rows, act_dim);
            sums.loss +=
                add_distances(actions, wanted, n * act_dim, of_actions) * mean_of(1.0, act_dim);
        }
        let of_log_prob = F::of(*alpha) * share;
        let (stride, n_outputs) = (policy.output_stride(), actor.n_outputs(act_dim));
        for r in 0..rows {
            let (outputs, gradients) = policy_block.output_and_gradient(r * stride, n_outputs);
            let noise = part(noise, r, 1, act_dim);
            let of_action = &of_actions[r * act_dim..][..act_dim];
            let action = &actions[r * act_dim..][..act_dim];
            actor.differentiate(outputs, noise, action, of_action, of_log_prob, gradients);
        }
        backward(simd, policy, packed_policy, obs, rows, policy_block, Gradients::Parameters);
        sums
    }
}

/// Adds the gradients of the mean of `n` squared distances to `gradients`; returns the sum of those
/// that are here.
#[inline(always)]
fn add_distances<F: Real>(actions: &[F], wanted: &[F], n: usize, gradients: &mut [F]) -> f64 {
    let slope = F::of(mean_of(2.0, n));
    let mut sum = 0.0;
    for ((&action, &wanted), gradient) in actions.iter().zip(wanted).zip(gradients) {
        let distance = action - wanted;
        *gradient = *gradient + slope * distance;
        sum += (distance * distance).widen();
    }
    sum
}

#[expect(clippy::cast_precision_loss, reason = "critics are few")]
fn count<F: Real>(n: usize) -> F {
    F::of(n as f64)
}
