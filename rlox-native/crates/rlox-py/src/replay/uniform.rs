//! The buffer that is drawn from uniformly.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::UniformReplay;

use super::batch::parse_dict;
use super::fields::{Fields, Rows, raise_for_one};
use super::options::{N_STEP, Options};
use super::sampling::sample;
use super::sequences::{Request, sample_sequences};
use super::state::{KEYS, OPTIONAL, Saved, export};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_transitions;

/// Transitions in a ring, drawn from uniformly with replacement.
///
/// Calls from several threads are done one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ReplayBuffer {
    buffer: Mutex<UniformReplay>,
    fields: Fields,
}

#[pymethods]
impl ReplayBuffer {
    #[new]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, **options),
        text_signature = "(capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                          act_dtype='float32', n_envs=1, n_step=1, gamma=0.99, share_frames=False, \
                          seed=None)"
    )]
    fn new(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::parse(options, N_STEP)?;
        let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
        let bytes = fields.layout.memory_bytes().map_err(raise)?;
        check_transitions("capacity", fields.layout.capacity, bytes)?;
        let buffer = UniformReplay::new(fields.layout, options.stream()?).map_err(raise)?;
        Ok(Self { buffer: Mutex::new(buffer), fields })
    }

    /// Return the bytes of memory that such a buffer takes when it is full.
    #[staticmethod]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, **options),
        text_signature = "(capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                          act_dtype='float32', share_frames=False)"
    )]
    fn memory_bytes(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<usize> {
        let fields = Fields::parse(capacity, obs_dim, act_dim, &Options::parse(options, N_STEP)?)?;
        fields.layout.memory_bytes().map_err(raise)
    }

    /// How many transitions fit.
    #[getter]
    fn capacity(&self) -> usize {
        self.fields.layout.capacity
    }

    /// How many envs are stored in turn.
    #[getter]
    fn n_envs(&self) -> usize {
        self.fields.n_envs()
    }

    /// How many steps of its env a drawn transition spans.
    #[getter]
    fn n_step(&self) -> usize {
        self.fields.n_step()
    }

    /// The discount of the rewards within those steps, and of the value after them.
    #[getter]
    fn gamma(&self) -> f64 {
        self.fields.layout.n_step.gamma
    }

    /// Bytes of memory that the buffer takes when it is full.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        self.fields.layout.memory_bytes().map_err(raise)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| lock(&self.buffer).ring().len())
    }

    /// Store one transition, in the place of the oldest where the buffer is full.
    #[pyo3(signature = (obs, action, reward, terminated, truncated, next_obs=None))]
    #[expect(clippy::too_many_arguments, reason = "the parts of a transition")]
    fn push<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyAny>,
        action: &Bound<'py, PyAny>,
        reward: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let row = Rows::one(&self.fields, obs, action, reward, terminated, truncated, next_obs)?;
        let row = row.transitions()?;
        py.detach(|| lock(&self.buffer).push(&row)).map_err(raise_for_one)
    }

    /// Store several transitions, the rows of arrays.
    #[pyo3(signature = (obs, actions, rewards, terminated, truncated, next_obs=None))]
    #[expect(clippy::too_many_arguments, reason = "the parts of a transition")]
    fn push_batch<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyAny>,
        actions: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let rows =
            Rows::many(&self.fields, obs, actions, rewards, terminated, truncated, next_obs)?;
        let rows = rows.transitions()?;
        py.detach(|| lock(&self.buffer).push(&rows)).map_err(raise)
    }

    /// Draw transitions uniformly with replacement and return a dict of arrays.
    #[pyo3(signature = (batch_size, seed=None, *, out=None))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        batch_size: &Bound<'py, PyAny>,
        seed: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        sample(py, &self.fields, &self.buffer, batch_size, seed, out, UniformReplay::sample)
    }

    /// Draw sequences of steps of one env each and return a dict of arrays.
    #[pyo3(signature = (batch_size, seq_len, seed=None, *, cross_episodes=false))]
    fn sample_sequences<'py>(
        &self,
        py: Python<'py>,
        batch_size: &Bound<'py, PyAny>,
        seq_len: &Bound<'py, PyAny>,
        seed: Option<&Bound<'py, PyAny>>,
        cross_episodes: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let request = Request { batch_size, seq_len, seed, cross_episodes };
        sample_sequences(py, &self.fields, &self.buffer, &request, UniformReplay::sample_sequences)
    }

    /// Return a copy of all that decides how the buffer goes on, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        export(py, &self.fields, &self.buffer, |_| ()).map(|(state, ())| state)
    }

    /// Go on exactly from a `state()`; what is no state is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = parse_dict(state, "state", KEYS, Some(OPTIONAL))?;
        let Saved { rows, has_next_obs, position, stream } = Saved::parse(state, &self.fields)?;
        let rows = rows.transitions()?;
        py.detach(|| lock(&self.buffer).restore(&rows, &has_next_obs, position, stream))
            .map_err(raise)
    }

    fn __repr__(&self) -> String {
        self.fields.describe("ReplayBuffer", "")
    }
}
