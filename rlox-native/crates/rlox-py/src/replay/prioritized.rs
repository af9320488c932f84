//! The buffer sampled in proportion to priorities.

use std::sync::Mutex;

use numpy::{PyArrayDescrMethods, PyArrayMethods, PyReadwriteArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::KernelError;
use rlox_kernels::replay::{Batch, Importance, PrioritizedReplay, PriorityState};

use super::arrays::{Cells, caller_array, read_rows, vector, zeros};
use super::batch::{BatchArrays, item, parse_dict, parse_out};
use super::fields::{Fields, Rows, raise_for_one};
use super::methods::buffer_methods;
use super::options::{N_STEP, Options};
use super::sampling::{sample_into, sample_new};
use super::sequences::{Request, sample_sequences};
use super::state::{KEYS, OPTIONAL, Saved, export, rest, single};
use crate::convert::{as_real_array, parse_real, parse_seed, parse_size, real};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_transitions;

/// Required entries of a sample's `out`.
const BATCH_KEYS: &[&str] =
    &["obs", "actions", "rewards", "terminated", "truncated", "weights", "indices"];

/// Transitions in a ring, sampled in proportion to their priorities (Schaul et al. 2016).
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct PrioritizedReplayBuffer {
    buffer: Mutex<PrioritizedReplay>,
    fields: Fields,
    alpha: f64,
}

buffer_methods!(PrioritizedReplayBuffer, PrioritizedReplay, [None], [ring steps rows] {
    #[new]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, alpha=0.6, beta=0.4, **options),
        text_signature = "(capacity, obs_dim, act_dim, alpha=0.6, beta=0.4, *, obs_dtype='float32', \
                          act_dtype='float32', n_envs=1, n_step=1, gamma=0.99, share_frames=False, \
                          seed=None)"
    )]
    fn new(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = real::alpha)] alpha: f64,
        #[pyo3(from_py_with = real::beta)] beta: f64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::parse(options, N_STEP)?;
        let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
        let bytes = PrioritizedReplay::memory_bytes(&fields.layout).map_err(raise)?;
        check_transitions("capacity", fields.layout.capacity, bytes)?;
        let buffer =
            PrioritizedReplay::new(fields.layout, alpha, beta, options.stream()?).map_err(raise)?;
        Ok(Self { buffer: Mutex::new(buffer), fields, alpha })
    }

    /// Store one transition, replacing the oldest if the buffer is full.
    #[pyo3(signature = (obs, action, reward, terminated, truncated, next_obs=None, priority=None))]
    fn push<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyAny>,
        action: &Bound<'py, PyAny>,
        reward: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let priority =
            priority.map(|priority| parse_real(priority, "priority").map(|p| [p])).transpose()?;
        let row = Rows::one(&self.fields, obs, action, reward, terminated, truncated, next_obs)?;
        let row = row.transitions()?;
        let priority = priority.as_ref().map(<[f64; 1]>::as_slice);
        py.detach(|| lock(&self.buffer).push(&row, priority)).map_err(raise_for_one)
    }

    /// Store several transitions, the rows of arrays.
    #[pyo3(signature = (obs, actions, rewards, terminated, truncated, next_obs=None, priorities=None))]
    fn push_batch<'py>(
        &self,
        py: Python<'py>,
        obs: &Bound<'py, PyAny>,
        actions: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
        priorities: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let rows =
            Rows::many(&self.fields, obs, actions, rewards, terminated, truncated, next_obs)?;
        let priorities = priorities
            .map(|priorities| read_rows::<f64>(priorities, "priorities", "rewards", rows.len()))
            .transpose()?;
        let priorities = priorities.as_ref().map(Cells::as_slice).transpose()?;
        let rows = rows.transitions()?;
        py.detach(|| lock(&self.buffer).push(&rows, priorities)).map_err(raise)
    }

    /// Draw transitions in proportion to their priorities and return a dict of arrays.
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
        let out = out.map(|out| parse_out(out, &self.fields, BATCH_KEYS)).transpose()?;
        let (mut weights, mut indices): (
            PyReadwriteArrayDyn<'py, f32>,
            PyReadwriteArrayDyn<'py, u64>,
        ) = match out {
            None => (zeros(py, &[n])?.try_readwrite()?, zeros(py, &[n])?.try_readwrite()?),
            Some(out) => (
                caller_array(&item(out, "weights")?, "weights", &[n])?,
                caller_array(&item(out, "indices")?, "indices", &[n])?,
            ),
        };
        let mut importance =
            Importance { weights: weights.as_slice_mut()?, indices: indices.as_slice_mut()? };
        let sample = |buffer: &mut PrioritizedReplay, batch: &mut Batch<'_>| {
            buffer.sample(seed, batch, &mut importance)
        };
        if let Some(out) = out {
            let arrays = BatchArrays::of(out, &self.fields, n)?;
            sample_into(out, arrays, &self.buffer, sample)?;
            return Ok(out.clone());
        }
        let arrays = BatchArrays::drawn(py, &self.fields, n)?;
        let batch = sample_new(py, arrays, &self.buffer, sample)?;
        batch.set_item(intern!(py, "weights"), weights.as_any())?;
        batch.set_item(intern!(py, "indices"), indices.as_any())?;
        Ok(batch)
    }

    /// Give the transitions at `indices` new priorities; for repeated indices the last counts.
    fn update_priorities<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let array = as_real_array(indices, "indices")?;
        let (&[n], dtype) = (array.shape(), array.dtype()) else {
            let text = format!("indices must have 1 dimension, got {}", array.ndim());
            return Err(PyValueError::new_err(text));
        };
        if n > 0 && !b"iu".contains(&dtype.kind()) {
            let text = format!("indices must be integers, got dtype {dtype}");
            return Err(PyTypeError::new_err(text));
        }
        let indices = read_rows::<u64>(array.as_any(), "indices", "indices", n)?;
        let priorities = read_rows::<f64>(priorities, "priorities", "indices", n)?;
        let (indices, priorities) = (indices.as_slice()?, priorities.as_slice()?);
        py.detach(|| lock(&self.buffer).update_priorities(indices, priorities)).map_err(raise)
    }

    /// Set the exponent of the weights, in [0, 1].
    fn set_beta(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = real::beta)] beta: f64,
    ) -> PyResult<()> {
        py.detach(|| lock(&self.buffer).set_beta(beta)).map_err(raise)
    }

    /// The exponent of the priorities.
    #[getter]
    fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The exponent of the weights.
    #[getter]
    fn beta(&self, py: Python<'_>) -> f64 {
        py.detach(|| lock(&self.buffer).beta())
    }

    /// Return the part of `state()` without a row per slot, and the priorities.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (position, stream, priorities) = py.detach(|| {
            let buffer = lock(&self.buffer);
            (buffer.ring().position(), buffer.stream().clone(), Priorities::of(&buffer))
        });
        let rest = rest(py, &self.fields, position, &stream)?;
        self.add_priorities(&rest, &priorities.map_err(raise)?)?;
        Ok(rest)
    }

    /// Return a copy of the buffer's complete state, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (state, priorities) = export(py, &self.fields, &self.buffer, Priorities::of)?;
        self.add_priorities(&state, &priorities.map_err(raise)?)?;
        Ok(state)
    }

    /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = [KEYS, &["priorities", "max_priority", "alpha", "beta"]].concat();
        let state = parse_dict(state, "state", &keys, Some(OPTIONAL))?;
        let Saved { rows, has_next_obs, position, stream } = Saved::parse(state, &self.fields)?;
        let alpha = single::<f64>(&item(state, "alpha")?, "alpha")?;
        if alpha != self.alpha {
            let text = format!("alpha must be {} as in the state, got {}", alpha, self.alpha);
            return Err(PyValueError::new_err(text));
        }
        let scaled =
            read_rows::<f64>(&item(state, "priorities")?, "priorities", "rewards", rows.len())?;
        let priorities = PriorityState {
            scaled: scaled.as_slice()?,
            max_priority: single::<f64>(&item(state, "max_priority")?, "max_priority")?,
            beta: single::<f64>(&item(state, "beta")?, "beta")?,
        };
        let rows = rows.transitions()?;
        py.detach(|| {
            lock(&self.buffer).restore(&rows, &has_next_obs, position, stream, &priorities)
        })
        .map_err(raise)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let options = format!(", alpha={}, beta={}", self.alpha, self.beta(py));
        self.fields.describe("PrioritizedReplayBuffer", &options)
    }
});

/// A state's entries in addition to ring and stream.
struct Priorities {
    scaled: Vec<f64>,
    largest: f64,
    beta: f64,
}

impl Priorities {
    fn of(buffer: &PrioritizedReplay) -> Result<Self, KernelError> {
        let mut scaled = vec![0.0; buffer.ring().len()];
        buffer.export_priorities(&mut scaled)?;
        Ok(Self { scaled, largest: buffer.max_priority(), beta: buffer.beta() })
    }
}

impl PrioritizedReplayBuffer {
    fn add_priorities(&self, state: &Bound<'_, PyDict>, priorities: &Priorities) -> PyResult<()> {
        let py = state.py();
        state.set_item("priorities", vector(py, &priorities.scaled))?;
        state.set_item("max_priority", vector(py, &[priorities.largest]))?;
        state.set_item("alpha", vector(py, &[self.alpha]))?;
        state.set_item("beta", vector(py, &[priorities.beta]))
    }
}
