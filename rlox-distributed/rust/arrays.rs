//! Python's arrays as their bytes, and back: little-endian, in C order.

use std::ptr;
use std::slice;

use numpy::npyffi::{NpyTypes, get_type_object, npy_intp};
use numpy::{
    PY_ARRAY_API, PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::steps::Bounded;

/// One-letter names of the kinds of numbers.
const NUMBERS: &[u8] = b"biuf";

/// An array that lies in memory as it is sent.
pub(crate) struct Bytes<'py>(Bound<'py, PyUntypedArray>);

impl Bytes<'_> {
    fn size(&self) -> usize {
        self.0.len() * self.0.dtype().itemsize()
    }

    #[expect(unsafe_code, reason = "no safe view of an array has its bytes whatever its dtype")]
    pub(crate) fn as_slice(&self) -> &[u8] {
        let size = self.size();
        if size == 0 {
            return &[];
        }
        // SAFETY: the array is in C order, so that its numbers are these bytes; it lives as long as
        // `self`, and who holds the slice calls no Python that would write to it or move it.
        unsafe { slice::from_raw_parts((*self.0.as_array_ptr()).fields.data.cast::<u8>(), size) }
    }
}

/// Arrays of one dtype with rows of one shape: a leaf of a space, rewards, or flags.
pub(crate) struct Rows {
    /// As errors call it.
    pub(crate) label: String,
    /// As dicts call it.
    pub(crate) name: Py<PyString>,
    /// The dtype of numbers as they travel.
    pub(crate) sent: Py<PyArrayDescr>,
    /// That of the arrays, if it is another.
    own: Option<Py<PyArrayDescr>>,
    shape: Vec<usize>,
    /// Bytes of a row.
    pub(crate) size: usize,
}

impl Rows {
    /// Arrays that errors call by what they are and by their name, if there are both.
    ///
    /// # Errors
    /// The dtype is none of numbers, or a row has more bytes than there is memory for.
    pub(crate) fn new(
        what: &str,
        name: &Bound<'_, PyString>,
        dtype: &Bound<'_, PyArrayDescr>,
        shape: Vec<usize>,
    ) -> PyResult<Self> {
        let text = name.to_str()?;
        let label = match (what, text) {
            ("", text) => text.to_owned(),
            (what, "") => what.to_owned(),
            (what, text) => format!("{what} '{text}'"),
        };
        if !NUMBERS.contains(&dtype.kind()) {
            return Err(PyTypeError::new_err(format!(
                "{label} must be of a dtype of numbers to be sent, got {dtype}"
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

    /// Return the bytes of the rows of an array.
    ///
    /// # Errors
    /// It is no array of numbers.
    pub(crate) fn bytes<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bytes<'py>> {
        let py = array.py();
        let sent = self.sent.bind(py);
        if let Ok(array) = array.cast::<PyUntypedArray>()
            && array.is_c_contiguous()
            && array.dtype().is_equiv_to(sent)
        {
            return Ok(Bytes(array.clone()));
        }
        let convert = py.import(intern!(py, "numpy"))?.getattr("ascontiguousarray")?;
        Ok(Bytes(convert.call1((array, sent))?.cast_into::<PyUntypedArray>()?))
    }

    /// Return the bytes of an array of so many rows.
    ///
    /// # Errors
    /// It has others.
    pub(crate) fn bytes_of<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        rows: usize,
    ) -> PyResult<Bytes<'py>> {
        let bytes = self.bytes(array)?;
        if bytes.size() == rows.saturating_mul(self.size) {
            return Ok(bytes);
        }
        Err(PyValueError::new_err(format!(
            "expected {} of {rows} rows of shape {:?}, got an array of shape {:?}",
            self.label,
            self.shape,
            bytes.0.shape()
        )))
    }

    /// Require the bytes of so many rows.
    ///
    /// # Errors
    /// They are fewer or more.
    pub(crate) fn check(&self, bytes: &[u8], rows: usize) -> PyResult<()> {
        if bytes.len() == rows.saturating_mul(self.size) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "expected {} bytes of {}, got {}",
            rows.saturating_mul(self.size),
            self.label,
            bytes.len()
        )))
    }

    /// Return an array of bytes that were checked, for whoever asks to write to.
    ///
    /// `change` is called with the array's own bytes.
    pub(crate) fn array<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        rows: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut shape = Vec::with_capacity(1 + self.shape.len());
        shape.push(rows);
        shape.extend_from_slice(&self.shape);
        let array = new_array(py, self.sent.bind(py), &shape, bytes, change)?;
        match &self.own {
            None => Ok(array),
            Some(own) => array.call_method1(intern!(py, "astype"), (own,)),
        }
    }
}

