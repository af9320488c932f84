//! Actor-critics for continuous actions: the steps of SAC, TD3 and DDPG.

use pulp::{Arch, Simd, WithSimd};

use super::actor::Actor;
use super::critics::{Critics, ensemble};
use super::{Transitions, ValueTerms, check_log_std_bounds, check_sizes, mean_of, part};
use crate::Real;
use crate::linalg::{BLOCK_ROWS, Layer, flatten};
use crate::network::Network;
use crate::optimizer::Learnt;
use crate::passes::{Gradients, Packed, backward, forward, load_each, loads};
use crate::runs::Hidden;
use crate::workspace::Workspace;
use rlox_kernels::error::{Result, check_len, check_weight};

/// Settings of a step of the critics.
#[derive(Debug, Clone, Copy)]
pub struct ValueStep<'a> {
    /// The parameters of the target critics, which evaluate the next actions.
    pub target: &'a [f32],
    /// The parameters of the policy that chooses the next actions.
    pub policy: &'a [f32],
    /// Noise of the next actions, B × `act_dim` or empty.
    pub noise: &'a [f32],
    /// Temperature α of the next actions' entropy in the targets; 0 for none.
    pub alpha: f64,
    /// Weight of a squared TD error in the loss.
    pub scale: f64,
    /// Weight in the loss of the penalties of the last [`ContinuousLearner::penalize`]; 0 for none.
    pub penalty_weight: f64,
}

/// Settings of a step of the policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyStep<'a> {
    /// The critics' parameters.
    pub critics: &'a [f32],
    /// Observations, B × `obs_dim`.
    pub obs: &'a [f32],
    /// Noise of the actions, B × `act_dim` or empty.
    pub noise: &'a [f32],
    /// Temperature α of the entropy; unused for a deterministic policy.
    pub alpha: f64,
    /// An additional term that imitates a dataset.
    pub cloning: Option<Cloning<'a>>,
}

/// The term that keeps a policy near a dataset's actions (Fujimoto and Gu 2021, equations 3 to 5).
#[derive(Debug, Clone, Copy)]
pub struct Cloning<'a> {
    /// The actions, B × `act_dim`.
    pub actions: &'a [f32],
    /// Weight of the values, scaled to a mean size of 1, relative to the mean squared distance.
    pub alpha: f64,
}

/// Metrics of a gradient step of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PolicyTerms {
    /// The loss.
    pub loss: f64,
    /// The mean of -log π; 0 for a deterministic policy.
    pub entropy: f64,
}

/// Takes gradient steps on the parameters of a policy and of its critics, MLPs with `ReLU` or tanh.
///
/// Parameters have the order of `rlox.nn.MLP` for the policy and `rlox.nn.EnsembleMLP` for the
/// critics. The learner owns only working memory: parameters and moments belong to the caller.
#[derive(Debug)]
pub struct ContinuousLearner {
    pub(super) obs_dim: usize,
    pub(super) act_dim: usize,
    pub(super) actor: Actor,
    pub(super) policy: Network,
    pub(super) critics: Vec<Network>,
    pub(super) n_critic_parameters: usize,
    pub(super) packed_policy: Packed<f32>,
    pub(super) policy_block: Workspace<f32>,
    pub(super) online: Critics,
    /// Parameters of the critics' target networks.
    pub(super) target: Vec<Packed<f32>>,
    /// [`BLOCK_ROWS`] × `act_dim`.
    pub(super) actions: Vec<f32>,
    pub(super) action_gradients: Vec<f32>,
    /// [`BLOCK_ROWS`].
    pub(super) log_probs: Vec<f32>,
    /// Clipping factor of the policy's last gradients.
    pub(super) policy_factor: f32,
    /// Clipping factor of the critics' last gradients.
    pub(super) critic_factor: f32,
    /// Whether the critics' gradients come from a penalty.
    pub(super) penalized: bool,
}

