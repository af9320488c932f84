//! The one place where a kernel's error becomes a Python exception.

use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use rlox_kernels::KernelError;

/// Makes what a panic raises a `RuntimeError`, wherever in this extension module it panics.
///
/// `pyo3` catches every panic on its way to Python and raises a class of its own, which `except
/// Exception` would let through.
///
/// # Errors
/// An exception of Python where it does not let the class have another base.
pub fn make_panics_ordinary(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PanicException>();
    class.setattr("__bases__", (py.get_type::<PyRuntimeError>(),))
}

/// Panics, to show what becomes of it.
#[pyfunction]
#[pyo3(name = "_panic")]
pub(crate) fn panic(text: &str) {
    panic!("{text}");
}

/// The exception for `error`, with the error's own words.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
#[must_use]
pub fn raise(error: KernelError) -> PyErr {
    let text = error.to_string();
    match error {
        KernelError::State(_) => PyRuntimeError::new_err(text),
        KernelError::OutOfMemory { .. } | KernelError::NoRoom { .. } => {
            PyMemoryError::new_err(text)
        }
        // With the number, Python chooses the subclass.
        KernelError::Io { code: Some(code), .. } => PyOSError::new_err((code, text)),
        KernelError::NoEntropy | KernelError::File { .. } | KernelError::Io { .. } => {
            PyOSError::new_err(text)
        }
        _ => PyValueError::new_err(text),
    }
}
