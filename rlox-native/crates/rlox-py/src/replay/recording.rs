//! The arrays of a recorded dataset, flat or in rows.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use rlox_kernels::replay::{DType, Field, Layout, NStep};

use super::arrays::parse_dtype;
use super::fields::{ACT_DTYPES, Fields, OBS_DTYPES, Rows, parse_axes};
use crate::convert::{as_real_array, check_shape};
use crate::errors::raise;
use crate::memory::check_transitions;

/// The shapes and types of a dataset's parts, and its transitions, from the `dims` and `dtypes` of
/// observations and actions.
pub(super) fn read<'py>(
    [obs, next_obs, actions, rewards, terminated, truncated]: [&Bound<'py, PyAny>; 6],
    [obs_dim, act_dim]: [Option<&Bound<'py, PyAny>>; 2],
    [obs_dtype, act_dtype]: [Option<&Bound<'py, PyAny>>; 2],
) -> PyResult<(Fields, Rows<'py>)> {
    let rewards = as_real_array(rewards, "rewards")?;
    let n = rewards.len();
    if n == 0 {
        return Err(PyValueError::new_err("rewards must hold at least 1 number, got 0"));
    }
    let given = obs_dim.map(|dim| parse_axes(dim, "obs_dim")).transpose()?;
    let (obs, obs_shape) = rows(obs, "obs", n, given.map(|(shape, _)| shape))?;
    let (next_obs, _) = rows(next_obs, "next_obs", n, Some(obs_shape.clone()))?;
    let given = act_dim.map(|dim| parse_axes(dim, "act_dim")).transpose()?;
    let (actions, act_shape) = rows(actions, "actions", n, given.map(|(shape, _)| shape))?;

    let is_bytes = obs.dtype().kind() == b'u' && obs.dtype().itemsize() == 1;
    let obs_dtype = obs_dtype
        .map_or(Ok(if is_bytes { DType::U8 } else { DType::F32 }), |dtype| {
            parse_dtype(dtype, "obs_dtype", OBS_DTYPES)
        })?;
    let is_integer = b"biu".contains(&actions.dtype().kind());
    let act_dtype = act_dtype
        .map_or(Ok(if is_integer { DType::I64 } else { DType::F32 }), |dtype| {
            parse_dtype(dtype, "act_dtype", ACT_DTYPES)
        })?;
    let field = |dtype, shape: &[usize]| Field { dtype, len: shape.iter().product() };
    let fields = Fields {
        layout: Layout {
            capacity: n,
            obs: field(obs_dtype, &obs_shape),
            action: field(act_dtype, &act_shape),
            n_step: NStep::ONE,
            frames: 0,
        },
        obs: obs_shape,
        action: act_shape,
    };
    // Before reading the arrays, which copies those of other types.
    let bytes = fields.layout.memory_bytes().map_err(raise)?;
    check_transitions("the number of transitions", n, bytes)?;
    let rows = Rows::many(
        &fields,
        obs.as_any(),
        actions.as_any(),
        rewards.as_any(),
        terminated,
        truncated,
        Some(next_obs.as_any()),
    )?;
    Ok((fields, rows))
}

/// `object` as `n` rows, and the shape of a row, as given or inferred from the size.
fn rows<'py>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    n: usize,
    shape: Option<Vec<usize>>,
) -> PyResult<(Bound<'py, PyUntypedArray>, Vec<usize>)> {
    let array = as_real_array(object, name)?;
    let shape = match (shape, array.shape()) {
        (Some(shape), _) => shape,
        (None, [_, row @ ..]) if !row.is_empty() && !row.contains(&0) => row.to_vec(),
        (None, &[size]) if size > 0 && size.is_multiple_of(n) => vec![size / n],
        (None, got) => {
            let text = format!(
                "{name} must hold as many numbers for each of {n} rewards, got shape {got:?}"
            );
            return Err(PyValueError::new_err(text));
        }
    };
    let expected = [&[n], &shape[..]].concat();
    if let &[size] = array.shape()
        && expected.iter().try_fold(1, |size: usize, &axis| size.checked_mul(axis)) == Some(size)
    {
        let flat = array.call_method1(intern!(object.py(), "reshape"), (expected,))?;
        return Ok((flat.cast_into()?, shape));
    }
    check_shape(name, array.shape(), "rewards", &expected)?;
    Ok((array, shape))
}
