//! Actor-critics of continuous actions: the steps of SAC, TD3 and DDPG.

use pulp::{Arch, Simd, WithSimd};

use super::super::Real;
use super::super::actor_critic::check_width;
use super::super::layer::Layer;
use super::super::network::{BLOCK_ROWS, Gradients, Network, Packed, Workspace, backward, forward};
use super::super::optimizer::Moments;
use super::critics::{Critics, ensemble};
pub use super::squashed::Actor;
use super::{StepRule, Transitions, ValueTerms, mean_of};
use crate::error::{Result, check_len};

/// How critics learn.
#[derive(Debug, Clone, Copy)]
pub struct ValueStep {
    /// Temperature α of the next actions' entropy in the targets; 0 for none.
    pub alpha: f64,
    /// What a squared TD error counts in the loss.
    pub scale: f64,
    /// How parameters move.
    pub rule: StepRule,
}

/// What a gradient step of a policy reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PolicyTerms {
    /// The loss.
    pub loss: f64,
    /// The mean of -log π; 0 for a deterministic policy.
    pub entropy: f64,
}

/// Takes gradient steps on the parameters of a policy and of its critics, MLPs with `ReLU`.
///
/// The policy's parameters lie as in `rlox.nn.ReluMLP`, the critics' as in `rlox.nn.EnsembleMLP`.
/// The learner owns nothing but working memory: parameters and moments are the caller's.
#[derive(Debug)]
pub struct ContinuousLearner<F> {
    obs_dim: usize,
    act_dim: usize,
    actor: Actor,
    policy: Network,
    critics: Vec<Network>,
    n_critic_parameters: usize,
    packed_policy: Packed<F>,
    policy_block: Workspace<F>,
    online: Critics<F>,
    target: Critics<F>,
    /// [`BLOCK_ROWS`] × `act_dim`.
    actions: Vec<F>,
    action_gradients: Vec<F>,
    /// [`BLOCK_ROWS`].
    log_probs: Vec<F>,
    policy_gradients: Vec<F>,
    critic_gradients: Vec<F>,
}

