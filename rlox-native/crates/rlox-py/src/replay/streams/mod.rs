//! The stream buffer, with rows of fields of any numbers.

mod columns;
mod rest;

use std::sync::Mutex;

use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rlox_kernels::replay::{SequenceReplay, Streams};

use self::columns::{
    Column, OutBytes, has, listed, mapping, names, parse_columns, parse_fields, slices, slices_mut,
};
use self::rest::{REST, parse_rest, rest};
use super::options::parse_stream;
use super::state::Slots;
use crate::convert::{as_real_array, numpy_call, parse_count, parse_seed, parse_size};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_room;

/// The last rows of each env's stream, sampled as sequences of consecutive rows, uniformly.
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct SequenceReplayBuffer {
    buffer: Mutex<SequenceReplay>,
    sizes: Streams,
    columns: Vec<Column>,
    declared: Vec<String>,
}

#[pymethods]
impl SequenceReplayBuffer {
    #[new]
    #[pyo3(signature = (capacity, fields, *, declared=None, n_envs=None, online_length=None, seed=None),
           text_signature = "(capacity, fields, *, declared=(), n_envs=1, online_length=None, seed=None)")]
    fn new(
        capacity: &Bound<'_, PyAny>,
        fields: &Bound<'_, PyAny>,
        declared: Option<Vec<String>>,
        n_envs: Option<&Bound<'_, PyAny>>,
        online_length: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = fields.py();
        let sizes = Streams {
            capacity: parse_size(capacity, "capacity")?,
            n_envs: n_envs.map_or(Ok(1), |n_envs| parse_size(n_envs, "n_envs"))?,
            online_length: online_length
                .map(|length| parse_size(length, "online_length"))
                .transpose()?,
        };
        let columns = parse_columns(fields)?;
        let declared = declared.unwrap_or_default();
        let unknown: Vec<_> = declared.iter().filter(|name| !has(&columns, name)).collect();
        if !unknown.is_empty() {
            let text = "declared must name some of the fields";
            return Err(listed(py, text, names(&columns), unknown.into_iter().cloned()));
        }
        let stream = parse_stream(seed.map(parse_seed).transpose()?)?;
        let row = columns.iter().fold(0_usize, |sum, column| sum.saturating_add(column.bytes));
        let bytes = sizes.capacity.saturating_mul(row);
        check_room("capacity", &sizes.capacity, bytes, "; keep fewer rows")?;
        let row_bytes = columns.iter().map(|column| column.bytes).collect();
        let buffer = SequenceReplay::new(sizes, row_bytes, stream).map_err(raise)?;
        Ok(Self { buffer: Mutex::new(buffer), sizes, columns, declared })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| lock(&self.buffer).len())
    }

    fn __repr__(&self) -> String {
        let Streams { capacity, n_envs, .. } = self.sizes;
        format!("SequenceReplayBuffer of {capacity} rows of {n_envs} envs")
    }

    /// Number of streams.
    #[getter]
    fn n_envs(&self) -> usize {
        self.sizes.n_envs
    }

    /// Largest number of rows.
    #[getter]
    fn capacity(&self) -> usize {
        lock(&self.buffer).capacity()
    }

    /// Bytes of the rows when full.
    #[getter]
    fn nbytes(&self) -> usize {
        self.capacity() * self.columns.iter().map(|column| column.bytes).sum::<usize>()
    }

    /// Append one row to the streams of some envs.
    fn push(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        envs: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let envs = envs_of(envs, self.sizes.n_envs)?;
        let rows = parse_fields(rows, names(&self.columns))?;
        let rows = self.columns.iter().map(|column| column.bytes_of(&rows, "", &[envs.len()]));
        let rows = rows.collect::<PyResult<Vec<_>>>()?;
        let rows = slices(&rows)?;
        py.detach(|| lock(&self.buffer).push(&rows, &envs)).map_err(raise)
    }

    /// Return sequences of consecutive rows of one stream each.
    #[pyo3(signature = (batch_size, length, seed=None))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        batch_size: &Bound<'py, PyAny>,
        length: &Bound<'py, PyAny>,
        seed: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let count = parse_size(batch_size, "batch_size")?;
        let length = parse_size(length, "length")?;
        let seed = seed.map(parse_seed).transpose()?;
        py.detach(|| lock(&self.buffer).ends(length)).map_err(raise)?;
        // time-major, as models read them, viewed as (B, T + 1, ...)
        let axes = [length.saturating_add(1), count];
        let mut arrays = self.new_arrays(py, &axes)?;
        let indices = numpy_call(py, "empty", (axes, "int64"))?.cast_into::<PyArrayDyn<i64>>()?;
        let mut numbers = indices.try_readwrite()?;
        let numbers = numbers.as_slice_mut()?;
        let mut out = slices_mut(&mut arrays)?;
        py.detach(|| lock(&self.buffer).sample(seed, length, &mut out, numbers)).map_err(raise)?;
        let batch = PyDict::new(py);
        for (column, (array, _)) in self.columns.iter().zip(&arrays) {
            batch.set_item(&column.name, array.call_method1(intern!(py, "swapaxes"), (0, 1))?)?;
        }
        batch.set_item("indices", indices.call_method1(intern!(py, "swapaxes"), (0, 1))?)?;
        Ok(batch)
    }

    /// Write declared fields of rows back; rows overwritten since then are left alone.
    fn update(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        fields: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let rows = as_real_array(indices, "indices")?;
        if rows.len() > 0 && !matches!(rows.dtype().kind(), b'i' | b'u') {
            let text = format!("indices must be integers, got dtype {}", rows.dtype());
            return Err(PyTypeError::new_err(text));
        }
        let axes = rows.shape().to_vec();
        let rows = numpy_call(py, "ascontiguousarray", (rows, "int64"))?;
        let rows: PyReadonlyArrayDyn<'_, i64> =
            rows.cast_into::<PyArrayDyn<i64>>()?.try_readonly()?;
        let fields = mapping(fields)?;
        let mut columns = Vec::new();
        for name in fields.keys() {
            let place =
                self.columns.iter().position(|column| name.eq(&column.name).unwrap_or(false));
            let place = place.filter(|_| self.declared.iter().any(|d| name.eq(d).unwrap_or(false)));
            let Some((place, column)) = place.and_then(|at| Some((at, self.columns.get(at)?)))
            else {
                let (declared, name) = (PyList::new(py, &self.declared)?, name.repr()?);
                let text = format!("declared fields are {declared}, got {name}");
                return Err(PyValueError::new_err(text));
            };
            columns.push((place, column.bytes_of(&fields, "", &axes)?));
        }
        let columns = columns
            .iter()
            .map(|(place, bytes)| Ok((*place, bytes.as_slice()?)))
            .collect::<PyResult<Vec<_>>>()?;
        let rows = rows.as_slice()?;
        py.detach(|| lock(&self.buffer).update(rows, &columns)).map_err(raise)
    }

    /// Return the slots that may have changed since an older call.
    fn changed_rows(
        &self,
        py: Python<'_>,
        since: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, usize, Slots)> {
        let since = parse_count(since, "since")? as u64;
        Ok(py.detach(|| {
            let buffer = lock(&self.buffer);
            let (mark, runs) = buffer.changed(since);
            (mark, buffer.filled(), runs.into_iter().map(|run| (run.start, run.end)).collect())
        }))
    }

    /// Return a copy of the fields in the slots from `start` to `stop`.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        start: &Bound<'py, PyAny>,
        stop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (start, stop) = (parse_count(start, "start")?, parse_count(stop, "stop")?);
        let filled = py.detach(|| lock(&self.buffer).filled());
        if start > stop || stop > filled {
            let text = format!("slots must lie in [0, {filled}], got {start} to {stop}");
            return Err(PyValueError::new_err(text));
        }
        let mut arrays = self.new_arrays(py, &[stop - start])?;
        let mut out = slices_mut(&mut arrays)?;
        py.detach(|| lock(&self.buffer).export(start..stop, &mut out)).map_err(raise)?;
        self.saved_rows(py, &arrays)
    }

    /// Return a copy of the part of `state()` without a row per slot.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        rest(py, &py.detach(|| lock(&self.buffer).state().clone()))
    }

    /// Return a copy of the complete state.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // The arrays are allocated without the lock: again if a push came in between.
        loop {
            let filled = py.detach(|| lock(&self.buffer).filled());
            let mut arrays = self.new_arrays(py, &[filled])?;
            let mut out = slices_mut(&mut arrays)?;
            let saved = py.detach(|| {
                let buffer = lock(&self.buffer);
                if buffer.filled() != filled {
                    return Ok(None);
                }
                buffer.export(0..filled, &mut out).map(|()| Some(buffer.state().clone()))
            });
            if let Some(saved) = saved.map_err(raise)? {
                let state = self.saved_rows(py, &arrays)?;
                state.update(rest(py, &saved)?.as_mapping())?;
                return Ok(state);
            }
        }
    }

    /// Restore what `state()` returned.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = self.columns.iter().map(|column| format!("row {}", column.name));
        let state = parse_fields(state, rows.chain(REST.map(String::from)))?;
        let saved = parse_rest(&state, self.sizes.n_envs)?;
        let filled = py.detach(|| lock(&self.buffer).check_state(&saved)).map_err(raise)?;
        let rows = self.columns.iter().map(|column| column.bytes_of(&state, "row ", &[filled]));
        let rows = rows.collect::<PyResult<Vec<_>>>()?;
        let rows = slices(&rows)?;
        py.detach(|| lock(&self.buffer).import(saved, &rows)).map_err(raise)
    }
}