/// Return a new array of a dtype of numbers, of bytes that are as many as its shape says.
#[expect(unsafe_code, reason = "no safe call makes an array of a dtype that is not known here")]
pub(crate) fn new_array<'py>(
    py: Python<'py>,
    dtype: &Bound<'py, PyArrayDescr>,
    shape: &[usize],
    bytes: &[u8],
    change: impl FnOnce(&mut [u8]),
) -> PyResult<Bound<'py, PyAny>> {
    let size = shape.iter().try_fold(dtype.itemsize(), |size, &n| size.checked_mul(n));
    let dims: Result<Vec<npy_intp>, _> = shape.iter().map(|&n| npy_intp::try_from(n)).collect();
    let (Some(size), Ok(mut dims)) = (size.filter(|&size| size == bytes.len()), dims) else {
        return Err(PyValueError::new_err(format!("{} bytes are not {shape:?}", bytes.len())));
    };
    // SAFETY: the dtype, whose reference the call takes, is a valid one, and so are the dimensions;
    // NumPy allocates the data. What it returns is a new reference, or null with an error set.
    let array = unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            dtype.clone().into_dtype_ptr(),
            i32::try_from(dims.len())?,
            dims.as_mut_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)?
    };
    let array = array.cast_into::<PyUntypedArray>()?;
    if size > 0 {
        // SAFETY: the new array has `size` bytes, in C order, which nobody else knows of. They are
        // written before they are read.
        let data = unsafe {
            let data = (*array.as_array_ptr()).fields.data.cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), data, size);
            slice::from_raw_parts_mut(data, size)
        };
        change(data);
    }
    Ok(array.into_any())
}

/// The arrays that values of a space are sent as, one for each of its leaves.
pub(crate) struct Layout {
    /// As errors call it.
    what: &'static str,
    /// Whether several arrays are a dict by their names; else there is one, which has none.
    nested: bool,
    pub(crate) leaves: Vec<Rows>,
}

/// What `rlox_distributed.spaces.leaves_of` returns.
pub(crate) type Leaves<'py> =
    (bool, Vec<(Bound<'py, PyString>, Bound<'py, PyArrayDescr>, Vec<usize>)>);

impl Layout {
    /// The layout of leaves, which errors call `what`.
    ///
    /// # Errors
    /// As of [`Rows::new`].
    pub(crate) fn new(what: &'static str, (nested, leaves): Leaves<'_>) -> PyResult<Self> {
        let rows = |(name, dtype, shape): (_, _, _)| Rows::new(what, &name, &dtype, shape);
        Ok(Self { what, nested, leaves: leaves.into_iter().map(rows).collect::<PyResult<_>>()? })
    }

    /// Return the bytes of one row of all arrays.
    pub(crate) fn size(&self) -> usize {
        self.leaves.iter().fold(0, |size, leaf| size.saturating_add(leaf.size))
    }

    /// Return the bytes of each array of a value of so many rows.
    ///
    /// # Errors
    /// An array is missing, or as of [`Rows::bytes_of`].
    pub(crate) fn bytes_of<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        rows: usize,
    ) -> PyResult<Vec<Bytes<'py>>> {
        if !self.nested {
            return self.leaves.iter().map(|leaf| leaf.bytes_of(value, rows)).collect();
        }
        let py = value.py();
        self.leaves
            .iter()
            .map(|leaf| leaf.bytes_of(&value.get_item(leaf.name.bind(py))?, rows))
            .collect()
    }

    /// Require the bytes of so many rows of each leaf.
    ///
    /// # Errors
    /// There are fewer or more arrays or bytes.
    pub(crate) fn check(&self, arrays: &Bounded<&[u8]>, rows: usize) -> PyResult<()> {
        if arrays.count != self.leaves.len() {
            let (expected, got) = (self.leaves.len(), arrays.count);
            return Err(PyValueError::new_err(format!(
                "expected {expected} arrays of {}, got {got}",
                self.what
            )));
        }
        self.leaves.iter().zip(&arrays.kept).try_for_each(|(leaf, bytes)| leaf.check(bytes, rows))
    }

    /// Return a value of arrays that were checked.
    ///
    /// `change` is called with the number, the bytes of a row and the bytes of each new array.
    pub(crate) fn value<'py>(
        &self,
        py: Python<'py>,
        arrays: &[&[u8]],
        rows: usize,
        mut change: impl FnMut(usize, usize, &mut [u8]),
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut made = self.leaves.iter().zip(arrays).enumerate().map(|(at, (leaf, bytes))| {
            leaf.array(py, bytes, rows, |data| change(at, leaf.size, data)).map(|new| (leaf, new))
        });
        if !self.nested
            && let Some(only) = made.next()
        {
            return only.map(|(_, array)| array);
        }
        let value = PyDict::new(py);
        for leaf in made {
            let (leaf, array) = leaf?;
            value.set_item(leaf.name.bind(py), array)?;
        }
        Ok(value.into_any())
    }
}
