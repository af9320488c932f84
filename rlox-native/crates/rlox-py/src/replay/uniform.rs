//! The buffer that is drawn from uniformly.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Batch, UniformReplay};

use super::batch::{BatchArrays, parse_dict, parse_out};
use super::fields::{Fields, Rows, raise_for_one};
use super::options::Options;
use super::state::{KEYS, Saved, Stored, export, lock};
use crate::convert::{parse_seed, parse_size};
use crate::errors::raise;
use crate::memory::check_memory;

/// The entries that the `out` of a sample must have.
pub(super) const BATCH_KEYS: &[&str] = &["obs", "actions", "rewards", "terminated", "truncated"];

/// Transitions in a ring, drawn from uniformly with replacement.
///
/// Calls from several threads are done one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ReplayBuffer {
    buffer: Mutex<UniformReplay>,
    fields: Fields,
}

/// Draws into the caller's arrays, which must have next observations if and only if the buffer has.
pub(super) fn sample_into<'py, B: Stored>(
    out: &Bound<'py, PyDict>,
    mut arrays: BatchArrays<'py>,
    buffer: &Mutex<B>,
    sample: impl FnOnce(&mut B, &mut Batch<'_>) -> rlox_kernels::Result<()> + Send,
) -> PyResult<()> {
    let mut batch = arrays.batch()?;
    let drawn = out.py().detach(|| {
        let mut buffer = lock(buffer);
        if batch.next_obs.is_none() && buffer.ring().has_all_next_obs() && !buffer.ring().is_empty()
        {
            return Ok(false);
        }
        sample(&mut buffer, &mut batch).map(|()| true)
    });
    if drawn.map_err(raise)? {
        return Ok(());
    }
    Err(PyValueError::new_err("out must have the key next_obs"))
}

/// Draws into new arrays.
pub(super) fn sample_new<'py, B: Stored>(
    py: Python<'py>,
    mut arrays: BatchArrays<'py>,
    buffer: &Mutex<B>,
    sample: impl FnOnce(&mut B, &mut Batch<'_>) -> rlox_kernels::Result<()> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let mut batch = arrays.batch()?;
    let complete = py.detach(|| {
        let mut buffer = lock(buffer);
        let complete = buffer.ring().has_all_next_obs();
        if !complete {
            batch.next_obs = None;
        }
        sample(&mut buffer, &mut batch).map(|()| complete)
    });
    let complete = complete.map_err(raise)?;
    arrays.into_dict(py, complete)
}

#[pymethods]
impl ReplayBuffer {
    #[new]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, **options),
        text_signature = "(capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                          act_dtype='float32', n_envs=1, n_step=1, gamma=0.99, seed=None)"
    )]
    fn new(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::parse(options)?;
        let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
        check_memory(fields.layout.capacity, fields.layout.memory_bytes().map_err(raise)?)?;
        let buffer = UniformReplay::new(fields.layout, options.stream()?).map_err(raise)?;
        Ok(Self { buffer: Mutex::new(buffer), fields })
    }

    /// Return the bytes of memory that such a buffer takes when it is full.
    #[staticmethod]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, **options),
        text_signature = "(capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                          act_dtype='float32')"
    )]
    fn memory_bytes(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<usize> {
        let fields = Fields::parse(capacity, obs_dim, act_dim, &Options::parse(options)?)?;
        fields.layout.memory_bytes().map_err(raise)
    }

    /// How many transitions fit.
    #[getter]
    fn capacity(&self) -> usize {
        self.fields.layout.capacity
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
        let n = parse_size(batch_size, "batch_size")?;
        let seed = seed.map(parse_seed).transpose()?;
        let sample = |buffer: &mut UniformReplay, batch: &mut Batch<'_>| buffer.sample(seed, batch);
        let Some(out) = out else {
            let arrays = BatchArrays::drawn(py, &self.fields, n)?;
            return sample_new(py, arrays, &self.buffer, sample);
        };
        let out = parse_out(out, &self.fields, BATCH_KEYS)?;
        let arrays = BatchArrays::of(out, &self.fields, n)?;
        sample_into(out, arrays, &self.buffer, sample)?;
        Ok(out.clone())
    }

    /// Return a copy of all that decides how the buffer goes on, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        export(py, &self.fields, &self.buffer, |_| ()).map(|(state, ())| state)
    }

    /// Go on exactly from a `state()`; what is no state is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = parse_dict(state, "state", KEYS, None)?;
        let Saved { rows, has_next_obs, position, stream } = Saved::parse(state, &self.fields)?;
        let rows = rows.transitions()?;
        py.detach(|| lock(&self.buffer).restore(&rows, &has_next_obs, position, stream))
            .map_err(raise)
    }

    fn __repr__(&self) -> String {
        self.fields.describe("ReplayBuffer", "")
    }
}
