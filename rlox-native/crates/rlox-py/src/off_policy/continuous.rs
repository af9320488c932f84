//! SAC, TD3 and DDPG, and the penalty of conservative Q-learning.

use std::sync::Mutex;

use numpy::{Ix1, Ix2, Ix3, PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::off_policy::{self as kernels, Actor, Cloning, PolicyStep, Samples, ValueStep};

use super::{Adam, BatchArrays};
use crate::convert::{
    check_shape, output_array, parse_critic_hidden, parse_hidden, real, real_array,
};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_networks;
use crate::output::filled;
use crate::replay::vector;

/// Takes gradient steps of a policy and its critics on the caller's arrays.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ContinuousLearner {
    learner: Mutex<kernels::ContinuousLearner>,
    n_critics: usize,
    obs_dim: usize,
    act_dim: usize,
}

#[pymethods]
impl ContinuousLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (obs_dim, act_dim, hidden, n_critics, *, log_std_bounds=None, critic_hidden=None, tanh=false))]
    fn new(
        obs_dim: usize,
        act_dim: usize,
        #[pyo3(from_py_with = parse_hidden)] hidden: Vec<usize>,
        n_critics: usize,
        log_std_bounds: Option<[f64; 2]>,
        #[pyo3(from_py_with = parse_critic_hidden)] critic_hidden: Option<Vec<usize>>,
        tanh: bool,
    ) -> PyResult<Self> {
        let actor = match log_std_bounds {
            Some(log_std_bounds) => Actor::SquashedGaussian { log_std_bounds },
            None => Actor::Deterministic,
        };
        let inputs = obs_dim.saturating_add(act_dim);
        let hidden = [&hidden[..], critic_hidden.as_deref().unwrap_or(&hidden)];
        check_networks(inputs, hidden, 2, n_critics.saturating_add(2))?;
        let learner =
            kernels::ContinuousLearner::new(obs_dim, act_dim, hidden, actor, n_critics, tanh);
        let learner = Mutex::new(learner.map_err(raise)?);
        Ok(Self { learner, n_critics, obs_dim, act_dim })
    }

    /// Number of components of an action.
    #[getter]
    fn act_dim(&self) -> usize {
        self.act_dim
    }

    /// Number of the policy's parameters.
    #[getter]
    fn n_policy_parameters(&self) -> usize {
        lock(&self.learner).n_policy_parameters()
    }

    /// Number of the critics' parameters.
    #[getter]
    fn n_critic_parameters(&self) -> usize {
        lock(&self.learner).n_critic_parameters()
    }

    /// Take a gradient step of the critics; return the loss, the mean value and the TD errors.
    #[pyo3(signature = (
        critics, target, policy, batch, noise, *, learning_rate, alpha, scale, penalty_weight=0.0
    ))]
    fn step_values(
        &self,
        py: Python<'_>,
        critics: &Bound<'_, PyDict>,
        target: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        noise: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        #[pyo3(from_py_with = real::alpha)] alpha: f64,
        #[pyo3(from_py_with = real::scale)] scale: f64,
        #[pyo3(from_py_with = real::penalty_weight)] penalty_weight: f64,
    ) -> PyResult<(f64, f64, Py<PyAny>)> {
        let mut critics = Adam::parse(critics, "critics")?;
        let batch = BatchArrays::parse(batch)?;
        let target = real_array::<f32, Ix1>(target, "target")?;
        let policy = real_array::<f32, Ix1>(policy, "policy")?;
        let actions = real_array::<f32, Ix2>(&batch.actions, "actions")?;
        let noise = noise.map(|noise| real_array::<f32, Ix2>(noise, "noise")).transpose()?;
        let rows = batch.len();
        let mut errors = vec![0.0; self.n_critics * rows];
        let step = ValueStep {
            target: target.as_slice()?,
            policy: policy.as_slice()?,
            noise: noise.as_ref().map_or(Ok(&[][..]), |noise| noise.as_slice())?,
            alpha,
            scale,
            penalty_weight,
        };
        let (learnt, actions) = (critics.learnt(learning_rate)?, actions.as_slice()?);
        let (batch, out) = (batch.view()?, &mut errors);
        let terms =
            py.detach(|| lock(&self.learner).step_values(learnt, batch, actions, step, out));
        let terms = terms.map_err(raise)?;
        let errors = PyArray1::from_vec(py, errors).reshape([self.n_critics, rows])?;
        Ok((terms.loss, terms.value, errors.into_any().unbind()))
    }

    /// Take a gradient step of the policy; return the loss and the mean entropy.
    #[pyo3(signature = (policy, critics, obs, noise, *, learning_rate, alpha, cloning=None))]
    fn step_policy(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyDict>,
        critics: &Bound<'_, PyAny>,
        obs: &Bound<'_, PyAny>,
        noise: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        #[pyo3(from_py_with = real::alpha)] alpha: f64,
        cloning: Option<(Bound<'_, PyAny>, f64)>,
    ) -> PyResult<(f64, f64)> {
        let mut policy = Adam::parse(policy, "policy")?;
        let learnt = policy.learnt(learning_rate)?;
        let critics = real_array::<f32, Ix1>(critics, "critics")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let noise = noise.map(|noise| real_array::<f32, Ix2>(noise, "noise")).transpose()?;
        let target;
        let cloning = match cloning {
            Some((actions, alpha)) => {
                target = real_array::<f32, Ix2>(&actions, "actions")?;
                Some(Cloning { actions: target.as_slice()?, alpha })
            }
            None => None,
        };
        let step = PolicyStep {
            critics: critics.as_slice()?,
            obs: obs.as_slice()?,
            noise: noise.as_ref().map_or(Ok(&[][..]), |noise| noise.as_slice())?,
            alpha,
            cloning,
        };
        let terms = py.detach(|| lock(&self.learner).step_policy(learnt, step));
        terms.map(|terms| (terms.loss, terms.entropy)).map_err(raise)
    }

    /// Move a target network's parameters towards the trained ones.
    #[pyo3(signature = (target, parameters, *, tau, rows))]
    fn follow(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        parameters: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = real::tau)] tau: f64,
        rows: usize,
    ) -> PyResult<()> {
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let mut target = output_array::<f32, Ix1>(target, "target", &[parameters.len()])?;
        let (target, parameters) = (target.as_slice_mut()?, parameters.as_slice()?);
        py.detach(|| lock(&self.learner).follow(target, parameters, tau, rows)).map_err(raise)
    }

    /// Return the penalty of each critic, and keep its gradient for the next step of the critics.
    #[pyo3(signature = (critics, policy, batch, random, here, there, lower_bounds=None))]
    fn penalize(
        &self,
        py: Python<'_>,
        critics: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        random: &Bound<'_, PyAny>,
        here: &Bound<'_, PyAny>,
        there: &Bound<'_, PyAny>,
        lower_bounds: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<f64>> {
        let batch = BatchArrays::parse(batch)?;
        let critics = real_array::<f32, Ix1>(critics, "critics")?;
        let policy = real_array::<f32, Ix1>(policy, "policy")?;
        let actions = real_array::<f32, Ix2>(&batch.actions, "actions")?;
        let random = real_array::<f32, Ix3>(random, "random")?;
        let here = real_array::<f32, Ix3>(here, "here")?;
        let there = real_array::<f32, Ix3>(there, "there")?;
        let bounds = lower_bounds.map(|bounds| real_array::<f32, Ix1>(bounds, "lower_bounds"));
        let bounds = bounds.transpose()?;
        let rows = batch.view()?;
        let (critics, policy, actions) =
            (critics.as_slice()?, policy.as_slice()?, actions.as_slice()?);
        let samples = Samples {
            random: random.as_slice()?,
            here: here.as_slice()?,
            there: there.as_slice()?,
            lower_bounds: bounds.as_ref().map(|bounds| bounds.as_slice()).transpose()?,
        };
        let (obs, next_obs) = (rows.obs, rows.next_obs);
        py.detach(|| lock(&self.learner).penalize(critics, policy, obs, next_obs, actions, samples))
            .map_err(raise)
    }

    /// Return the policy's action for each row of `obs`, `(N, act_dim)`.
    #[pyo3(signature = (policy, obs, noise))]
    fn act<'py>(
        &self,
        policy: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
        noise: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let policy = real_array::<f32, Ix1>(policy, "policy")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let rows = obs.shape().first().copied().unwrap_or(0);
        check_shape("obs", obs.shape(), "the policy", &[rows, self.obs_dim])?;
        let noise = noise.map(|noise| real_array::<f32, Ix2>(noise, "noise")).transpose()?;
        let (py, policy, seen) = (obs.py(), policy.as_slice()?, obs.as_slice()?);
        let noise = noise.as_ref().map_or(Ok(&[][..]), |noise| noise.as_slice())?;
        let act = |actions: &mut [f32]| lock(&self.learner).act(policy, seen, noise, actions);
        filled(py, Ix2(rows, self.act_dim), act)
    }

    /// Return the mean of -log π of the policy's actions with the given noise.
    fn entropy(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        obs: &Bound<'_, PyAny>,
        noise: &Bound<'_, PyAny>,
    ) -> PyResult<f64> {
        let policy = real_array::<f32, Ix1>(policy, "policy")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let noise = real_array::<f32, Ix2>(noise, "noise")?;
        let (policy, obs, noise) = (policy.as_slice()?, obs.as_slice()?, noise.as_slice()?);
        py.detach(|| lock(&self.learner).entropy(policy, obs, noise)).map_err(raise)
    }

    /// The gradients of the last steps of the policy and of the critics.
    fn gradients<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, Bound<'py, PyAny>) {
        let learner = lock(&self.learner);
        (vector(py, &learner.policy_gradients()), vector(py, &learner.critic_gradients()))
    }

    fn __repr__(&self) -> String {
        format!("ContinuousLearner(act_dim={}, n_critics={})", self.act_dim, self.n_critics)
    }
}
