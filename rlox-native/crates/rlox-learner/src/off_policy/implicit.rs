//! Implicit Q-learning (Kostrikov et al. 2022): the steps of value, policy and critics.

use std::iter;

use pulp::{Arch, Simd, WithSimd};

use super::actor::clip;
use super::critics::{Critics, ensemble};
use super::{Transitions, check_log_std_bounds, check_sizes, mean_of, part};
use crate::Real;
use crate::distribution::gaussian_log_prob;
use crate::linalg::{BLOCK_ROWS, Gathered, Layer, flatten};
use crate::network::Network;
use crate::optimizer::Learnt;
use crate::passes::{Gradients, Packed, backward, forward, load_each, loads};
use crate::runs::Hidden;
use crate::workspace::Workspace;
use rlox_kernels::error::{Result, check_len, check_range, check_weight};

/// The parameters of all trained networks.
#[derive(Debug)]
pub struct ImplicitParts<'a> {
    /// The parameters of V.
    pub value: Learnt<'a, f32>,
    /// The parameters of π: the logarithmic deviations, then the network of the means.
    pub policy: Learnt<'a, f32>,
    /// The parameters of Q.
    pub critics: Learnt<'a, f32>,
}

/// The constants of the objectives.
#[derive(Debug, Clone, Copy)]
pub struct ImplicitLosses {
    /// Expectile τ of V's regression.
    pub expectile: f64,
    /// Inverse temperature β of the advantages in the policy's weights.
    pub temperature: f64,
    /// Upper bound of those weights.
    pub max_weight: f64,
}

/// Metrics of a gradient step.
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

/// Takes gradient steps on the parameters of a state value, a Gaussian policy with deviations
/// independent of the state, and critics, all MLPs with `ReLU` or tanh.
///
/// It owns only working memory: parameters and moments belong to the caller.
#[derive(Debug)]
pub struct ImplicitLearner {
    obs_dim: usize,
    act_dim: usize,
    log_std_bounds: [f64; 2],
    value: Network,
    policy: Network,
    critics: Vec<Network>,
    packed_value: Packed<f32>,
    packed_policy: Packed<f32>,
    value_block: Workspace<f32>,
    policy_block: Workspace<f32>,
    online: Critics,
    /// Parameters of the critics' target networks.
    target: Vec<Packed<f32>>,
    /// The gradients of the logarithmic deviations, which the policy's parameters begin with.
    log_std_gradients: Vec<f32>,
    /// Clipping factors of the last gradients of value, policy and critics.
    factors: [f32; 3],
    /// The smallest target value of each row of the batch.
    smallest: Vec<f32>,
}

impl ImplicitLearner {
    /// A learner of networks with hidden layers of these sizes, the policy's and the others'.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`,
    /// [`KernelError::Bounds`](rlox_kernels::KernelError::Bounds) for bounds without an interval.
    pub fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: [&[usize]; 2],
        n_critics: usize,
        log_std_bounds: [f64; 2],
        tanh: bool,
    ) -> Result<Self> {
        let named = [("obs_dim", obs_dim), ("act_dim", act_dim), ("critics", n_critics)];
        check_sizes(&named, &hidden.concat())?;
        check_log_std_bounds(log_std_bounds)?;
        let [own, of_values] = hidden;
        let network = |sizes: [&[_]; 3], at| Network::of(Layer::linear(&sizes.concat(), at), tanh);
        let value = network([&[obs_dim], of_values, &[1]], 0);
        let policy = network([&[obs_dim], own, &[act_dim]], act_dim);
        let critics = ensemble(&[&[obs_dim + act_dim], of_values, &[1]].concat(), n_critics, tanh);
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
            log_std_gradients: vec![0.0; act_dim],
            factors: [1.0; 3],
            smallest: Vec::new(),
            value,
            policy,
            critics,
        })
    }

    /// Numbers of parameters of value, policy and critics.
    #[must_use]
    pub fn n_parameters(&self) -> [usize; 3] {
        let Self { value, policy, critics, .. } = self;
        [value.end(), policy.end(), critics.last().map_or(0, Network::end)]
    }

    /// The clipped gradients of the last step of value, policy and critics.
    #[must_use]
    pub fn gradients(&self) -> [Vec<f32>; 3] {
        let ([n_value, n_policy, n_critic], [of_value, of_policy, of_critics]) =
            (self.n_parameters(), self.factors);
        [
            flatten(self.value_block.gradients(&self.value), n_value, of_value),
            flatten(self.policy_gradients(), n_policy, of_policy),
            flatten(self.online.gradients(&self.critics), n_critic, of_critics),
        ]
    }

    /// The gradients of the policy's parameters.
    fn policy_gradients(&self) -> impl Iterator<Item = Gathered<'_, f32>> {
        let of_log_std = iter::once(Gathered::straight(0, &self.log_std_gradients));
        of_log_std.chain(self.policy_block.gradients(&self.policy))
    }

    /// Takes one step of V, then of π with the new V, then of Q with the new V.
    ///
    /// `target` evaluates the batch's actions.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit or constants out
    /// of range; nothing changes then.
    pub fn step(
        &mut self,
        parts: ImplicitParts<'_>,
        target: &[f32],
        batch: Transitions<'_>,
        actions: &[f32],
        losses: ImplicitLosses,
    ) -> Result<ImplicitTerms> {
        let [n_value, n_policy, n_critics] = self.n_parameters();
        parts.value.check("value", "the network", n_value)?;
        parts.policy.check("policy", "the network", n_policy)?;
        parts.critics.check("critics", "the network", n_critics)?;
        check_len("target", target.len(), "the critics", n_critics)?;
        batch.check(self.obs_dim)?;
        check_len("actions", actions.len(), "rewards * act_dim", batch.len() * self.act_dim)?;
        let ImplicitLosses { expectile, temperature, max_weight } = losses;
        check_range("expectile", expectile, 0.0, 1.0)?;
        check_weight("temperature", temperature)?;
        check_weight("max_weight", max_weight)?;
        self.smallest.resize(batch.len(), 0.0);
        let call = Step { learner: self, parts, target, batch, actions, losses };
        Ok(Arch::new().dispatch(call))
    }
}

