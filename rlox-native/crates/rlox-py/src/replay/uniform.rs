//! The uniformly sampled buffer.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Batch, UniformReplay};

use super::batch::parse_dict;
use super::fields::{Fields, Rows, raise_for_one};
use super::methods::buffer_methods;
use super::options::{N_STEP, Options};
use super::sampling::sample;
use super::sequences::{Request, sample_sequences};
use super::state::{KEYS, OPTIONAL, Saved, export};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_transitions;

/// Transitions in a ring, sampled uniformly with replacement.
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ReplayBuffer {
    buffer: Mutex<UniformReplay>,
    fields: Fields,
}

buffer_methods!(ReplayBuffer, UniformReplay, [()], [ring steps push sample rows state] {
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

    fn __repr__(&self) -> String {
        self.fields.describe("ReplayBuffer", "")
    }
});
