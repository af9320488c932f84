//! Fields of a row: their arrays and bytes.

use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping, PyTuple};

use crate::convert::{as_real_array, numpy_call};
use crate::replay::batch::item;
use crate::replay::fields::parse_axes;

/// One field of a row.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: Py<PyAny>,
    pub(super) bytes: usize,
}

/// An array and its writable bytes.
pub(super) type OutBytes<'py> = (Bound<'py, PyAny>, PyReadwriteArrayDyn<'py, u8>);

impl Column {
    /// The bytes of the entry with this name, after a prefix, converted as by NumPy's assignment.
    pub(super) fn bytes_of<'py>(
        &self,
        rows: &Bound<'py, PyDict>,
        prefix: &str,
        axes: &[usize],
    ) -> PyResult<PyReadonlyArrayDyn<'py, u8>> {
        let py = rows.py();
        let name = format!("{prefix}{}", self.name);
        let array = as_real_array(&item(rows, &name)?, &name)?;
        let expected = [axes, &self.shape].concat();
        if array.shape() != expected {
            let (expected, got) = (PyTuple::new(py, expected)?, PyTuple::new(py, array.shape())?);
            let text = format!("{name} must have shape {expected}, got {got}");
            return Err(PyValueError::new_err(text));
        }
        let array = numpy_call(py, "ascontiguousarray", (array, &self.dtype))?;
        Ok(as_bytes(&array)?.try_readonly()?)
    }

    pub(super) fn new_array<'py>(
        &self,
        py: Python<'py>,
        axes: &[usize],
    ) -> PyResult<OutBytes<'py>> {
        let shape = [axes, &self.shape].concat();
        let bytes = axes.iter().try_fold(self.bytes, |size, &axis| size.checked_mul(axis));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            let text = format!("not enough memory for an array of shape {shape:?}");
            return Err(PyMemoryError::new_err(text));
        }
        let array = numpy_call(py, "empty", (shape, &self.dtype))?;
        let bytes = as_bytes(&array)?.try_readwrite()?;
        Ok((array, bytes))
    }
}

/// A view of the bytes of a contiguous array.
fn as_bytes<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<u8>>> {
    let py = array.py();
    let flat = array.call_method1(intern!(py, "reshape"), (-1,))?;
    let bytes = flat.call_method1(intern!(py, "view"), (intern!(py, "uint8"),))?;
    Ok(bytes.cast_into::<PyArrayDyn<u8>>()?)
}

pub(super) fn slices<'a>(arrays: &'a [PyReadonlyArrayDyn<'_, u8>]) -> PyResult<Vec<&'a [u8]>> {
    arrays.iter().map(|array| Ok(array.as_slice()?)).collect()
}

pub(super) fn slices_mut<'a>(arrays: &'a mut [OutBytes<'_>]) -> PyResult<Vec<&'a mut [u8]>> {
    arrays.iter_mut().map(|(_, bytes)| Ok(bytes.as_slice_mut()?)).collect()
}

pub(super) fn parse_columns(fields: &Bound<'_, PyAny>) -> PyResult<Vec<Column>> {
    let mut columns = Vec::new();
    for (name, field) in mapping(fields)? {
        let (shape, given): (Bound<'_, PyAny>, Bound<'_, PyAny>) = field.extract()?;
        // For some strings NumPy raises a SyntaxError.
        let dtype = numpy_call(fields.py(), "dtype", (&given,)).unwrap_or(given);
        let real = dtype.cast::<numpy::PyArrayDescr>().ok();
        let Some(descr) = real.filter(|descr| b"biuf".contains(&descr.kind())) else {
            let text = format!("fields must hold real numbers, got dtype {dtype} for '{name}'");
            return Err(PyValueError::new_err(text));
        };
        let (shape, product) = parse_axes(&shape, "fields")?;
        let bytes = product.saturating_mul(descr.itemsize());
        columns.push(Column { name: name.extract()?, shape, dtype: dtype.unbind(), bytes });
    }
    Ok(columns)
}

pub(super) fn names(columns: &[Column]) -> impl Iterator<Item = String> {
    columns.iter().map(|column| column.name.clone())
}

pub(super) fn has(columns: &[Column], name: &str) -> bool {
    columns.iter().any(|column| column.name == name)
}

/// `object` as a dict.
pub(super) fn mapping<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let mapping = object.cast::<PyMapping>()?;
    let dict = PyDict::new(object.py());
    dict.update(mapping)?;
    Ok(dict)
}

/// A mapping with these keys and no others.
pub(super) fn parse_fields<'py>(
    object: &Bound<'py, PyAny>,
    names: impl Iterator<Item = String>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = mapping(object)?;
    let names: Vec<String> = names.collect();
    let present = |name: &String| dict.contains(name).unwrap_or(false);
    if dict.len() == names.len() && names.iter().all(present) {
        return Ok(dict);
    }
    let given = dict.keys().iter().map(|key| key.to_string()).collect::<Vec<_>>();
    Err(listed(object.py(), "rows must have the fields", names.into_iter(), given.into_iter()))
}

/// An error with the expected and the given names.
pub(super) fn listed(
    py: Python<'_>,
    text: &str,
    expected: impl Iterator<Item = String>,
    got: impl Iterator<Item = String>,
) -> PyErr {
    let list = |names: Vec<String>| PyList::new(py, names).map_or(String::new(), |l| l.to_string());
    let (expected, got) = (list(expected.collect()), list(got.collect()));
    PyValueError::new_err(format!("{text} {expected}, got {got}"))
}