/// The arguments of [`ImplicitLearner::step`].
struct Step<'a> {
    learner: &'a mut ImplicitLearner,
    parts: ImplicitParts<'a>,
    target: &'a [f32],
    batch: Transitions<'a>,
    actions: &'a [f32],
    losses: ImplicitLosses,
}

impl WithSimd for Step<'_> {
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
        learner.factors[0] = self.parts.value.step(simd, helpers, of_value);
        // Policy and critics use the new value.
        learner.packed_value.load(&learner.value, self.parts.value.parameters);
        for (first, rows) in blocks() {
            self.extract_policy(simd, first, rows, &mut sums);
            self.regress_critics(simd, first, rows, &mut sums);
        }
        let learner = &mut *self.learner;
        learner.factors[1] = self.parts.policy.step(simd, helpers, learner.policy_gradients());
        let of_critics = learner.online.gradients(&learner.critics);
        learner.factors[2] = self.parts.critics.step(simd, helpers, of_critics);
        ImplicitTerms {
            value_loss: mean_of(sums.value_loss, n),
            q_loss: mean_of(sums.q_loss, n),
            policy_loss: mean_of(sums.policy_loss, n),
            q_value: mean_of(sums.q_value, n * learner.critics.len()),
            weight: mean_of(sums.weight, n),
        }
    }
}

impl Step<'_> {
    #[inline(always)]
    fn begin(&mut self) {
        let Self { learner, parts, target, .. } = self;
        let learner = &mut **learner;
        let ImplicitLearner { value, policy, critics, packed_value, packed_policy, .. } = learner;
        let values_and_policy: [(_, &Network, &[f32]); 2] = [
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
        learner.log_std_gradients.fill(0.0);
    }

    /// Accumulates the gradients of the expectile loss (equation 5); returns its sum over the rows.
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
        let expectile = f32::of(self.losses.expectile);
        let slope = f32::of(mean_of(-2.0, self.batch.len()));
        let stride = value.output_stride();
        let mut sum = 0.0;
        for (r, smallest) in smallest[first..][..rows].iter_mut().enumerate() {
            *smallest = online.smallest(critics, r);
            let (output, gradient) = value_block.output_and_gradient(r * stride, 1);
            let difference = *smallest - output[0];
            let weight = if difference < 0.0 { 1.0 - expectile } else { expectile };
            gradient[0] = slope * weight * difference;
            sum += (weight * difference * difference).widen();
        }
        backward(simd, value, packed_value, obs, rows, value_block, Gradients::Parameters);
        sum
    }

    /// Accumulates the gradients of the weighted log-likelihood (equation 7).
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
        let [low, high] = log_std_bounds.map(f32::of);
        let (temperature, max_weight) = (f32::of(losses.temperature), f32::of(losses.max_weight));
        let share = f32::of(mean_of(1.0, batch.len()));
        let log_stds = &parts.policy.parameters[..*act_dim];
        for (r, ((action, value), &target)) in actions.zip(values).zip(targets).enumerate() {
            let weight = (temperature * (target - value[0])).exp();
            // Not `min`, which would hide NaN.
            let weight = if weight > max_weight { max_weight } else { weight };
            let at = r * policy.output_stride();
            let (outputs, gradients) = policy_block.output_and_gradient(at, *act_dim);
            let mut log_prob = 0.0;
            for (i, (&action, &raw)) in action.iter().zip(log_stds).enumerate() {
                let log_std = clip(raw, low, high);
                let (mean, inverse_std) = (outputs[i].tanh(), (-log_std).exp());
                let z = (action - mean) * inverse_std;
                log_prob += gaussian_log_prob(z, log_std);
                gradients[i] = -share * weight * z * inverse_std * (1.0 - mean * mean);
                if raw == log_std {
                    log_std_gradients[i] -= share * weight * (z * z - 1.0);
                }
            }
            sums.policy_loss -= (weight * log_prob).widen();
            sums.weight += weight.widen();
        }
        backward(simd, policy, packed_policy, obs, rows, policy_block, Gradients::Parameters);
    }

    /// Accumulates the gradients of the critics' squared errors (equation 6).
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
        let slope = f32::of(mean_of(2.0, batch.len()));
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
