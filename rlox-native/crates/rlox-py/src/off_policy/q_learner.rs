//! Deep Q-learning.

use std::sync::Mutex;

use numpy::{Ix1, Ix2, PyArray1, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::off_policy::{self as kernels, ElementLoss, QNetwork, QStep};

use super::{Adam, BatchArrays};
use crate::convert::{check_shape, parse_hidden, real, real_array};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_networks;
use crate::output::filled;
use crate::replay::{Expected, read, vector};

/// Takes gradient steps of action values on the caller's arrays.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct QLearner {
    learner: Mutex<kernels::QLearner>,
    shape: QNetwork,
}

#[pymethods]
impl QLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (obs_dim, hidden, n_actions, *, dueling=false, tanh=false))]
    fn new(
        obs_dim: usize,
        #[pyo3(from_py_with = parse_hidden)] hidden: Vec<usize>,
        n_actions: usize,
        dueling: bool,
        tanh: bool,
    ) -> PyResult<Self> {
        check_networks(obs_dim, [&hidden; 2], n_actions, 1)?;
        let shape = match (dueling, hidden.as_slice()) {
            (true, &[width]) => QNetwork::dueling(obs_dim, width, n_actions, tanh),
            (true, _) => {
                let text = format!("a dueling network has one width, got {hidden:?}");
                return Err(pyo3::exceptions::PyValueError::new_err(text));
            }
            (false, hidden) => QNetwork::plain(obs_dim, hidden, n_actions, tanh),
        }
        .map_err(raise)?;
        Ok(Self { learner: Mutex::new(kernels::QLearner::new(shape.clone())), shape })
    }

    /// Number of parameters of the network.
    #[getter]
    fn n_parameters(&self) -> usize {
        self.shape.n_parameters()
    }

    /// Take one gradient step; return the loss, the mean value and the TD errors.
    #[pyo3(signature = (learnt, target, batch, *, learning_rate, double, huber))]
    fn step(
        &self,
        py: Python<'_>,
        learnt: &Bound<'_, PyDict>,
        target: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        double: bool,
        huber: bool,
    ) -> PyResult<(f64, f64, Py<PyAny>)> {
        let mut learnt = Adam::parse(learnt, "learnt")?;
        let batch = BatchArrays::parse(batch)?;
        let loss = if huber { ElementLoss::Huber } else { ElementLoss::Squared };
        let target = real_array::<f32, Ix1>(target, "target")?;
        let rows = batch.len();
        let expected = Expected { shape: &[rows, 1], like: "rewards", optional: 0 };
        let actions = read::<i64>(&batch.actions, "actions", &expected)?;
        let mut errors = vec![0.0; rows];
        let step = QStep { target: target.as_slice()?, double, loss };
        let (learnt, actions) = (learnt.learnt(learning_rate)?, actions.as_slice()?);
        let (batch, out) = (batch.view()?, &mut errors);
        let terms = py.detach(|| lock(&self.learner).step(learnt, batch, actions, step, out));
        let terms = terms.map_err(raise)?;
        Ok((terms.loss, terms.value, PyArray1::from_vec(py, errors).into_any().unbind()))
    }

    /// Return the action with the largest value in each row of `obs`, `(N,)`.
    #[pyo3(signature = (parameters, obs))]
    fn act<'py>(
        &self,
        parameters: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let rows = obs.shape().first().copied().unwrap_or(0);
        check_shape("obs", obs.shape(), "the network", &[rows, self.shape.obs_dim()])?;
        let (py, parameters, seen) = (obs.py(), parameters.as_slice()?, obs.as_slice()?);
        filled(py, Ix1(rows), |actions| lock(&self.learner).act(parameters, seen, actions))
    }

    /// The clipped gradient of the last step, `(n_parameters,)`.
    fn gradients<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        vector(py, &lock(&self.learner).gradients())
    }

    fn __repr__(&self) -> String {
        let Self { shape, .. } = self;
        format!("QLearner(obs_dim={}, n_actions={})", shape.obs_dim(), shape.n_actions())
    }
}
