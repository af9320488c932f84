//! Conversion of Python's arrays to bytes and back: little-endian, in C order.

use std::ops::Range;
use std::ptr;
use std::slice;

use bytes::Bytes;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Letters of NumPy's kinds of numbers.
const NUMBERS: &[u8] = b"biuf";

/// Arrays of one dtype with rows of one shape: a leaf of a space, rewards, or flags.
pub(crate) struct Rows {
    /// Name in errors.
    pub(crate) label: String,
    /// Key in dicts.
    pub(crate) name: Py<PyString>,
    /// The dtype of the sent numbers.
    pub(crate) sent: Py<PyArrayDescr>,
    /// The dtype of the arrays, if different.
    own: Option<Py<PyArrayDescr>>,
    shape: Vec<usize>,
    /// Bytes of a row.
    pub(crate) size: usize,
}

impl Rows {
    /// Arrays with a label for errors made of a description and their name, if any.
    ///
    /// # Errors
    /// The dtype is not numeric, or a row has more bytes than the address space.
    pub(crate) fn new(
        what: &str,
        name: &Bound<'_, PyString>,
        dtype: &Bound<'_, PyArrayDescr>,
        shape: Vec<usize>,
    ) -> PyResult<Self> {
        let label = match (what, name.to_str()?) {
            ("", text) => text.to_owned(),
            (what, "") => what.to_owned(),
            (what, text) => format!("{what} '{text}'"),
        };
        if !NUMBERS.contains(&dtype.kind()) {
            return Err(PyTypeError::new_err(format!(
                "{label} must have a numeric dtype to be sent, got {dtype}"
            )));
        }
        let size = shape
            .iter()
            .try_fold(dtype.itemsize(), |size, &n| size.checked_mul(n))
            .ok_or_else(|| PyOverflowError::new_err(format!("{label} of {shape:?} are endless")))?;
        let little = dtype.call_method1(intern!(dtype.py(), "newbyteorder"), ("<",))?;
        let little = little.cast_into::<PyArrayDescr>()?;
        let same = little.is_equiv_to(dtype);
        Ok(Self {
            label,
            name: name.clone().unbind(),
            sent: if same { dtype.clone() } else { little }.unbind(),
            own: (!same).then(|| dtype.clone().unbind()),
            shape,
            size,
        })
    }

    /// Return an array in the memory layout that is sent.
    fn contiguous<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let py = array.py();
        let sent = self.sent.bind(py);
        if let Ok(array) = array.cast::<PyUntypedArray>()
            && array.is_c_contiguous()
            && array.dtype().is_equiv_to(sent)
        {
            return Ok(array.clone());
        }
        let convert = py.import(intern!(py, "numpy"))?.getattr("ascontiguousarray")?;
        Ok(convert.call1((array, sent))?.cast_into::<PyUntypedArray>()?)
    }

    /// Return the bytes of an array of any shape.
    ///
    /// # Errors
    /// It is not an array of numbers.
    pub(crate) fn bytes(&self, array: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        Ok(Bytes::copy_from_slice(as_slice(&self.contiguous(array)?)))
    }

    /// Return the bytes of some rows of an array with `rows` rows.
    ///
    /// # Errors
    /// It has another number of rows or other rows.
    pub(crate) fn bytes_of(
        &self,
        array: &Bound<'_, PyAny>,
        rows: usize,
        own: &Range<usize>,
    ) -> PyResult<Bytes> {
        let array = self.contiguous(array)?;
        let bytes = as_slice(&array);
        if bytes.len() == rows.saturating_mul(self.size) {
            return Ok(Bytes::copy_from_slice(&bytes[own.start * self.size..own.end * self.size]));
        }
        Err(PyValueError::new_err(format!(
            "expected {} of {rows} rows of shape {:?}, got an array of shape {:?}",
            self.label,
            self.shape,
            array.shape()
        )))
    }

    /// Require the bytes of `rows` rows.
    ///
    /// # Errors
    /// There are fewer or more.
    pub(crate) fn check(&self, bytes: &[u8], rows: usize) -> PyResult<()> {
        let expected = rows.saturating_mul(self.size);
        if bytes.len() == expected {
            return Ok(());
        }
        let (label, got) = (&self.label, bytes.len());
        Err(PyValueError::new_err(format!("expected {expected} bytes of {label}, got {got}")))
    }

    /// Return a new array from checked bytes.
    pub(crate) fn array<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        rows: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.shaped(py, bytes, &[&[rows][..], &self.shape].concat())?;
        match &self.own {
            None => Ok(array),
            Some(own) => array.call_method1(intern!(py, "astype"), (own,)),
        }
    }

    /// Return a new array of the sent numbers, in any shape of equal size.
    #[expect(unsafe_code, reason = "no safe call makes an array of a run-time dtype")]
    pub(crate) fn shaped<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        shape: &[usize],
    ) -> PyResult<Bound<'py, PyAny>> {
        static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let empty = EMPTY.import(py, "numpy", "empty")?;
        let made = empty.call1((PyTuple::new(py, shape)?, &self.sent))?;
        let array = made.cast::<PyUntypedArray>()?;
        let size = array.len() * array.dtype().itemsize();
        assert_eq!(bytes.len(), size, "the bytes were checked");
        // SAFETY: the new array, not shared with anyone, has `size` bytes of numbers in C order.
        unsafe {
            let data = (*array.as_array_ptr()).fields.data.cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), data, size);
        }
        Ok(made)
    }
}