impl<F: Real> ContinuousLearner<F> {
    /// A learner of networks with hidden layers of these sizes.
    ///
    /// # Errors
    /// [`KernelError::Range`](crate::KernelError::Range) for a size outside `[1, 16384]`.
    pub fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: &[usize],
        actor: Actor,
        n_critics: usize,
    ) -> Result<Self> {
        for (name, width) in [("obs_dim", obs_dim), ("act_dim", act_dim), ("critics", n_critics)] {
            check_width(name, width)?;
        }
        hidden.iter().try_for_each(|&width| check_width("hidden", width))?;
        let sizes = [&[obs_dim], hidden, &[actor.n_outputs(act_dim)]].concat();
        let policy = Network::relu(Layer::linear(&sizes, 0));
        let critics = ensemble(&[&[obs_dim + act_dim], hidden, &[1]].concat(), n_critics);
        let n_critic_parameters = critics.last().map_or(0, Network::end);
        let zeros = |n: usize| vec![F::zero(); n];
        Ok(Self {
            obs_dim,
            act_dim,
            actor,
            n_critic_parameters,
            packed_policy: Packed::new(&policy),
            policy_block: Workspace::new(&policy),
            online: Critics::new(&critics, true),
            target: Critics::new(&critics, false),
            actions: zeros(BLOCK_ROWS * act_dim),
            action_gradients: zeros(BLOCK_ROWS * act_dim),
            log_probs: zeros(BLOCK_ROWS),
            policy_gradients: zeros(policy.end()),
            critic_gradients: zeros(n_critic_parameters),
            policy,
            critics,
        })
    }

    /// How many parameters the policy has.
    #[must_use]
    pub fn n_policy_parameters(&self) -> usize {
        self.policy.end()
    }

    /// How many parameters the critics have.
    #[must_use]
    pub fn n_critic_parameters(&self) -> usize {
        self.n_critic_parameters
    }

    /// The clipped gradient of the last step of the policy.
    #[must_use]
    pub fn policy_gradients(&self) -> &[F] {
        &self.policy_gradients
    }

    /// The clipped gradient of the last step of the critics.
    #[must_use]
    pub fn critic_gradients(&self) -> &[F] {
        &self.critic_gradients
    }

    /// Takes one step of the critics `parameters`; writes their TD errors, K × B, to `errors`.
    ///
    /// `policy` chooses the next actions with `noise`, B × `act_dim` or empty, and `target` judges
    /// them.
    ///
    /// # Errors
    /// [`KernelError`](crate::KernelError) for a length that does not fit and constants out of
    /// range; nothing has changed then.
    #[expect(clippy::too_many_arguments, reason = "what a gradient step takes and gives")]
    pub fn step_values(
        &mut self,
        parameters: &mut [F],
        target: &[F],
        policy: &[F],
        moments: &mut Moments<'_, F>,
        batch: Transitions<'_, F>,
        actions: &[F],
        noise: &[F],
        step: ValueStep,
        errors: &mut [F],
    ) -> Result<ValueTerms> {
        check_len("critics", parameters.len(), "the critics", self.n_critic_parameters)?;
        check_len("target", target.len(), "the critics", self.n_critic_parameters)?;
        check_len("policy", policy.len(), "the policy", self.policy.end())?;
        step.rule.check(moments, self.n_critic_parameters)?;
        batch.check(self.obs_dim)?;
        let rows = batch.len();
        check_len("actions", actions.len(), "rewards * act_dim", rows * self.act_dim)?;
        self.check_noise(noise, rows)?;
        check_len("errors", errors.len(), "critics * rewards", rows * self.critics.len())?;
        let learner = self;
        let call = Values {
            learner,
            parameters,
            target,
            policy,
            moments,
            batch,
            actions,
            noise,
            step,
            errors,
        };
        Ok(Arch::new().dispatch(call))
    }

    /// Takes one step of the policy `parameters` up the values of its actions.
    ///
    /// Its loss is the mean of `alpha` log π(a|s) - min over k of `Q_k(s, a)` for a Gaussian, and of
    /// `-Q_1(s, μ(s))` for a deterministic one.
    ///
    /// # Errors
    /// As [`ContinuousLearner::step_values`].
    #[expect(clippy::too_many_arguments, reason = "what a gradient step takes and gives")]
    pub fn step_policy(
        &mut self,
        parameters: &mut [F],
        critics: &[F],
        moments: &mut Moments<'_, F>,
        obs: &[F],
        noise: &[F],
        alpha: f64,
        rule: StepRule,
    ) -> Result<PolicyTerms> {
        check_len("policy", parameters.len(), "the policy", self.policy.end())?;
        check_len("critics", critics.len(), "the critics", self.n_critic_parameters)?;
        rule.check(moments, self.policy.end())?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows.max(1) * self.obs_dim)?;
        self.check_noise(noise, rows)?;
        let learner = self;
        Ok(Arch::new().dispatch(Policy {
            learner,
            parameters,
            critics,
            moments,
            obs,
            noise,
            alpha,
            rule,
        }))
    }

    fn check_noise(&self, noise: &[F], rows: usize) -> Result<()> {
        let none = noise.is_empty() && self.actor == Actor::Deterministic;
        let expected = if none { 0 } else { rows * self.act_dim };
        check_len("noise", noise.len(), "rows * act_dim", expected)
    }

    /// Makes actions of a block of observations, with their log-probabilities.
    #[inline(always)]
    fn choose<S: Simd>(&mut self, simd: S, obs: &[F], noise: &[F], rows: usize) {
        let Self { policy, packed_policy, policy_block, act_dim, .. } = self;
        forward(simd, policy, packed_policy, obs, rows, policy_block);
        let outputs = policy_block.output().chunks_exact(policy.output_stride()).take(rows);
        let n_outputs = self.actor.n_outputs(*act_dim);
        let mut noise = noise.chunks_exact(*act_dim);
        let results = self.actions.chunks_exact_mut(*act_dim).zip(&mut self.log_probs);
        for (outputs, (action, log_prob)) in outputs.zip(results) {
            let noise = noise.next().unwrap_or(&[]);
            *log_prob = self.actor.act(&outputs[..n_outputs], noise, action);
        }
    }
}

/// The part of rows of `width` elements, or nothing of nothing.
fn part<F>(values: &[F], first: usize, rows: usize, width: usize) -> &[F] {
    if values.is_empty() { values } else { &values[first * width..][..rows * width] }
}

/// The arguments of [`ContinuousLearner::step_values`].
struct Values<'a, 'm, F> {
    learner: &'a mut ContinuousLearner<F>,
    parameters: &'a mut [F],
    target: &'a [F],
    policy: &'a [F],
    moments: &'a mut Moments<'m, F>,
    batch: Transitions<'a, F>,
    actions: &'a [F],
    noise: &'a [F],
    step: ValueStep,
    errors: &'a mut [F],
}

