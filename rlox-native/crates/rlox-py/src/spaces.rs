//! The gymnasium spaces of an env; gymnasium is imported when one is asked for.

use numpy::{Element, PyArray1};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::env::ActionSpace;

/// The space of one env's actions.
pub(crate) fn make_action_space(py: Python<'_>, space: ActionSpace) -> PyResult<Py<PyAny>> {
    match space {
        ActionSpace::Continuous { low, high } => make_box(py, low, high),
        ActionSpace::Discrete { n } => {
            let spaces = py.import(intern!(py, "gymnasium.spaces"))?;
            Ok(spaces.getattr(intern!(py, "Discrete"))?.call1((n,))?.unbind())
        }
    }
}

/// `gymnasium.spaces.Box(low, high, dtype=float32)`.
pub(crate) fn make_box(py: Python<'_>, low: &[f32], high: &[f32]) -> PyResult<Py<PyAny>> {
    let bounds = (PyArray1::from_slice(py, low), PyArray1::from_slice(py, high));
    let options = PyDict::new(py);
    options.set_item("dtype", f32::get_dtype(py))?;
    let spaces = py.import(intern!(py, "gymnasium.spaces"))?;
    Ok(spaces.getattr(intern!(py, "Box"))?.call(bounds, Some(&options))?.unbind())
}
