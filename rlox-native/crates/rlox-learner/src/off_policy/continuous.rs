//! Actor-critics of continuous actions: the steps of SAC, TD3 and DDPG.

use pulp::{Arch, Simd};

use super::critics::{Critics, ensemble};
use super::policy_step::Policy;
pub use super::squashed::Actor;
use super::value_step::Values;
use super::{StepRule, Transitions, ValueTerms, check_log_std_bounds, check_sizes};
use crate::Real;
use crate::linalg::{BLOCK_ROWS, Layer, flatten};
use crate::network::Network;
use crate::optimizer::Moments;
use crate::passes::{Packed, forward};
use crate::runs::Hidden;
use crate::workspace::Workspace;
use rlox_kernels::error::{Result, check_len, check_weight};

/// How critics learn.
#[derive(Debug, Clone, Copy)]
pub struct ValueStep {
    /// Temperature α of the next actions' entropy in the targets; 0 for none.
    pub alpha: f64,
    /// What a squared TD error counts in the loss.
    pub scale: f64,
    /// What the penalties of the last [`ContinuousLearner::penalize`] count in the loss; 0 for none.
    pub penalty_weight: f64,
    /// How parameters move.
    pub rule: StepRule,
}

/// How a policy learns.
#[derive(Debug, Clone, Copy)]
pub struct PolicyStep<'a, F> {
    /// Temperature α of the entropy; a deterministic policy has none.
    pub alpha: f64,
    /// What else the policy is drawn towards.
    pub cloning: Option<Cloning<'a, F>>,
    /// How parameters move.
    pub rule: StepRule,
}

/// The term by which a policy stays near a dataset's actions (Fujimoto and Gu 2021, equations 3 to
/// 5).
#[derive(Debug, Clone, Copy)]
pub struct Cloning<'a, F> {
    /// The actions, B × `act_dim`.
    pub actions: &'a [F],
    /// What values count when the mean of their sizes is 1, beside the mean squared distance.
    pub alpha: f64,
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
    pub(super) obs_dim: usize,
    pub(super) act_dim: usize,
    pub(super) actor: Actor,
    pub(super) policy: Network,
    pub(super) critics: Vec<Network>,
    pub(super) n_critic_parameters: usize,
    pub(super) packed_policy: Packed<F>,
    pub(super) policy_block: Workspace<F>,
    pub(super) online: Critics<F>,
    /// Of the critics' target networks.
    pub(super) target: Vec<Packed<F>>,
    /// [`BLOCK_ROWS`] × `act_dim`.
    pub(super) actions: Vec<F>,
    pub(super) action_gradients: Vec<F>,
    /// [`BLOCK_ROWS`].
    pub(super) log_probs: Vec<F>,
    /// What the policy's last gradients were multiplied by, as they are clipped.
    pub(super) policy_factor: F,
    /// The critics'.
    pub(super) critic_factor: F,
    /// Whether the critics' gradients are those of a penalty.
    pub(super) penalized: bool,
}

impl<F: Real> ContinuousLearner<F> {
    /// A learner of networks with hidden layers of these sizes.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`,
    /// [`KernelError::Bounds`](rlox_kernels::KernelError::Bounds) for bounds that are no interval.
    pub fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: &[usize],
        actor: Actor,
        n_critics: usize,
    ) -> Result<Self> {
        check_sizes(&[("obs_dim", obs_dim), ("act_dim", act_dim), ("critics", n_critics)], hidden)?;
        if let Actor::SquashedGaussian { log_std_bounds } = actor {
            check_log_std_bounds(log_std_bounds)?;
        }
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
            online: Critics::new(&critics),
            target: critics.iter().map(Packed::forward_only).collect(),
            actions: zeros(BLOCK_ROWS * act_dim),
            action_gradients: zeros(BLOCK_ROWS * act_dim),
            log_probs: zeros(BLOCK_ROWS),
            policy_factor: F::one(),
            critic_factor: F::one(),
            penalized: false,
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
    pub fn policy_gradients(&self) -> Vec<F> {
        let Self { policy, policy_block, policy_factor, .. } = self;
        flatten(policy_block.gradients(policy), policy.end(), *policy_factor)
    }

    /// The clipped gradient of the last step of the critics.
    #[must_use]
    pub fn critic_gradients(&self) -> Vec<F> {
        let Self { critics, online, critic_factor, n_critic_parameters, .. } = self;
        flatten(online.gradients(critics), *n_critic_parameters, *critic_factor)
    }

    /// Takes one step of the critics `parameters`; writes their TD errors, K × B, to `errors`.
    ///
    /// `policy` chooses the next actions with `noise`, B × `act_dim` or empty, and `target` judges
    /// them.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit and constants out of
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
        if step.penalty_weight != 0.0 {
            let found = if self.penalized { parameters.len() } else { 0 };
            check_len("penalty", found, "critics", parameters.len())?;
        }
        step.rule.check(moments, self.n_critic_parameters)?;
        check_weight("alpha", step.alpha)?;
        check_weight("scale", step.scale)?;
        check_weight("penalty_weight", step.penalty_weight)?;
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
    /// `-Q_1(s, μ(s))` for a deterministic one. With [`Cloning`] those values are divided by the mean
    /// of their sizes and multiplied by its `alpha`, and the mean squared distance from its actions
    /// is added.
    ///
    /// # Errors
    /// As [`ContinuousLearner::step_values`].
    pub fn step_policy(
        &mut self,
        parameters: &mut [F],
        critics: &[F],
        moments: &mut Moments<'_, F>,
        obs: &[F],
        noise: &[F],
        step: PolicyStep<'_, F>,
    ) -> Result<PolicyTerms> {
        check_len("policy", parameters.len(), "the policy", self.policy.end())?;
        check_len("critics", critics.len(), "the critics", self.n_critic_parameters)?;
        step.rule.check(moments, self.policy.end())?;
        check_weight("alpha", step.alpha)?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows.max(1) * self.obs_dim)?;
        self.check_noise(noise, rows)?;
        if let Some(cloning) = step.cloning {
            check_weight("cloning[1]", cloning.alpha)?;
            let expected = rows * self.act_dim;
            check_len("actions", cloning.actions.len(), "rows * act_dim", expected)?;
        }
        let learner = self;
        let call = Policy { learner, parameters, critics, moments, obs, noise, step };
        Ok(Arch::new().dispatch(call))
    }

    pub(super) fn check_noise(&self, noise: &[F], rows: usize) -> Result<()> {
        let none = noise.is_empty() && self.actor == Actor::Deterministic;
        let expected = if none { 0 } else { rows * self.act_dim };
        check_len("noise", noise.len(), "rows * act_dim", expected)
    }

    /// Makes actions of a block of observations, with their log-probabilities.
    #[inline(always)]
    pub(super) fn choose<S: Simd>(
        &mut self,
        simd: S,
        obs: &[F],
        noise: &[F],
        rows: usize,
        hidden: Hidden,
    ) {
        let Self { policy, packed_policy, policy_block, .. } = self;
        forward(simd, policy, packed_policy, obs, rows, policy_block, hidden);
        self.make_actions(noise, rows);
    }

    /// Makes actions of what the policy has computed for `rows` rows, with their log-probabilities.
    pub(super) fn make_actions(&mut self, noise: &[F], rows: usize) {
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