impl<F: Real> WithSimd for Values<'_, '_, F> {
    type Output = ValueTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> ValueTerms {
        let ContinuousLearner { policy, packed_policy, critics, online, target, .. } =
            &mut *self.learner;
        packed_policy.load(policy, self.policy);
        online.load(critics, self.parameters);
        target.load(critics, self.target);
        online.clear_gradients();
        let mut sums = ValueTerms::default();
        let n = self.batch.len();
        for first in (0..n).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(n - first));
            sums.loss += terms.loss;
            sums.value += terms.value;
        }
        let ContinuousLearner { critics, online, critic_gradients, .. } = &mut *self.learner;
        critic_gradients.fill(F::zero());
        online.add_gradients(critics, critic_gradients);
        self.step.rule.step(self.parameters, critic_gradients, self.moments);
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
        learner.choose(simd, next_obs, part(self.noise, first, rows, act_dim), rows);
        let ContinuousLearner { critics, online, target, actions, log_probs, .. } = &mut **learner;
        let n_critics = critics.len();
        let next_actions = &actions[..rows * act_dim];
        target.forward(simd, critics, n_critics, next_obs, next_actions, rows);
        let (obs, actions) =
            (part(batch.obs, first, rows, obs_dim), part(self.actions, first, rows, act_dim));
        online.forward(simd, critics, n_critics, obs, actions, rows);
        let (alpha, scale) = (F::of(step.alpha), F::of(step.scale));
        let slope = F::of(mean_of(2.0 * step.scale, n));
        let mut sums = ValueTerms::default();
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let row = first + r;
            let next_value = target.smallest(critics, r) - alpha * log_prob;
            let expected = batch.rewards[row] + batch.discounts[row] * next_value;
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
        online.backward(simd, critics, rows);
        sums
    }
}

/// The arguments of [`ContinuousLearner::step_policy`].
struct Policy<'a, 'm, F> {
    learner: &'a mut ContinuousLearner<F>,
    parameters: &'a mut [F],
    critics: &'a [F],
    moments: &'a mut Moments<'m, F>,
    obs: &'a [F],
    noise: &'a [F],
    alpha: f64,
    rule: StepRule,
}

impl<F: Real> WithSimd for Policy<'_, '_, F> {
    type Output = PolicyTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> PolicyTerms {
        let ContinuousLearner { policy, packed_policy, policy_block, critics, online, .. } =
            &mut *self.learner;
        packed_policy.load(policy, self.parameters);
        online.load(critics, self.critics);
        policy_block.clear_gradients();
        let n = self.obs.len() / self.learner.obs_dim;
        let mut sums = PolicyTerms::default();
        for first in (0..n).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(n - first), n);
            sums.loss += terms.loss;
            sums.entropy += terms.entropy;
        }
        let ContinuousLearner { policy, policy_block, policy_gradients, .. } = &mut *self.learner;
        policy_gradients.fill(F::zero());
        policy_block.add_gradients(policy, policy_gradients);
        self.rule.step(self.parameters, policy_gradients, self.moments);
        PolicyTerms { loss: mean_of(sums.loss, n), entropy: mean_of(sums.entropy, n) }
    }
}

impl<F: Real> Policy<'_, '_, F> {
    /// Gathers the gradients of `rows` of `n` rows from `first` on; returns sums over them.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, first: usize, rows: usize, n: usize) -> PolicyTerms {
        let Self { learner, alpha, .. } = self;
        let (obs_dim, act_dim, actor) = (learner.obs_dim, learner.act_dim, learner.actor);
        let obs = part(self.obs, first, rows, obs_dim);
        let noise = part(self.noise, first, rows, act_dim);
        learner.choose(simd, obs, noise, rows);
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
        let used = if actor == Actor::Deterministic { 1 } else { critics.len() };
        let critics = &critics[..used];
        let actions = &actions[..rows * act_dim];
        online.forward(simd, critics, used, obs, actions, rows);
        let share = F::of(mean_of(1.0, n));
        let mut sums = PolicyTerms::default();
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let value = online.smallest(critics, r);
            // Equal values share the gradient, as in torch.
            let equal = |k: &usize| online.value(critics, *k, r) == value;
            let n_equal = (0..used).filter(equal).count().max(1);
            for k in 0..used {
                let chosen = online.value(critics, k, r) == value;
                let gradient = if chosen { -share / count(n_equal) } else { F::zero() };
                online.set_gradient(critics, k, r, gradient);
            }
            sums.loss += *alpha * log_prob.widen() - value.widen();
            sums.entropy -= log_prob.widen();
        }
        let of_actions = &mut action_gradients[..rows * act_dim];
        of_actions.fill(F::zero());
        online.backward_to_actions(simd, critics, used, rows, of_actions);
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

#[expect(clippy::cast_precision_loss, reason = "critics are few")]
fn count<F: Real>(n: usize) -> F {
    F::of(n as f64)
}