impl ContinuousLearner {
    /// A learner of networks with hidden layers of these sizes, the policy's and the critics'.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`,
    /// [`KernelError::Bounds`](rlox_kernels::KernelError::Bounds) for bounds without an interval.
    pub fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: [&[usize]; 2],
        actor: Actor,
        n_critics: usize,
        tanh: bool,
    ) -> Result<Self> {
        let named = [("obs_dim", obs_dim), ("act_dim", act_dim), ("critics", n_critics)];
        check_sizes(&named, &hidden.concat())?;
        if let Actor::SquashedGaussian { log_std_bounds } = actor {
            check_log_std_bounds(log_std_bounds)?;
        }
        let sizes = [&[obs_dim], hidden[0], &[actor.n_outputs(act_dim)]].concat();
        let policy = Network::of(Layer::linear(&sizes, 0), tanh);
        let critics = ensemble(&[&[obs_dim + act_dim], hidden[1], &[1]].concat(), n_critics, tanh);
        let n_critic_parameters = critics.last().map_or(0, Network::end);
        let zeros = |n: usize| vec![0.0; n];
        Ok(Self {
            obs_dim,
            act_dim,
            actor,
            n_critic_parameters,
            packed_policy: Packed::new(&policy),
            policy_block: Workspace::new(&policy),
            online: Critics::new(&critics),
            target: critics.iter().map(Packed::forward_only).collect(),
            actions: zeros(BLOCK_ROWS * act_dim),
            action_gradients: zeros(BLOCK_ROWS * act_dim),
            log_probs: zeros(BLOCK_ROWS),
            policy_factor: 1.0,
            critic_factor: 1.0,
            penalized: false,
            policy,
            critics,
        })
    }

    /// Number of the policy's parameters.
    #[must_use]
    pub fn n_policy_parameters(&self) -> usize {
        self.policy.end()
    }

    /// Number of the critics' parameters.
    #[must_use]
    pub fn n_critic_parameters(&self) -> usize {
        self.n_critic_parameters
    }

    /// The clipped gradient of the last step of the policy.
    #[must_use]
    pub fn policy_gradients(&self) -> Vec<f32> {
        let Self { policy, policy_block, policy_factor, .. } = self;
        flatten(policy_block.gradients(policy), policy.end(), *policy_factor)
    }

    /// The clipped gradient of the last step of the critics.
    #[must_use]
    pub fn critic_gradients(&self) -> Vec<f32> {
        let Self { critics, online, critic_factor, n_critic_parameters, .. } = self;
        flatten(online.gradients(critics), *n_critic_parameters, *critic_factor)
    }

    /// Takes one step of the critics; writes their TD errors, K × B, to `errors`.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit or constants out
    /// of range; nothing changes then.
    pub fn step_values(
        &mut self,
        learnt: Learnt<'_, f32>,
        batch: Transitions<'_>,
        actions: &[f32],
        step: ValueStep<'_>,
        errors: &mut [f32],
    ) -> Result<ValueTerms> {
        let n_parameters = self.n_critic_parameters;
        learnt.check("critics", "the critics", n_parameters)?;
        check_len("target", step.target.len(), "the critics", n_parameters)?;
        check_len("policy", step.policy.len(), "the policy", self.policy.end())?;
        if step.penalty_weight != 0.0 {
            let found = if self.penalized { n_parameters } else { 0 };
            check_len("penalty", found, "critics", n_parameters)?;
        }
        check_weight("alpha", step.alpha)?;
        check_weight("scale", step.scale)?;
        check_weight("penalty_weight", step.penalty_weight)?;
        batch.check(self.obs_dim)?;
        let rows = batch.len();
        check_len("actions", actions.len(), "rewards * act_dim", rows * self.act_dim)?;
        self.check_noise(step.noise, rows)?;
        check_len("errors", errors.len(), "critics * rewards", rows * self.critics.len())?;
        Ok(Arch::new().dispatch(Values { learner: self, learnt, batch, actions, step, errors }))
    }

    /// Takes one step of the policy towards higher values of its actions.
    ///
    /// Its loss is the mean of `alpha` log π(a|s) - min over k of `Q_k(s, a)` for a Gaussian, and
    /// of `-Q_1(s, μ(s))` for a deterministic one. With [`Cloning`] those values are divided by the
    /// mean of their sizes and multiplied by `alpha`, and the mean squared distance from its
    /// actions is added.
    ///
    /// # Errors
    /// As [`ContinuousLearner::step_values`].
    pub fn step_policy(
        &mut self,
        learnt: Learnt<'_, f32>,
        step: PolicyStep<'_>,
    ) -> Result<PolicyTerms> {
        learnt.check("policy", "the policy", self.policy.end())?;
        check_len("critics", step.critics.len(), "the critics", self.n_critic_parameters)?;
        check_weight("alpha", step.alpha)?;
        let rows = step.obs.len() / self.obs_dim;
        check_len("obs", step.obs.len(), "rows * obs_dim", rows.max(1) * self.obs_dim)?;
        self.check_noise(step.noise, rows)?;
        if let Some(cloning) = step.cloning {
            check_weight("cloning[1]", cloning.alpha)?;
            let expected = rows * self.act_dim;
            check_len("actions", cloning.actions.len(), "rows * act_dim", expected)?;
        }
        Ok(Arch::new().dispatch(Policy { learner: self, learnt, step }))
    }

    pub(super) fn check_noise(&self, noise: &[f32], rows: usize) -> Result<()> {
        let none = noise.is_empty() && self.actor == Actor::Deterministic;
        let expected = if none { 0 } else { rows * self.act_dim };
        check_len("noise", noise.len(), "rows * act_dim", expected)
    }

    /// Computes actions for a block of observations, with their log-probabilities.
    #[inline(always)]
    pub(super) fn choose<S: Simd>(
        &mut self,
        simd: S,
        obs: &[f32],
        noise: &[f32],
        rows: usize,
        hidden: Hidden,
    ) {
        let Self { policy, packed_policy, policy_block, .. } = self;
        forward(simd, policy, packed_policy, obs, rows, policy_block, hidden);
        self.make_actions(noise, rows);
    }

    /// Turns the policy's outputs for `rows` rows into actions, with their log-probabilities.
    pub(super) fn make_actions(&mut self, noise: &[f32], rows: usize) {
        let Self { policy, policy_block, act_dim, .. } = self;
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

/// The arguments of [`ContinuousLearner::step_values`].
struct Values<'a> {
    learner: &'a mut ContinuousLearner,
    learnt: Learnt<'a, f32>,
    batch: Transitions<'a>,
    actions: &'a [f32],
    step: ValueStep<'a>,
    errors: &'a mut [f32],
}

