//! Arrays that kernels fill.

use numpy::ndarray::Dimension;
use numpy::{Element, PyArray, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rlox_kernels::KernelError;

use crate::convert::{check_shape, output_array, type_name};
use crate::errors::raise;

/// Two arrays of one type and shape.
pub(crate) type Pair<'py, T, D> = (Bound<'py, PyArray<T, D>>, Bound<'py, PyArray<T, D>>);

/// Allocates an array and lets `kernel` fill it without the interpreter lock.
pub(crate) fn filled<'py, T: Element, D: Dimension>(
    py: Python<'py>,
    shape: D,
    kernel: impl FnOnce(&mut [T]) -> Result<(), KernelError> + Send,
) -> PyResult<Bound<'py, PyArray<T, D>>> {
    let array = PyArray::<T, D>::zeros(py, shape, false);
    {
        let mut array = array.try_readwrite()?;
        let elements = array.as_slice_mut()?;
        py.detach(|| kernel(elements)).map_err(raise)?;
    }
    Ok(array)
}

/// Lets `kernel` fill the two arrays `out`, or two new ones, without the interpreter lock.
pub(crate) fn filled_pair<'py, T: Element, D: Dimension>(
    py: Python<'py>,
    shape: D,
    out: Option<&Bound<'py, PyAny>>,
    kernel: impl FnOnce(&mut [T], &mut [T]) -> Result<(), KernelError> + Send,
) -> PyResult<Pair<'py, T, D>> {
    let pair = match out {
        None => (PyArray::zeros(py, shape.clone(), false), PyArray::zeros(py, shape, false)),
        Some(out) => {
            let Ok((first, second)) = out.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()
            else {
                let text = format!("out must be a tuple of two arrays, got {}", type_name(out));
                return Err(PyTypeError::new_err(text));
            };
            (parse_output(first, "out[0]", &shape)?, parse_output(second, "out[1]", &shape)?)
        }
    };
    {
        let mut first = output_array::<T, D>(&pair.0, "out[0]", pair.0.shape())?;
        let mut second = output_array::<T, D>(&pair.1, "out[1]", pair.1.shape())?;
        let (first, second) = (first.as_slice_mut()?, second.as_slice_mut()?);
        py.detach(|| kernel(first, second)).map_err(raise)?;
    }
    Ok(pair)
}

/// `object` as an array of exactly this type and shape.
fn parse_output<'py, T: Element, D: Dimension>(
    object: Bound<'py, PyAny>,
    name: &'static str,
    shape: &D,
) -> PyResult<Bound<'py, PyArray<T, D>>> {
    if let Ok(array) = object.cast::<PyUntypedArray>() {
        check_shape(name, array.shape(), "rewards", shape.slice())?;
        output_array::<T, D>(&object, name, shape.slice())?;
    }
    object.cast_into().map_err(|error| {
        let got = type_name(&error.into_inner());
        PyTypeError::new_err(format!("{name} must be a NumPy array, got {got}"))
    })
}
