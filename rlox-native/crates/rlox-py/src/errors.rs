//! The one place where a kernel's error becomes a Python exception.

use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use rlox_kernels::KernelError;

/// The exception for `error`, with the error's own words.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
#[must_use]
pub fn raise(error: KernelError) -> PyErr {
    let text = error.to_string();
    match error {
        KernelError::State(_) => PyRuntimeError::new_err(text),
        KernelError::OutOfMemory { .. } => PyMemoryError::new_err(text),
        // With the number, Python chooses the subclass.
        KernelError::Io { code: Some(code), .. } => PyOSError::new_err((code, text)),
        KernelError::NoEntropy | KernelError::File { .. } | KernelError::Io { .. } => {
            PyOSError::new_err(text)
        }
        _ => PyValueError::new_err(text),
    }
}
