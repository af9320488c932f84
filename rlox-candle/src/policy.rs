//! The default actor-critic of rlox in candle: two tanh MLPs, made from one flat vector.
//!
//! The vector has the order of the torch policies' `parameters()`: for continuous actions first
//! the log standard deviations, then the policy's layers and the value function's, each layer its
//! weights (`n_out`, `n_in`) row by row and then its biases.

use std::f64::consts::SQRT_2;

use candle_core::{D, Device, Tensor};
use candle_nn::{Linear, Module, ops};
use rlox_kernels::KernelError;
use rlox_kernels::env::{ActionSpace, Actions, EnvSpec};
use rlox_kernels::error::check_len;
use rlox_kernels::rng::Pcg64;

use crate::Result;
use crate::sampling::orthogonal;

/// The sizes of an actor-critic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Components of an observation.
    pub obs_dim: usize,
    /// Number of actions, or components of a continuous one.
    pub n_actions: usize,
    /// Widths of the hidden layers of the policy and of the value function.
    pub hidden: [Vec<usize>; 2],
    /// Whether actions are real vectors.
    pub continuous: bool,
}

impl Shape {
    /// The sizes for an env.
    #[must_use]
    pub fn of(spec: &EnvSpec, hidden: [Vec<usize>; 2]) -> Self {
        let (n_actions, continuous) = match &spec.action_space {
            ActionSpace::Discrete { n } => (usize::try_from(*n).unwrap_or(0), false),
            ActionSpace::Continuous { low, .. } => (low.len(), true),
        };
        Self { obs_dim: spec.obs_dim(), n_actions, hidden, continuous }
    }

    /// The layers (`n_in`, `n_out`, gain) of the policy and of the value function.
    fn networks(&self) -> [Vec<(usize, usize, f64)>; 2] {
        let layers = |hidden: &[usize], n_out, gain| {
            let outputs = hidden.iter().map(|&n| (n, SQRT_2)).chain([(n_out, gain)]);
            let inputs = [self.obs_dim].into_iter().chain(hidden.iter().copied());
            inputs.zip(outputs).map(|(n_in, (n_out, gain))| (n_in, n_out, gain)).collect()
        };
        let [actor, critic] = &self.hidden;
        [layers(actor, self.n_actions, 0.01), layers(critic, 1, 1.0)]
    }

    /// Number of weights, or the largest number if that is less.
    #[must_use]
    pub fn n_weights(&self) -> usize {
        let log_std = if self.continuous { self.n_actions } else { 0 };
        let sizes = self.networks().into_iter().flatten();
        let sizes = sizes.map(|(n_in, n_out, _)| n_in.saturating_add(1).saturating_mul(n_out));
        sizes.fold(log_std, usize::saturating_add)
    }

    /// Initial weights as in the torch policies: orthogonal, biases and log deviations 0.
    #[must_use]
    pub fn initial_weights(&self, rng: &mut Pcg64) -> Vec<f32> {
        let mut weights = vec![0.0; if self.continuous { self.n_actions } else { 0 }];
        for (n_in, n_out, gain) in self.networks().into_iter().flatten() {
            weights.extend(orthogonal(n_out, n_in, gain, rng));
            weights.resize(weights.len() + n_out, 0.0);
        }
        weights
    }
}

/// Actions of one kind, step after step, env after env.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionRows {
    /// One integer each.
    Discrete(Vec<i64>),
    /// One row of components each, as sampled, before clipping to the env's bounds.
    Continuous(Vec<f32>),
}

impl ActionRows {
    pub(crate) fn borrowed(&self) -> Actions<'_> {
        match self {
            Self::Discrete(actions) => Actions::Discrete(actions),
            Self::Continuous(actions) => Actions::Continuous(actions),
        }
    }
}

/// A policy and a value function.
#[derive(Debug)]
pub struct ActorCritic {
    actor: Mlp,
    critic: Mlp,
    log_std: Vec<f32>,
    obs_dim: usize,
}

/// Outputs of policy and value function for a batch of observations.
#[derive(Debug)]
pub struct Heads {
    /// Log-probabilities of every action, or the means of continuous ones; `n_actions` per row.
    pub actions: Vec<f32>,
    /// The value of each row.
    pub values: Vec<f32>,
}

impl ActorCritic {
    /// The actor-critic with these weights.
    ///
    /// # Errors
    /// [`KernelError::Shape`] for another number of weights, [`KernelError::NonFinite`].
    pub fn new(shape: &Shape, weights: &[f32]) -> Result<Self> {
        check_len("weights", weights.len(), "the policy's parameters", shape.n_weights())?;
        if let Some(index) = weights.iter().position(|w| !w.is_finite()) {
            return Err(KernelError::NonFinite { name: "weights", index }.into());
        }
        let (log_std, mut rest) =
            weights.split_at(if shape.continuous { shape.n_actions } else { 0 });
        let [actor, critic] = shape.networks();
        Ok(Self {
            actor: Mlp::new(actor, &mut rest)?,
            critic: Mlp::new(critic, &mut rest)?,
            log_std: log_std.to_vec(),
            obs_dim: shape.obs_dim,
        })
    }

