//! Implicit Q-learning.

use std::sync::Mutex;

use numpy::{Ix1, Ix2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::off_policy::{
    ImplicitLearner as Kernel, ImplicitLosses, ImplicitParts, ImplicitTerms,
};

use super::{Adam, BatchArrays};
use crate::convert::{parse_critic_hidden, parse_hidden, real, real_array};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_networks;
use crate::replay::vector;

/// Takes gradient steps of implicit Q-learning on the caller's arrays.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ImplicitLearner {
    learner: Mutex<Kernel>,
    n_critics: usize,
    act_dim: usize,
}

#[pymethods]
impl ImplicitLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (obs_dim, act_dim, hidden, n_critics, *, log_std_bounds, critic_hidden=None, tanh=false))]
    fn new(
        obs_dim: usize,
        act_dim: usize,
        #[pyo3(from_py_with = parse_hidden)] hidden: Vec<usize>,
        n_critics: usize,
        log_std_bounds: [f64; 2],
        #[pyo3(from_py_with = parse_critic_hidden)] critic_hidden: Option<Vec<usize>>,
        tanh: bool,
    ) -> PyResult<Self> {
        let inputs = obs_dim.saturating_add(act_dim);
        let hidden = [&hidden[..], critic_hidden.as_deref().unwrap_or(&hidden)];
        check_networks(inputs, hidden, 2, n_critics.saturating_add(2))?;
        let learner = Kernel::new(obs_dim, act_dim, hidden, n_critics, log_std_bounds, tanh);
        let learner = Mutex::new(learner.map_err(raise)?);
        Ok(Self { learner, n_critics, act_dim })
    }

    /// Numbers of parameters of value, policy and critics.
    #[getter]
    fn n_parameters(&self) -> [usize; 3] {
        lock(&self.learner).n_parameters()
    }

    /// Take a gradient step of all networks; return the terms.
    #[pyo3(signature = (
        value, policy, critics, target, batch, *,
        learning_rate, policy_learning_rate, expectile, temperature, max_weight
    ))]
    fn step(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyDict>,
        policy: &Bound<'_, PyDict>,
        critics: &Bound<'_, PyDict>,
        target: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        #[pyo3(from_py_with = real::policy_learning_rate)] policy_learning_rate: f64,
        #[pyo3(from_py_with = real::expectile)] expectile: f64,
        #[pyo3(from_py_with = real::temperature)] temperature: f64,
        #[pyo3(from_py_with = real::max_weight)] max_weight: f64,
    ) -> PyResult<(f64, f64, f64, f64, f64)> {
        let mut value = Adam::parse(value, "value")?;
        let mut policy = Adam::parse(policy, "policy")?;
        let mut critics = Adam::parse(critics, "critics")?;
        let batch = BatchArrays::parse(batch)?;
        let losses = ImplicitLosses { expectile, temperature, max_weight };
        let parts = ImplicitParts {
            value: value.learnt(learning_rate)?,
            policy: policy.learnt(policy_learning_rate)?,
            critics: critics.learnt(learning_rate)?,
        };
        let target = real_array::<f32, Ix1>(target, "target")?;
        let actions = real_array::<f32, Ix2>(&batch.actions, "actions")?;
        let (target, actions, rows) = (target.as_slice()?, actions.as_slice()?, batch.view()?);
        let terms = py.detach(|| lock(&self.learner).step(parts, target, rows, actions, losses));
        let ImplicitTerms { value_loss, q_loss, policy_loss, q_value, weight } =
            terms.map_err(raise)?;
        Ok((value_loss, q_loss, policy_loss, q_value, weight))
    }

    /// The gradients of the last step of value, policy and critics.
    fn gradients<'py>(&self, py: Python<'py>) -> [Bound<'py, PyAny>; 3] {
        lock(&self.learner).gradients().map(|values| vector(py, &values))
    }

    fn __repr__(&self) -> String {
        format!("ImplicitLearner(act_dim={}, n_critics={})", self.act_dim, self.n_critics)
    }
}
