//! The number of threads.

use pyo3::prelude::*;
use rlox_kernels::threads;

use crate::convert::parse_size;
use crate::errors::raise;

/// Set the number of threads of a call, including the calling one; `None` is one per core.
#[pyfunction]
#[pyo3(signature = (n))]
pub(crate) fn set_num_threads(n: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let limit = n.map(|n| parse_size(n, "n")).transpose()?;
    threads::set_limit(limit).map_err(raise)
}

/// Return the number of threads of a call, including the calling one.
#[pyfunction]
pub(crate) fn get_num_threads() -> usize {
    threads::limit()
}