    /// Log standard deviations, one per component of a continuous action.
    #[must_use]
    pub fn log_std(&self) -> &[f32] {
        &self.log_std
    }

    /// Policy and value of rows of observations.
    ///
    /// # Errors
    /// Errors of candle.
    pub fn heads(&self, obs: &[f32]) -> Result<Heads> {
        let obs = self.rows(obs)?;
        let actions = self.actor.forward(&obs)?;
        let actions =
            if self.log_std.is_empty() { ops::log_softmax(&actions, D::Minus1)? } else { actions };
        let values = self.critic.forward(&obs)?;
        Ok(Heads {
            actions: actions.flatten_all()?.to_vec1()?,
            values: values.flatten_all()?.to_vec1()?,
        })
    }

    /// The log-probability of one action per row of `heads`.
    ///
    /// # Errors
    /// [`KernelError::Shape`] for another number of actions, [`KernelError::Action`] for one that
    /// does not exist.
    pub fn log_probs(&self, heads: &Heads, actions: &ActionRows) -> Result<Vec<f32>> {
        let n_rows = heads.values.len();
        let n_actions = heads.actions.len() / n_rows.max(1);
        let rows = heads.actions.chunks_exact(n_actions.max(1));
        match actions {
            ActionRows::Discrete(actions) => {
                check_len("actions", actions.len(), "the observations", n_rows)?;
                let pick = |(index, (row, &value)): (usize, (&[f32], &i64))| {
                    let log_prob = usize::try_from(value).ok().and_then(|action| row.get(action));
                    let n_actions = i64::try_from(n_actions).unwrap_or(i64::MAX);
                    let wrong = KernelError::Action { index: Some(index), n_actions, value };
                    Ok(*log_prob.ok_or(wrong)?)
                };
                rows.zip(actions).enumerate().map(pick).collect()
            }
            ActionRows::Continuous(actions) => {
                let expected = heads.actions.len();
                check_len("actions", actions.len(), "the observations", expected)?;
                let density = |(means, actions): (&[f32], &[f32])| {
                    let components = actions.iter().zip(means).zip(&self.log_std);
                    components
                        .map(|((a, mean), log_std)| {
                            gaussian((a - mean) * (-log_std).exp(), *log_std)
                        })
                        .sum()
                };
                Ok(rows.zip(actions.chunks_exact(n_actions.max(1))).map(density).collect())
            }
        }
    }

    /// The value of each row of observations.
    ///
    /// # Errors
    /// Errors of candle.
    pub fn values(&self, obs: &[f32]) -> Result<Vec<f32>> {
        Ok(self.critic.forward(&self.rows(obs)?)?.flatten_all()?.to_vec1()?)
    }

    fn rows(&self, obs: &[f32]) -> Result<Tensor> {
        Ok(Tensor::from_slice(obs, (obs.len() / self.obs_dim, self.obs_dim), &Device::Cpu)?)
    }
}

/// The log-density of `a` under N(μ, σ), from `(a - μ) / σ` and `log σ`.
pub(crate) fn gaussian(standardised: f32, log_std: f32) -> f32 {
    -0.5 * standardised * standardised - log_std - HALF_LOG_TAU
}

/// `ln(2π) / 2`.
const HALF_LOG_TAU: f32 = 0.918_938_5;

/// Linear layers with tanh between them.
#[derive(Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    /// Takes the weights of its layers from the front of `weights`.
    fn new(layers: Vec<(usize, usize, f64)>, weights: &mut &[f32]) -> Result<Self> {
        let mut take = |len: usize| {
            let (taken, rest) = weights.split_at(len);
            *weights = rest;
            taken
        };
        let linear = |(n_in, n_out, _): (usize, usize, f64)| -> Result<Linear> {
            let weight = Tensor::from_slice(take(n_in * n_out), (n_out, n_in), &Device::Cpu)?;
            let bias = Tensor::from_slice(take(n_out), n_out, &Device::Cpu)?;
            Ok(Linear::new(weight, Some(bias)))
        };
        Ok(Self { layers: layers.into_iter().map(linear).collect::<Result<_>>()? })
    }

    fn forward(&self, inputs: &Tensor) -> candle_core::Result<Tensor> {
        let mut outputs = inputs.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            outputs = layer.forward(&if i == 0 { outputs } else { outputs.tanh()? })?;
        }
        Ok(outputs)
    }
}
