//! Single or double precision, chosen at run time.

use std::sync::Mutex;

use numpy::PyArrayDyn;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlox_kernels::error::Result;

use crate::errors::raise;

/// Whether a kernel should work in single precision: if its main input does.
pub(crate) fn is_single(object: &Bound<'_, PyAny>) -> bool {
    object.cast::<PyArrayDyn<f32>>().is_ok()
}

/// Evaluates a closure-like expression whose parameter is the precision of the array `$like`, as a type.
macro_rules! in_precision_of {
    ($like:expr, |$float:ident| $body:expr) => {
        if $crate::precision::is_single($like) {
            type $float = f32;
            $body
        } else {
            type $float = f64;
            $body
        }
    };
}

/// A learner in either precision.
pub(crate) enum Precise<S, D> {
    Single(Mutex<S>),
    Double(Mutex<D>),
}

/// Makes a learner of the precision called `dtype`.
pub(crate) fn of_dtype<S, D>(
    dtype: &str,
    single: impl FnOnce() -> Result<S>,
    double: impl FnOnce() -> Result<D>,
) -> PyResult<Precise<S, D>> {
    match dtype {
        "float32" => Ok(Precise::Single(Mutex::new(single().map_err(raise)?))),
        "float64" => Ok(Precise::Double(Mutex::new(double().map_err(raise)?))),
        _ => {
            let text = format!("dtype must be 'float32' or 'float64', got '{dtype}'");
            Err(PyValueError::new_err(text))
        }
    }
}

/// Evaluates a closure-like expression with the learner that a [`Precise`] holds, and, where the body
/// needs it, with its precision as a type.
macro_rules! with_learner {
    ($learners:expr, |$learner:ident: $float:ident| $body:expr) => {
        match &$learners {
            $crate::precision::Precise::Single($learner) => {
                type $float = f32;
                $body
            }
            $crate::precision::Precise::Double($learner) => {
                type $float = f64;
                $body
            }
        }
    };
    ($learners:expr, |$learner:ident| $body:expr) => {
        match &$learners {
            $crate::precision::Precise::Single($learner) => $body,
            $crate::precision::Precise::Double($learner) => $body,
        }
    };
}

pub(crate) use in_precision_of;
pub(crate) use with_learner;
