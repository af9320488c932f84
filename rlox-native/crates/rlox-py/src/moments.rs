//! Running means and variances.

use std::sync::{Mutex, MutexGuard};

use numpy::ndarray::IxDyn;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::moments::{RunningMoments, standardize};

use crate::convert::{check_shape, parse_ddof, parse_size, real, real_array};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_room;
use crate::output::filled;
use crate::precision::in_precision_of;

/// Mean and variance of all arrays of `shape` seen so far, in float64.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct RunningMeanStd {
    shape: Vec<usize>,
    // Taken only with the interpreter lock released: its holder then needs no other lock.
    moments: Mutex<RunningMoments>,
}

impl RunningMeanStd {
    fn lock(&self) -> MutexGuard<'_, RunningMoments> {
        lock(&self.moments)
    }

    fn shaped<'py>(
        &self,
        py: Python<'py>,
        elements: &[f64],
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        PyArray1::from_slice(py, elements).reshape(IxDyn(&self.shape))
    }

    /// Checks that the last dimensions are an element's; the one before counts elements.
    fn check(&self, name: &'static str, shape: &[usize]) -> PyResult<()> {
        if shape.split_first().is_some_and(|(_, element)| element == self.shape) {
            return Ok(());
        }
        let tuple = |sizes: Vec<String>| match &sizes[..] {
            [size] => format!("({size},)"),
            _ => format!("({})", sizes.join(", ")),
        };
        let got = tuple(shape.iter().map(ToString::to_string).collect());
        let element = self.shape.iter().map(ToString::to_string);
        let expected = tuple(std::iter::once("B".to_owned()).chain(element).collect());
        Err(PyValueError::new_err(format!("{name} must have shape {expected}, got {got}")))
    }

    fn moment(&self, state: &Bound<'_, PyDict>, key: &'static str) -> PyResult<Vec<f64>> {
        let array = real_array::<f64, IxDyn>(&entry(state, key)?, key)?;
        check_shape(key, array.shape(), "the elements", &self.shape)?;
        Ok(array.to_vec()?)
    }
}

fn entry<'py>(state: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || PyValueError::new_err(format!("state must have the key '{key}'"));
    state.get_item(key)?.ok_or_else(missing)
}

#[pymethods]
impl RunningMeanStd {
    #[new]
    #[pyo3(signature = (shape=None))]
    fn new(shape: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let shape = match shape {
            None => Vec::new(),
            Some(shape) if shape.len().is_err() => vec![parse_size(shape, "shape")?],
            Some(shape) => shape
                .try_iter()?
                .map(|size| parse_size(&size?, "every size of shape"))
                .collect::<PyResult<_>>()?,
        };
        let dim = shape.iter().try_fold(1_usize, |dim, &size| dim.checked_mul(size));
        let Some(dim) = dim.filter(|&dim| isize::try_from(dim.saturating_mul(8)).is_ok()) else {
            return Err(PyValueError::new_err("shape has too many elements"));
        };
        // Mean and squares, and again those of a batch.
        check_room("shape", &shape, dim.saturating_mul(4 * 8), "")?;
        Ok(Self { shape, moments: Mutex::new(RunningMoments::new(dim)) })
    }

    /// Number of elements seen.
    #[getter]
    fn count(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().count())
    }

    /// The mean, float64; 0 before the first element.
    #[getter]
    fn mean<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let mean = py.detach(|| self.lock().mean().to_vec());
        self.shaped(py, &mean)
    }

    /// The population variance, float64; 1 before the first element.
    #[getter]
    fn var<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let variance = py.detach(|| self.lock().variance());
        self.shaped(py, &variance)
    }

    /// Add a batch (B, *shape).
    fn update(&self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        in_precision_of!(batch, |F| {
            let batch = real_array::<F, IxDyn>(batch, "batch")?;
            self.check("batch", batch.shape())?;
            let batch = batch.as_slice()?;
            py.detach(|| self.lock().update(batch)).map_err(raise)
        })
    }

    /// Add all elements that `other` has seen.
    fn merge(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<()> {
        let other = other.get();
        check_shape("other", &other.shape, "this", &self.shape)?;
        // One lock at a time, so that two objects merged into each other cannot deadlock.
        py.detach(|| {
            let theirs = other.lock().clone();
            self.lock().merge(&theirs)
        })
        .map_err(raise)
    }

    /// Return everything seen, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let moments = py.detach(|| self.lock().clone());
        let state = PyDict::new(py);
        state.set_item("count", moments.count())?;
        state.set_item("mean", self.shaped(py, moments.mean())?)?;
        state.set_item("squares", self.shaped(py, moments.squares())?)?;
        Ok(state)
    }

    /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let count = entry(state, "count")?.extract().map_err(|_| {
            PyValueError::new_err("state['count'] must be an integer that is not negative")
        })?;
        let (mean, squares) = (self.moment(state, "mean")?, self.moment(state, "squares")?);
        let moments = RunningMoments::from_parts(count, mean, squares).map_err(raise)?;
        py.detach(|| *self.lock() = moments);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("RunningMeanStd(shape={:?}, count={})", self.shape, self.count(py))
    }
}

/// Standardise advantages of any shape to mean 0 and deviation 1; equal ones become 0.
///
/// In float32 if `advantages` is, in float64 otherwise.
#[pyfunction]
#[pyo3(signature = (advantages, *, ddof=1, eps=1e-8))]
pub(crate) fn normalize_advantages(
    py: Python<'_>,
    advantages: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = parse_ddof)] ddof: usize,
    #[pyo3(from_py_with = real::eps)] eps: f64,
) -> PyResult<Py<PyAny>> {
    in_precision_of!(advantages, |F| {
        let array = real_array::<F, IxDyn>(advantages, "advantages")?;
        let (shape, elements) = (array.as_array().raw_dim(), array.as_slice()?);
        let result = filled(py, shape, |out| standardize(elements, ddof, eps, out))?;
        Ok(result.into_any().unbind())
    })
}
