//! Implicit Q-learning (Kostrikov et al. 2022): the steps of value, policy and critics.

use std::iter;

use pulp::Arch;

use super::critics::{Critics, ensemble};
use super::implicit_step::Step;
use super::{StepRule, Transitions, check_log_std_bounds, check_sizes};
use crate::Real;
use crate::linalg::{Gathered, Layer, flatten};
use crate::network::Network;
use crate::optimizer::Moments;
use crate::passes::Packed;
use crate::workspace::Workspace;
use rlox_kernels::error::{Result, check_len, check_range, check_weight};

/// Parameters that a step moves.
#[derive(Debug)]
pub struct Learnt<'a, F> {
    /// In one array.
    pub parameters: &'a mut [F],
    /// What their optimiser keeps.
    pub moments: Moments<'a, F>,
    /// How they move.
    pub rule: StepRule,
}

impl<F> Learnt<'_, F> {
    fn check(&self, name: &'static str, n_parameters: usize) -> Result<()> {
        check_len(name, self.parameters.len(), "the network", n_parameters)?;
        self.rule.check(&self.moments, n_parameters)
    }
}

/// The parameters of all networks that learn.
#[derive(Debug)]
pub struct ImplicitParts<'a, F> {
    /// Of V.
    pub value: Learnt<'a, F>,
    /// Of π: the logarithmic deviations, then the network of the means.
    pub policy: Learnt<'a, F>,
    /// Of Q.
    pub critics: Learnt<'a, F>,
}

/// The constants of the objectives.
#[derive(Debug, Clone, Copy)]
pub struct ImplicitLosses {
    /// Expectile τ of the regression of V.
    pub expectile: f64,
    /// Inverse temperature β of the advantages in the policy's weights.
    pub temperature: f64,
    /// Bound of those weights.
    pub max_weight: f64,
}

/// What a gradient step reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ImplicitTerms {
    /// The expectile loss of V.
    pub value_loss: f64,
    /// Sum of the critics' mean squared errors.
    pub q_loss: f64,
    /// Weighted negative log-likelihood of the batch's actions.
    pub policy_loss: f64,
    /// Mean of all critics' values of the batch's actions.
    pub q_value: f64,
    /// Mean of the log-likelihoods' weights.
    pub weight: f64,
}

/// Takes gradient steps on the parameters of a state value, a Gaussian policy whose deviations are
/// the same in every state, and critics, all MLPs with `ReLU`.
///
/// It owns nothing but working memory: parameters and moments are the caller's.
#[derive(Debug)]
pub struct ImplicitLearner<F> {
    pub(super) obs_dim: usize,
    pub(super) act_dim: usize,
    pub(super) log_std_bounds: [f64; 2],
    pub(super) value: Network,
    pub(super) policy: Network,
    pub(super) critics: Vec<Network>,
    pub(super) packed_value: Packed<F>,
    pub(super) packed_policy: Packed<F>,
    pub(super) value_block: Workspace<F>,
    pub(super) policy_block: Workspace<F>,
    pub(super) online: Critics<F>,
    /// Of the critics' target networks.
    pub(super) target: Vec<Packed<F>>,
    /// The gradients of the logarithmic deviations, which the policy's parameters begin with.
    pub(super) log_std_gradients: Vec<F>,
    /// What the last gradients of value, policy and critics were multiplied by, as they are clipped.
    pub(super) factors: [F; 3],
    /// Of each row of the batch, the smallest target value.
    pub(super) smallest: Vec<F>,
}

impl<F: Real> ImplicitLearner<F> {
    /// A learner of networks with hidden layers of these sizes.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`,
    /// [`KernelError::Bounds`](rlox_kernels::KernelError::Bounds) for bounds that are no interval.
    pub fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: &[usize],
        n_critics: usize,
        log_std_bounds: [f64; 2],
    ) -> Result<Self> {
        check_sizes(&[("obs_dim", obs_dim), ("act_dim", act_dim), ("critics", n_critics)], hidden)?;
        check_log_std_bounds(log_std_bounds)?;
        let sizes = |inputs: usize, outputs: usize| [&[inputs], hidden, &[outputs]].concat();
        let value = Network::relu(Layer::linear(&sizes(obs_dim, 1), 0));
        let policy = Network::relu(Layer::linear(&sizes(obs_dim, act_dim), act_dim));
        let critics = ensemble(&sizes(obs_dim + act_dim, 1), n_critics);
        Ok(Self {
            obs_dim,
            act_dim,
            log_std_bounds,
            packed_value: Packed::new(&value),
            packed_policy: Packed::new(&policy),
            value_block: Workspace::new(&value),
            policy_block: Workspace::new(&policy),
            online: Critics::new(&critics),
            target: critics.iter().map(Packed::forward_only).collect(),
            log_std_gradients: vec![F::zero(); act_dim],
            factors: [F::one(); 3],
            smallest: Vec::new(),
            value,
            policy,
            critics,
        })
    }

    /// How many parameters value, policy and critics have.
    #[must_use]
    pub fn n_parameters(&self) -> [usize; 3] {
        let Self { value, policy, critics, .. } = self;
        [value.end(), policy.end(), critics.last().map_or(0, Network::end)]
    }

    /// The clipped gradients of the last step of value, policy and critics.
    #[must_use]
    pub fn gradients(&self) -> [Vec<F>; 3] {
        let ([n_value, n_policy, n_critic], [of_value, of_policy, of_critics]) =
            (self.n_parameters(), self.factors);
        [
            flatten(self.value_block.gradients(&self.value), n_value, of_value),
            flatten(self.policy_gradients(), n_policy, of_policy),
            flatten(self.online.gradients(&self.critics), n_critic, of_critics),
        ]
    }

    /// The gradients of the policy's parameters.
    pub(super) fn policy_gradients(&self) -> impl Iterator<Item = Gathered<'_, F>> {
        let of_log_std = iter::once(Gathered::straight(0, &self.log_std_gradients));
        of_log_std.chain(self.policy_block.gradients(&self.policy))
    }

    /// Takes one step of V, with it one of π, and with it one of Q.
    ///
    /// `target` judges the batch's actions.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit and constants out of
    /// range; nothing has changed then.
    pub fn step(
        &mut self,
        parts: ImplicitParts<'_, F>,
        target: &[F],
        batch: Transitions<'_, F>,
        actions: &[F],
        losses: ImplicitLosses,
    ) -> Result<ImplicitTerms> {
        let [n_value, n_policy, n_critics] = self.n_parameters();
        parts.value.check("value", n_value)?;
        parts.policy.check("policy", n_policy)?;
        parts.critics.check("critics", n_critics)?;
        check_len("target", target.len(), "the critics", n_critics)?;
        batch.check(self.obs_dim)?;
        check_len("actions", actions.len(), "rewards * act_dim", batch.len() * self.act_dim)?;
        let ImplicitLosses { expectile, temperature, max_weight } = losses;
        check_range("expectile", expectile, 0.0, 1.0)?;
        check_weight("temperature", temperature)?;
        check_weight("max_weight", max_weight)?;
        self.smallest.resize(batch.len(), F::zero());
        let call = Step { learner: self, parts, target, batch, actions, losses };
        Ok(Arch::new().dispatch(call))
    }
}
