//! The buffer of hindsight experience replay.

use std::sync::Mutex;

use numpy::PyArrayMethods;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Batch, HindsightReplay};

use super::arrays::zeros;
use super::batch::{BatchArrays, parse_dict, parse_out};
use super::fields::{Fields, Rows, raise_for_one};
use super::methods::buffer_methods;
use super::options::Options;
use super::relabelling::{Relabelling, describe, parse_hindsight};
use super::sampling::{BATCH_KEYS, sample_into, sample_new};
use super::state::{KEYS, OPTIONAL, Saved, export};
use crate::convert::{parse_seed, parse_size};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_transitions;

/// The options that describe transitions.
const ONE_STEP: &[&str] = &["obs_dtype", "act_dtype", "n_envs", "seed"];

/// Transitions of episodes with goals, drawn with goals reached later (HER).
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct HerReplayBuffer {
    buffer: Mutex<HindsightReplay>,
    fields: Fields,
    relabelling: Relabelling,
    description: String,
}

buffer_methods!(HerReplayBuffer, HindsightReplay, [()], [ring push_whole rows state] {
    #[new]
    #[pyo3(
        signature = (capacity, obs_dim, act_dim, goal_dim, compute_reward=None, **options),
        text_signature = "(capacity, obs_dim, act_dim, goal_dim, compute_reward=None, *, \
                          compute_terminated=None, distance_threshold=None, n_sampled_goal=4, \
                          goal_selection_strategy='future', achieved_goal=0, desired_goal=None, \
                          obs_dtype='float32', act_dtype='float32', n_envs=1, seed=None)"
    )]
    fn new(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        goal_dim: &Bound<'_, PyAny>,
        compute_reward: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        // A vector: the goals are parts of it.
        parse_size(obs_dim, "obs_dim")?;
        let (hindsight, relabelling, others) =
            parse_hindsight(goal_dim, compute_reward, options, ONE_STEP)?;
        let options = Options::parse(Some(&others), ONE_STEP)?;
        let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
        let bytes = HindsightReplay::memory_bytes(&fields.layout).map_err(raise)?;
        check_transitions("capacity", fields.layout.capacity, bytes)?;
        let buffer = HindsightReplay::new(fields.layout, hindsight, options.stream()?);
        let buffer = Mutex::new(buffer.map_err(raise)?);
        let description = fields.describe("HerReplayBuffer", &describe(&hindsight));
        Ok(Self { buffer, fields, relabelling, description })
    }

    /// Return the bytes of memory of such a buffer when full.
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
        let options = Options::parse(options, ONE_STEP)?;
        let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
        HindsightReplay::memory_bytes(&fields.layout).map_err(raise)
    }

    /// Show the caller's functions to the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.relabelling.traverse(&visit)
    }

    /// Draw transitions uniformly with replacement, most with other goals; return a dict of arrays.
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
        let relabelled = zeros::<bool>(py, &[n])?;
        let batch = {
            let mut rows = relabelled.try_readwrite()?;
            let rows = rows.as_slice_mut()?;
            let draw = |buffer: &mut HindsightReplay, batch: &mut Batch<'_>| {
                buffer.sample(seed, batch, rows)
            };
            if let Some(out) = out {
                sample_into(out, BatchArrays::of(out, &self.fields, n)?, &self.buffer, draw)?;
                out.clone()
            } else {
                sample_new(py, BatchArrays::drawn(py, &self.fields, n)?, &self.buffer, draw)?
            }
        };
        self.relabelling.recompute(&batch, &relabelled)?;
        Ok(batch)
    }

    fn __repr__(&self) -> &str {
        &self.description
    }
});
