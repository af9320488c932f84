//! Single or double precision, chosen at run time.

use numpy::PyArrayDyn;
use pyo3::prelude::*;

/// Whether a kernel should work in single precision, as its main input does.
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

pub(crate) use in_precision_of;
