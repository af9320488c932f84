//! Conversion of kernels' errors to Python exceptions, in this one place.

use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use rlox_kernels::KernelError;

/// Makes every panic in this extension module raise a `RuntimeError`.
///
/// `pyo3` turns panics into an exception class of its own, which `except Exception` does not catch.
///
/// # Errors
/// A Python exception if the class cannot get another base.
pub fn make_panics_ordinary(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PanicException>();
    class.setattr("__bases__", (py.get_type::<PyRuntimeError>(),))
}

/// Panics, for a test of the exception.
#[pyfunction]
#[pyo3(name = "_panic")]
pub(crate) fn panic(text: &str) {
    panic!("{text}");
}

/// The exception for `error`, with its message.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
#[must_use]
pub fn raise(error: KernelError) -> PyErr {
    let text = error.to_string();
    match error {
        KernelError::State(_) => PyRuntimeError::new_err(text),
        KernelError::OutOfMemory { .. } | KernelError::NoRoom { .. } => {
            PyMemoryError::new_err(text)
        }
        // From the number, Python chooses the subclass.
        KernelError::Io { code: Some(code), .. } => PyOSError::new_err((code, text)),
        KernelError::NoEntropy | KernelError::File { .. } | KernelError::Io { .. } => {
            PyOSError::new_err(text)
        }
        _ => PyValueError::new_err(text),
    }
}
