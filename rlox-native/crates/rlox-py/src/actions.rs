//! The actions of a batch of envs, from Python arguments.

use numpy::{
    PyArray1, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList};
use rlox_kernels::env::{ActionSpace, Actions};

use crate::convert::{as_real_array, borrow, is_plain, type_name};
use crate::replay::{Cells, Expected, read};

/// One action per env. Arrays of the envs' action type are read in place.
pub(crate) enum ActionArray<'py> {
    Integers(PyReadonlyArray1<'py, i64>),
    OwnedIntegers(Vec<i64>),
    Reals(Cells<'py, f32>),
}

impl<'py> ActionArray<'py> {
    /// The actions of `n_envs` envs of the action space `space`.
    pub(crate) fn parse(
        object: &Bound<'py, PyAny>,
        n_envs: usize,
        space: &ActionSpace,
    ) -> PyResult<Self> {
        match space {
            ActionSpace::Discrete { .. } => parse_integers(object),
            ActionSpace::Continuous { low, .. } => parse_reals(object, n_envs, low.len()),
        }
    }

    pub(crate) fn as_actions(&self) -> PyResult<Actions<'_>> {
        Ok(match self {
            Self::Integers(array) => Actions::Discrete(array.as_slice()?),
            Self::OwnedIntegers(actions) => Actions::Discrete(actions),
            Self::Reals(cells) => Actions::Continuous(cells.as_slice()?),
        })
    }
}

fn parse_integers<'py>(object: &Bound<'py, PyAny>) -> PyResult<ActionArray<'py>> {
    if let Ok(array) = object.cast::<PyArray1<i64>>()
        && is_plain(array.as_untyped())
    {
        return Ok(ActionArray::Integers(borrow(array, "actions")?));
    }
    if let Ok(list) = object.cast::<PyList>() {
        return parse_items(list.iter());
    }
    let array = as_real_array(object, "actions")?;
    let (dtype, ndim) = (array.dtype(), array.ndim());
    if !b"iu".contains(&dtype.kind()) {
        let text = format!("actions must be integers, got dtype {dtype}");
        return Err(PyTypeError::new_err(text));
    }
    if ndim != 1 {
        let text = format!("actions must have 1 dimension, got {ndim}");
        return Err(PyValueError::new_err(text));
    }
    // Goes through Python integers: a uint64 beyond int64 must be refused, not wrapped.
    parse_items(array.call_method0("tolist")?.cast::<PyList>()?.iter())
}

fn parse_items<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<ActionArray<'py>> {
    let parse = |(index, item)| {
        // A mask passed by mistake would otherwise be a valid batch of actions.
        if Bound::is_instance_of::<PyBool>(&item) {
            let text = format!("actions[{index}] must be an integer, got bool");
            return Err(PyTypeError::new_err(text));
        }
        parse_action(&item, Some(index))
    };
    items.enumerate().map(parse).collect::<PyResult<_>>().map(ActionArray::OwnedIntegers)
}

/// An integer that fits `i64`, from anything with `__index__`; `index` is its place in a batch.
pub(crate) fn parse_action(object: &Bound<'_, PyAny>, index: Option<usize>) -> PyResult<i64> {
    object.extract().map_err(|error: PyErr| {
        let name = index.map_or_else(|| "action".to_owned(), |index| format!("actions[{index}]"));
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            PyValueError::new_err(format!("{name} is not an action of the env, got {object}"))
        } else {
            PyTypeError::new_err(format!("{name} must be an integer, got {}", type_name(object)))
        }
    })
}

/// Rows of `dim` components; for one component the axis may be missing.
fn parse_reals<'py>(
    object: &Bound<'py, PyAny>,
    n_envs: usize,
    dim: usize,
) -> PyResult<ActionArray<'py>> {
    let array = as_real_array(object, "actions")?;
    if array.dtype().kind() == b'b' {
        return Err(PyTypeError::new_err("actions must be real numbers, got dtype bool"));
    }
    let (shape, optional) = ([n_envs, dim], usize::from(dim == 1));
    let expected = Expected { shape: &shape, like: "the action space", optional };
    read(array.as_any(), "actions", &expected).map(ActionArray::Reals)
}