impl WithSimd for Values<'_> {
    type Output = ValueTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> ValueTerms {
        let ContinuousLearner { policy, packed_policy, critics, online, target, .. } =
            &mut *self.learner;
        let n = self.batch.len();
        let (own, of_target) = (&*self.learnt.parameters, self.step.target);
        let of_policy = [(packed_policy, &*policy, self.step.policy)];
        let of_critics = online.loads(critics, own).chain(loads(target, &*critics, of_target));
        load_each(policy.helpers(n), of_policy.into_iter().chain(of_critics));
        if self.step.penalty_weight == 0.0 {
            online.clear_gradients();
        } else {
            online.scale_gradients(f32::of(self.step.penalty_weight));
        }
        self.learner.penalized = false;
        let mut sums = ValueTerms::default();
        for first in (0..n).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(n - first));
            sums.loss += terms.loss;
            sums.value += terms.value;
        }
        let ContinuousLearner { policy, critics, online, critic_factor, .. } = &mut *self.learner;
        *critic_factor = self.learnt.step(simd, policy.helpers(n), online.gradients(critics));
        ValueTerms { loss: mean_of(sums.loss, n), value: mean_of(sums.value, n * critics.len()) }
    }
}

impl Values<'_> {
    /// Accumulates the gradients of `rows` rows from `first` on; returns sums over them.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> ValueTerms {
        let Self { learner, batch, step, .. } = self;
        let (obs_dim, act_dim, n) = (learner.obs_dim, learner.act_dim, batch.len());
        let next_obs = part(batch.next_obs, first, rows, obs_dim);
        let noise = part(step.noise, first, rows, act_dim);
        learner.choose(simd, next_obs, noise, rows, Hidden::Overwritten);
        let ContinuousLearner { critics, online, target, actions, log_probs, .. } = &mut **learner;
        let n_critics = critics.len();
        let next_actions = &actions[..rows * act_dim];
        online.forward_target(simd, critics, target, next_obs, next_actions, rows);
        let alpha = f32::of(step.alpha);
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let next_value = online.smallest(critics, r) - alpha * log_prob;
            let row = first + r;
            self.errors[row] = batch.rewards[row] + batch.discounts[row] * next_value;
        }
        let (obs, actions) =
            (part(batch.obs, first, rows, obs_dim), part(self.actions, first, rows, act_dim));
        online.forward(simd, critics, 0..n_critics, obs, actions, rows);
        let scale = f32::of(step.scale);
        let slope = f32::of(mean_of(2.0 * step.scale, n));
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

