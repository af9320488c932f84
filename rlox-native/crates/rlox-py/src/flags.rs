//! Arrays of flags, as bytes.
//!
//! A NumPy bool may hold any byte (`uint8_array.view(bool)`), a Rust one only 0 or 1. So an array
//! of bools is never read as Rust's before its bytes have been checked.

use std::slice;

use numpy::{
    Element, PyArray, PyArrayMethods, PyReadonlyArray, PyReadwriteArray, PyUntypedArrayMethods,
    ndarray::Dimension,
};
use pyo3::prelude::*;

use crate::convert::{as_real_array, borrow, is_plain, numpy_call, output_array, real_array};

/// A contiguous array of flags that a kernel reads as bytes, zero for false.
pub(crate) struct MaskArray<'py, D: Dimension>(PyReadonlyArray<'py, bool, D>);

impl<D: Dimension> MaskArray<'_, D> {
    #[expect(unsafe_code, reason = "asking NumPy for a view of bytes takes longer than a kernel")]
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.0.is_empty() {
            return &[];
        }
        // SAFETY: the array is contiguous and borrowed for as long as `self` is; a bool of NumPy's
        // is a byte, and any byte is a u8.
        unsafe { slice::from_raw_parts(self.0.data().cast::<u8>(), self.0.len()) }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        self.0.shape()
    }
}

/// `object` as a contiguous array of flags; any nonzero real number is true.
pub(crate) fn mask_array<'py, D: Dimension>(
    object: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<MaskArray<'py, D>> {
    if let Ok(array) = object.cast::<PyArray<bool, D>>()
        && is_plain(array.as_untyped())
    {
        return borrow(array, name).map(MaskArray);
    }
    let py = object.py();
    let array = as_real_array(object, name)?;
    let array = numpy_call(py, "ascontiguousarray", (array, bool::get_dtype(py)))?;
    real_array(&array, name).map(MaskArray)
}

/// A kernel's output array of flags; see [`output_array`] for other types.
///
/// Every byte becomes 0 or 1 of the same truth value, so the flags stay the same if the kernel
/// writes nothing.
#[expect(unsafe_code, reason = "asking NumPy for a view of bytes takes longer than a kernel")]
pub(crate) fn output_flags<'py, D: Dimension>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    expected: &[usize],
) -> PyResult<PyReadwriteArray<'py, bool, D>> {
    let flags = output_array::<bool, D>(object, name, expected)?;
    if !flags.is_empty() {
        // SAFETY: the array is contiguous, borrowed for writing and not looked at meanwhile; a bool
        // of NumPy's is a byte, and any byte is a u8.
        let bytes = unsafe { slice::from_raw_parts_mut(flags.data().cast::<u8>(), flags.len()) };
        for byte in bytes {
            *byte = u8::from(*byte != 0);
        }
    }
    Ok(flags)
}
