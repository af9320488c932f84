//! The buffer with its older transitions in a file.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Batch, Layout, TieredReplay};

use super::batch::parse_dict;
use super::fields::{Fields, Rows, raise_for_one};
use super::methods::buffer_methods;
use super::options::{ONE_STEP, Options};
use super::sampling::sample;
use super::state::{KEYS, OPTIONAL, Saved, changed_rows, rest, rows};
use crate::convert::parse_size;
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_transitions;

/// Transitions sampled uniformly with replacement, the newest in memory, the others in a file.
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct MmapReplayBuffer {
    buffer: Mutex<TieredReplay>,
    fields: Fields,
    hot: Layout,
    path: PathBuf,
    keep: bool,
}

buffer_methods!(MmapReplayBuffer, TieredReplay, [], [push sample] {
    #[new]
    #[pyo3(
        signature = (
            hot_capacity, total_capacity, obs_dim, act_dim, cold_path, keep=false, **options
        ),
        text_signature = "(hot_capacity, total_capacity, obs_dim, act_dim, cold_path, keep=False, \
                          *, obs_dtype='float32', act_dtype='float32', seed=None)"
    )]
    fn new(
        py: Python<'_>,
        hot_capacity: &Bound<'_, PyAny>,
        total_capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        cold_path: PathBuf,
        keep: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options::parse(options, ONE_STEP)?;
        let capacity = parse_size(hot_capacity, "hot_capacity")?;
        parse_size(total_capacity, "total_capacity")?;
        let fields = Fields::parse(total_capacity, obs_dim, act_dim, &options)?;
        let hot = Layout { capacity, ..fields.layout };
        check_transitions("hot_capacity", capacity, hot.memory_bytes().map_err(raise)?)?;
        let (stream, layout) = (options.stream()?, fields.layout);
        let buffer = py.detach(|| TieredReplay::open(layout, capacity, &cold_path, keep, stream));
        let buffer = Mutex::new(buffer.map_err(raise)?);
        Ok(Self { buffer, fields, hot, path: cold_path, keep })
    }

    /// Return the bytes of memory of such a buffer when full; its file takes more.
    #[staticmethod]
    #[pyo3(
        signature = (hot_capacity, obs_dim, act_dim, **options),
        text_signature = "(hot_capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                          act_dtype='float32')"
    )]
    fn memory_bytes(
        hot_capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<usize> {
        let options = Options::parse(options, ONE_STEP)?;
        let fields = Fields::parse(hot_capacity, obs_dim, act_dim, &options)?;
        fields.layout.memory_bytes().map_err(raise)
    }

    /// Bytes of memory of the buffer when full.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        self.hot.memory_bytes().map_err(raise)
    }

    /// Return a mark of the present, the number of filled slots, and those that have changed since
    /// an older mark; 0 means all.
    fn changed_rows(&self, py: Python<'_>, since: u64) -> (u64, usize, Vec<(usize, usize)>) {
        py.detach(|| {
            let buffer = lock(&self.buffer);
            changed_rows(buffer.written(), buffer.len(), buffer.changed(since))
        })
    }

    /// Return a copy of the part of `state()` with a row per slot, for some slots.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        rows(py, &self.fields, (start, stop), |batch, has_next_obs| {
            lock(&self.buffer).export_rows(start..stop, batch, has_next_obs)
        })
    }

    /// Return the part of `state()` without a row per slot.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (position, stream) = py.detach(|| {
            let buffer = lock(&self.buffer);
            (buffer.position(), buffer.stream().clone())
        });
        rest(py, &self.fields, position, &stream)
    }

    /// Return a copy of the buffer's complete state, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let n = py.detach(|| lock(&self.buffer).len());
        let state = self.rows(py, 0, n)?;
        state.update(self.rest(py)?.as_mapping())?;
        Ok(state)
    }

    /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = parse_dict(state, "state", KEYS, Some(OPTIONAL))?;
        let Saved { rows, has_next_obs, position, stream } = Saved::parse(state, &self.fields)?;
        let rows = rows.transitions()?;
        py.detach(|| lock(&self.buffer).restore(&rows, &has_next_obs, position, stream))
            .map_err(raise)
    }

    /// Make the stored transitions durable, if the file is to be kept.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.buffer).flush()).map_err(raise)
    }

    /// Close the file: delete it, or flush it if it is to be kept.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| lock(&self.buffer).close()).map_err(raise)
    }

    fn __enter__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let buffer = this.get();
        this.py().detach(|| lock(&buffer.buffer).check_open()).map_err(raise)?;
        Ok(this.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let Self { hot, path, keep, fields, .. } = self;
        let keep = if *keep { ", keep=True" } else { "" };
        let sizes =
            format!(", hot_capacity={}, cold_path='{}'{keep}", hot.capacity, path.display());
        fields.describe("MmapReplayBuffer", &sizes).replace("(capacity=", "(total_capacity=")
    }
});