/// Return the bytes of an array in C order, which must not be written to meanwhile.
#[expect(unsafe_code, reason = "no safe view gives the bytes of an array of any dtype")]
fn as_slice<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a [u8] {
    let size = array.len() * array.dtype().itemsize();
    if size == 0 {
        return &[];
    }
    // SAFETY: the array is in C order, so its numbers are these bytes; it lives as long as they do,
    // and their holder calls no Python code that would write to it or move it.
    unsafe { slice::from_raw_parts((*array.as_array_ptr()).fields.data.cast::<u8>(), size) }
}

/// The sent arrays of a space's values, one per leaf.
pub(crate) struct Layout {
    /// Name in errors.
    what: &'static str,
    /// Whether the arrays form a dict by name; else there is a single unnamed one.
    nested: bool,
    leaves: Vec<Rows>,
}

/// Result of `rlox_distributed.spaces.leaves_of`.
pub(crate) type Leaves<'py> =
    (bool, Vec<(Bound<'py, PyString>, Bound<'py, PyArrayDescr>, Vec<usize>)>);

impl Layout {
    /// The layout of leaves, called `what` in errors.
    ///
    /// # Errors
    /// As for [`Rows::new`].
    pub(crate) fn new(what: &'static str, (nested, leaves): Leaves<'_>) -> PyResult<Self> {
        let rows = |(name, dtype, shape): (_, _, _)| Rows::new(what, &name, &dtype, shape);
        Ok(Self { what, nested, leaves: leaves.into_iter().map(rows).collect::<PyResult<_>>()? })
    }

    /// Return the row size of each array in bytes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.leaves.iter().map(|leaf| leaf.size)
    }

    /// Return the bytes of some rows of each array of a value with `rows` rows.
    ///
    /// # Errors
    /// An array is missing, or as for [`Rows::bytes_of`].
    pub(crate) fn bytes_of(
        &self,
        value: &Bound<'_, PyAny>,
        rows: usize,
        own: &Range<usize>,
    ) -> PyResult<Vec<Bytes>> {
        let bytes = |leaf: &Rows| {
            if self.nested {
                leaf.bytes_of(&value.get_item(leaf.name.bind(value.py()))?, rows, own)
            } else {
                leaf.bytes_of(value, rows, own)
            }
        };
        self.leaves.iter().map(bytes).collect()
    }

    /// Require the bytes of `rows` rows of each leaf.
    ///
    /// # Errors
    /// There are fewer or more arrays or bytes.
    pub(crate) fn check(&self, arrays: &[Bytes], rows: usize) -> PyResult<()> {
        let (what, expected, got) = (self.what, self.leaves.len(), arrays.len());
        if got != expected {
            return Err(PyValueError::new_err(format!(
                "expected {expected} arrays of {what}, got {got}"
            )));
        }
        self.leaves.iter().zip(arrays).try_for_each(|(leaf, bytes)| leaf.check(bytes, rows))
    }

    /// Return a value from checked arrays.
    pub(crate) fn value<'py>(
        &self,
        py: Python<'py>,
        arrays: &[Bytes],
        rows: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let (false, [only], [bytes]) = (self.nested, &self.leaves[..], arrays) {
            return only.array(py, bytes, rows);
        }
        let value = PyDict::new(py);
        for (leaf, bytes) in self.leaves.iter().zip(arrays) {
            value.set_item(&leaf.name, leaf.array(py, bytes, rows)?)?;
        }
        Ok(value.into_any())
    }
}
