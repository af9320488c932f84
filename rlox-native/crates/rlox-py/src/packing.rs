//! Packing of sequences.

use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyIterator};
use rlox_kernels::packing::pack;

use crate::convert::{as_real_array, parse_size};
use crate::errors::raise;
use crate::memory::check_room;
use crate::replay::{Cells, read_rows};

/// Sequences packed into rows; unpacks as `packed, masks, positions`.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct PackedSequences {
    #[pyo3(get)]
    packed: Py<PyArray2<i64>>,
    #[pyo3(get)]
    masks: Py<PyArray2<bool>>,
    #[pyo3(get)]
    positions: Py<PyArray2<i64>>,
    #[pyo3(get)]
    indices: Py<PyArray1<i64>>,
    #[pyo3(get)]
    rows: Py<PyArray1<i64>>,
    #[pyo3(get)]
    cu_seqlens: Py<PyArray1<i32>>,
}

#[pymethods]
impl PackedSequences {
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        (&self.packed, &self.masks, &self.positions).into_pyobject(py)?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let n_rows = self.packed.bind(py).shape().first().copied().unwrap_or(0);
        let n_sequences = self.indices.bind(py).len();
        format!("PackedSequences(n_sequences={n_sequences}, n_rows={n_rows})")
    }
}

/// Pack sequences into rows of `max_len` by first-fit decreasing.
///
/// With lengths as `sequences`, the rows hold positions in the concatenated sequences; with arrays
/// of tokens, they hold tokens.
#[pyfunction]
pub(crate) fn pack_sequences(
    py: Python<'_>,
    sequences: &Bound<'_, PyAny>,
    max_len: &Bound<'_, PyAny>,
) -> PyResult<PackedSequences> {
    let max_len = parse_size(max_len, "max_len")?;
    let items: Vec<Bound<'_, PyAny>> = sequences.try_iter()?.collect::<PyResult<_>>()?;
    // Lengths are scalars; tokens come in arrays or lists.
    let has_tokens = items.first().is_some_and(|first| first.len().is_ok());
    let tokens: Vec<Cells<'_, i64>> = if has_tokens {
        items.iter().map(|item| integers(item, "tokens")).collect::<PyResult<_>>()?
    } else {
        Vec::new()
    };
    let tokens: Vec<&[i64]> = tokens.iter().map(Cells::as_slice).collect::<PyResult<_>>()?;
    let lengths: Vec<usize> = if has_tokens {
        tokens.iter().map(|tokens| tokens.len()).collect()
    } else {
        items.iter().map(parse_length).collect::<PyResult<_>>()?
    };
    let packing = py.detach(|| pack(&lengths, max_len)).map_err(raise)?;
    // A place is a token, a flag and a position.
    let places = packing.n_rows.saturating_mul(max_len);
    check_room("max_len", &max_len, places.saturating_mul(8 + 1 + 8), "")?;
    let rows = py.detach(|| {
        if has_tokens {
            return packing.lay_out(0, |sequence, position| {
                tokens.get(sequence).and_then(|t| t.get(position)).copied().unwrap_or_default()
            });
        }
        let starts = starts(&lengths);
        packing.lay_out(-1, |sequence, position| {
            starts.get(sequence).copied().unwrap_or_default() + signed(position)
        })
    });
    let rows = rows.map_err(raise)?;
    let shape = [packing.n_rows, max_len];
    let places = |places: Vec<usize>| places.into_iter().map(signed).collect::<Vec<i64>>();
    Ok(PackedSequences {
        packed: rows.packed.into_pyarray(py).reshape(shape)?.unbind(),
        masks: rows.masks.into_pyarray(py).reshape(shape)?.unbind(),
        positions: rows.positions.into_pyarray(py).reshape(shape)?.unbind(),
        indices: places(packing.order).into_pyarray(py).unbind(),
        rows: places(packing.rows).into_pyarray(py).unbind(),
        cu_seqlens: rows.cu_seqlens.into_pyarray(py).unbind(),
    })
}

/// The length of a sequence. A bool is refused: a mask passed by mistake would be lengths of 1.
fn parse_length(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    if object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("every length must be an integer, got bool"));
    }
    parse_size(object, "every length")
}

/// One sequence's tokens: whole numbers of any type.
fn integers<'py>(object: &Bound<'py, PyAny>, name: &'static str) -> PyResult<Cells<'py, i64>> {
    let array = as_real_array(object, name)?;
    if array.dtype().kind() == b'f' && !array.is_empty() {
        let text = format!("{name} must be integers, got dtype {}", array.dtype());
        return Err(PyTypeError::new_err(text));
    }
    let &[length] = array.shape() else {
        let text = format!("{name} must have 1 dimension, got {}", array.ndim());
        return Err(PyValueError::new_err(text));
    };
    read_rows(array.as_any(), name, name, length)
}

/// Start of each sequence in the concatenation of all.
fn starts(lengths: &[usize]) -> Vec<i64> {
    let mut end = 0;
    lengths
        .iter()
        .map(|&length| {
            let start = end;
            // Too many are refused when the rows are filled.
            end = signed(length).saturating_add(end);
            start
        })
        .collect()
}

fn signed(place: usize) -> i64 {
    place.try_into().unwrap_or(i64::MAX)
}
