//! Implicit Q-learning.

use std::sync::Mutex;

use numpy::{Element, Ix1, Ix2, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::Real;
use rlox_learner::off_policy::{
    ImplicitLearner as Kernel, ImplicitLosses, ImplicitParts, ImplicitTerms, Learnt,
};

use super::{Adam, BatchArrays};
use crate::convert::{real, real_array};
use crate::errors::raise;
use crate::locks::lock;
use crate::precision::{Precise, of_dtype, with_learner};

type Learners = Precise<Kernel<f32>, Kernel<f64>>;

/// Takes gradient steps of implicit Q-learning on arrays that the caller keeps.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ImplicitLearner {
    learner: Learners,
    n_critics: usize,
    act_dim: usize,
}

/// What Python gives to move, with its step size.
type Part<'py> = (Adam<'py>, f64);

#[pymethods]
impl ImplicitLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (obs_dim, act_dim, hidden, n_critics, *, log_std_bounds, dtype="float32"))]
    fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: Vec<usize>,
        n_critics: usize,
        log_std_bounds: [f64; 2],
        dtype: &str,
    ) -> PyResult<Self> {
        let learner = of_dtype(
            dtype,
            || Kernel::new(obs_dim, act_dim, &hidden, n_critics, log_std_bounds),
            || Kernel::new(obs_dim, act_dim, &hidden, n_critics, log_std_bounds),
        )?;
        Ok(Self { learner, n_critics, act_dim })
    }

    /// How many parameters value, policy and critics have.
    #[getter]
    fn n_parameters(&self) -> [usize; 3] {
        with_learner!(self.learner, |learner| lock(learner).n_parameters())
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
        let parts = [
            (Adam::parse(value, "value")?, learning_rate),
            (Adam::parse(policy, "policy")?, policy_learning_rate),
            (Adam::parse(critics, "critics")?, learning_rate),
        ];
        let batch = BatchArrays::parse(batch)?;
        let losses = ImplicitLosses { expectile, temperature, max_weight };
        let terms = with_learner!(self.learner, |learner| run(
            py, learner, &parts, target, &batch, losses
        ))?;
        let ImplicitTerms { value_loss, q_loss, policy_loss, q_value, weight } = terms;
        Ok((value_loss, q_loss, policy_loss, q_value, weight))
    }

    /// The gradients of the last step of value, policy and critics.
    fn gradients(&self, py: Python<'_>) -> [Py<PyAny>; 3] {
        with_learner!(self.learner, |learner| copied(py, learner))
    }

    fn __repr__(&self) -> String {
        format!("ImplicitLearner(act_dim={}, n_critics={})", self.act_dim, self.n_critics)
    }
}

fn run<F: Real + Element>(
    py: Python<'_>,
    learner: &Mutex<Kernel<F>>,
    parts: &[Part<'_>; 3],
    target: &Bound<'_, PyAny>,
    batch: &BatchArrays<'_>,
    losses: ImplicitLosses,
) -> PyResult<ImplicitTerms> {
    let [value, policy, critics] = parts;
    let mut arrays = [value.0.borrow::<F>()?, policy.0.borrow()?, critics.0.borrow()?];
    let [of_value, of_policy, of_critics] = &mut arrays;
    let learnt = |(adam, rate): &Part<'_>, parameters, moments| Learnt {
        parameters,
        moments,
        rule: adam.rule(*rate),
    };
    let (parameters, moments) = of_value.view()?;
    let value = learnt(value, parameters, moments);
    let (parameters, moments) = of_policy.view()?;
    let policy = learnt(policy, parameters, moments);
    let (parameters, moments) = of_critics.view()?;
    let critics = learnt(critics, parameters, moments);
    let target = real_array::<F, Ix1>(target, "target")?;
    let actions = real_array::<F, Ix2>(&batch.actions, "actions")?;
    let rows = batch.borrow::<F>()?;
    let (target, actions, rows) = (target.as_slice()?, actions.as_slice()?, rows.view()?);
    let parts = ImplicitParts { value, policy, critics };
    py.detach(|| lock(learner).step(parts, target, rows, actions, losses)).map_err(raise)
}

fn copied<F: Real + Element>(py: Python<'_>, learner: &Mutex<Kernel<F>>) -> [Py<PyAny>; 3] {
    lock(learner).gradients().map(|values| PyArray1::from_slice(py, values).into_any().unbind())
}
