//! The gymnasium spaces of an env; gymnasium is imported on first use.

use numpy::{Element, PyArray1};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::env::{ActionSpace, ObsType};

/// The space of one env's actions.
pub(crate) fn make_action_space(py: Python<'_>, space: &ActionSpace) -> PyResult<Py<PyAny>> {
    match space {
        ActionSpace::Continuous { low, high } => make_box(py, low, high),
        ActionSpace::Discrete { n } => {
            let spaces = py.import(intern!(py, "gymnasium.spaces"))?;
            Ok(spaces.getattr(intern!(py, "Discrete"))?.call1((*n,))?.unbind())
        }
    }
}

/// A space of numbers of the observations' type.
#[expect(clippy::cast_possible_truncation, reason = "bounds have the type of the observations")]
pub(crate) fn make_box_space(
    py: Python<'_>,
    low: &[f64],
    high: &[f64],
    obs_type: ObsType,
) -> PyResult<Py<PyAny>> {
    let single = |bounds: &[f64]| bounds.iter().map(|&bound| bound as f32).collect::<Vec<_>>();
    match obs_type {
        ObsType::F32 => make_box(py, &single(low), &single(high)),
        ObsType::F64 => make_box(py, low, high),
    }
}

/// `gymnasium.spaces.Box(low, high)` of the bounds' type.
fn make_box<T: Element>(py: Python<'_>, low: &[T], high: &[T]) -> PyResult<Py<PyAny>> {
    let bounds = (PyArray1::from_slice(py, low), PyArray1::from_slice(py, high));
    let options = PyDict::new(py);
    options.set_item("dtype", T::get_dtype(py))?;
    let spaces = py.import(intern!(py, "gymnasium.spaces"))?;
    Ok(spaces.getattr(intern!(py, "Box"))?.call(bounds, Some(&options))?.unbind())
}