impl SequenceReplayBuffer {
    /// A new array for each field, with these leading axes.
    fn new_arrays<'py>(&self, py: Python<'py>, axes: &[usize]) -> PyResult<Vec<OutBytes<'py>>> {
        self.columns.iter().map(|column| column.new_array(py, axes)).collect()
    }

    fn saved_rows<'py>(
        &self,
        py: Python<'py>,
        arrays: &[OutBytes<'py>],
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = PyDict::new(py);
        for (column, (array, _)) in self.columns.iter().zip(arrays) {
            rows.set_item(format!("row {}", column.name), array)?;
        }
        Ok(rows)
    }
}

/// Numbers of streams.
fn envs_of(object: &Bound<'_, PyAny>, n_envs: usize) -> PyResult<Vec<usize>> {
    let py = object.py();
    let array = as_real_array(object, "envs")?;
    if array.ndim() != 1 || array.len() > 0 && !matches!(array.dtype().kind(), b'i' | b'u') {
        let text = format!("envs must be integers (M,), got {}", object.repr()?);
        return Err(PyTypeError::new_err(text));
    }
    let array = numpy_call(py, "ascontiguousarray", (array, "int64"))?;
    let array = array.cast_into::<PyArrayDyn<i64>>()?.try_readonly()?;
    let numbers = array.as_slice()?;
    let envs: Vec<usize> = numbers.iter().map_while(|&env| usize::try_from(env).ok()).collect();
    if envs.len() < numbers.len() || envs.iter().any(|&env| env >= n_envs) {
        let text = format!("envs must lie in [0, {n_envs}), got {numbers:?}");
        return Err(PyValueError::new_err(text));
    }
    Ok(envs)
}
