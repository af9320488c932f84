//! Saved, complete states of a vector env, as a dict of arrays.

use numpy::ndarray::{Dimension, Ix1, Ix2};
use numpy::{
    Element, PyArray, PyArray1, PyArray2, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::env::VecEnvState;

use crate::convert::{check_shape, real_array, type_name};
use crate::flags::mask_array;

/// The arrays of a state.
pub(crate) fn export<'py>(
    py: Python<'py>,
    state: &VecEnvState,
    env_id: &str,
    state_dim: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let words = state.rng.concat();
    let result = PyDict::new(py);
    let table = |len| [state.elapsed.len(), len];
    result.set_item("physics", shaped(py, &state.physics, table(state_dim))?)?;
    result.set_item("elapsed", PyArray1::from_slice(py, &state.elapsed))?;
    result.set_item("rng", shaped(py, &words, table(4))?)?;
    result.set_item("started", PyArray1::from_slice(py, &[state.started]))?;
    result.set_item("env_id", PyArray1::from_slice(py, env_id.as_bytes()))?;
    Ok(result)
}

/// Reads the state of `n_envs` envs from arrays.
pub(crate) fn parse(
    state: &Bound<'_, PyAny>,
    env_id: &str,
    state_dim: usize,
    n_envs: usize,
) -> PyResult<VecEnvState> {
    let Ok(state) = state.cast::<PyDict>() else {
        return Err(PyTypeError::new_err("state must be a dict of arrays"));
    };
    // Older checkpoints lack the key.
    let has_id = state.contains("env_id")?;
    if state.len() != 4 + usize::from(has_id) {
        return Err(PyValueError::new_err(format!(
            "state must have the keys physics, elapsed, rng, started and env_id, got {}",
            state.keys()
        )));
    }
    let saved_id = if has_id { saved_id(state)? } else { env_id.to_owned() };
    if saved_id != env_id {
        let text = format!("env_id must be '{saved_id}' as in the state, got '{env_id}'");
        return Err(PyValueError::new_err(text));
    }
    let (row, table) = ([n_envs], |len| [n_envs, len]);
    let words = saved::<u64, Ix2>(state, "rng", &table(4))?;
    let started = saved_array::<bool, Ix1>(state, "started", &[1])?;
    Ok(VecEnvState {
        physics: saved::<f64, Ix2>(state, "physics", &table(state_dim))?,
        elapsed: saved::<u32, Ix1>(state, "elapsed", &row)?,
        rng: words.as_chunks().0.to_vec(),
        started: mask_array::<Ix1>(&started, "started")?.as_slice().iter().any(|&byte| byte != 0),
    })
}

fn shaped<'py, T: Element>(
    py: Python<'py>,
    elements: &[T],
    shape: [usize; 2],
) -> PyResult<Bound<'py, PyArray2<T>>> {
    PyArray1::from_slice(py, elements).reshape(shape)
}

/// The array `state[key]`, which must have this type and number of axes.
fn typed<'py, T: Element, D: Dimension>(
    state: &Bound<'py, PyDict>,
    key: &'static str,
) -> PyResult<Bound<'py, PyArray<T, D>>> {
    let Some(array) = state.get_item(key)? else {
        return Err(PyValueError::new_err(format!("state must have the key '{key}'")));
    };
    array.cast_into().map_err(|error| {
        let got = error.into_inner();
        let got = match got.cast::<PyUntypedArray>() {
            Ok(array) => format!("{} of {} dimensions", array.dtype(), array.ndim()),
            Err(_) => type_name(&got),
        };
        let (dtype, axes) = (T::get_dtype(state.py()), D::NDIM.unwrap_or_default());
        PyValueError::new_err(format!(
            "state['{key}'] must be an array of dtype {dtype} and {axes} dimensions, got {got}"
        ))
    })
}

/// The array `state[key]`, which must have exactly this type and shape.
fn saved_array<'py, T: Element, D: Dimension>(
    state: &Bound<'py, PyDict>,
    key: &'static str,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let array = typed::<T, D>(state, key)?;
    check_shape(key, array.shape(), "the envs", shape)?;
    Ok(array.into_any())
}

/// The id of the state's envs, stored as the bytes of an array.
fn saved_id(state: &Bound<'_, PyDict>) -> PyResult<String> {
    let bytes = real_array::<u8, Ix1>(typed::<u8, Ix1>(state, "env_id")?.as_any(), "env_id")?;
    Ok(String::from_utf8_lossy(bytes.as_slice()?).into_owned())
}

fn saved<T: Element, D: Dimension>(
    state: &Bound<'_, PyDict>,
    key: &'static str,
    shape: &[usize],
) -> PyResult<Vec<T>> {
    let array = saved_array::<T, D>(state, key, shape)?;
    Ok(real_array::<T, D>(&array, key)?.to_vec()?)
}