/// The arguments of [`ContinuousLearner::step_policy`].
struct Policy<'a> {
    learner: &'a mut ContinuousLearner,
    learnt: Learnt<'a, f32>,
    step: PolicyStep<'a>,
}

impl WithSimd for Policy<'_> {
    type Output = PolicyTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> PolicyTerms {
        let ContinuousLearner {
            obs_dim, policy, packed_policy, policy_block, critics, online, ..
        } = &mut *self.learner;
        let n = self.step.obs.len() / *obs_dim;
        let (own, of_critics) = (&*self.learnt.parameters, self.step.critics);
        let mut loads: Vec<_> = online.loads(critics, of_critics).collect();
        // In the middle, so that each thread copies the critics that it will evaluate.
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
        *policy_factor = self.learnt.step(simd, policy.helpers(n), policy_block.gradients(policy));
        PolicyTerms { loss: mean_of(sums.loss, n), entropy: mean_of(sums.entropy, n) }
    }
}

impl Policy<'_> {
    /// Chooses and evaluates the actions of `rows` rows from `first` on; returns the number of
    /// critics used.
    #[inline(always)]
    fn judge<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> usize {
        let Self { learner, step: PolicyStep { obs, noise, .. }, .. } = self;
        let (obs_dim, act_dim) = (learner.obs_dim, learner.act_dim);
        let obs = part(obs, first, rows, obs_dim);
        learner.choose(simd, obs, part(noise, first, rows, act_dim), rows, Hidden::Kept);
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

    /// Accumulates the gradients of `rows` of `n` rows from `first` on; returns sums over them.
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
        let Self { learner, step: PolicyStep { obs, noise, alpha, cloning, .. }, .. } = self;
        let (obs_dim, act_dim, actor) = (learner.obs_dim, learner.act_dim, learner.actor);
        let obs = part(obs, first, rows, obs_dim);
        let noise = part(noise, first, rows, act_dim);
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
        let share = f32::of(mean_of(1.0, n));
        let mut sums = PolicyTerms::default();
        for (r, &log_prob) in log_probs.iter().enumerate().take(rows) {
            let value = online.smallest(critics, r);
            // Equal values share the gradient, as in torch; if one is NaN, all do.
            let larger = (0..used).filter(|&k| online.value(critics, k, r) > value).count();
            let gradient = -share * f32::of(value_weight) / count(used - larger);
            for k in 0..used {
                let passes = if online.value(critics, k, r) > value { 0.0 } else { gradient };
                online.set_gradient(critics, k, r, passes);
            }
            sums.loss += *alpha * log_prob.widen() - value_weight * value.widen();
            sums.entropy -= log_prob.widen();
        }
        let of_actions = &mut action_gradients[..rows * act_dim];
        of_actions.fill(0.0);
        online.backward_to_actions(simd, critics, used, rows, of_actions);
        if let Some(Cloning { actions: wanted, .. }) = cloning {
            let wanted = part(wanted, first, rows, act_dim);
            sums.loss +=
                add_distances(actions, wanted, n * act_dim, of_actions) * mean_of(1.0, act_dim);
        }
        let of_log_prob = f32::of(*alpha) * share;
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

/// Adds the gradients of the mean of `n` squared distances to `gradients`; returns the sum of the
/// given distances.
#[inline(always)]
fn add_distances(actions: &[f32], wanted: &[f32], n: usize, gradients: &mut [f32]) -> f64 {
    let slope = f32::of(mean_of(2.0, n));
    let mut sum = 0.0;
    for ((&action, &wanted), gradient) in actions.iter().zip(wanted).zip(gradients) {
        let distance = action - wanted;
        *gradient += slope * distance;
        sum += (distance * distance).widen();
    }
    sum
}

#[expect(clippy::cast_precision_loss, reason = "critics are few")]
fn count(n: usize) -> f32 {
    f32::of(n as f64)
}
