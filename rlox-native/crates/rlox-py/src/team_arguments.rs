//! Actions and options of multi-agent envs, from Python arguments.

use numpy::{PyArrayDescrMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyMapping, PyString};
use rlox_kernels::env::{ActionSpace, Actions, OptionValue, TeamSpec};

use crate::convert::{as_real_array, type_name};
use crate::replay::{Cells, Expected, read};

/// One action for each agent of each env. Arrays of the envs' action type are read in place.
pub(crate) enum TeamActions<'py> {
    Integers(Cells<'py, i64>),
    Reals(Cells<'py, f32>),
}

impl TeamActions<'_> {
    pub(crate) fn as_actions(&self) -> PyResult<Actions<'_>> {
        Ok(match self {
            Self::Integers(cells) => Actions::Discrete(cells.as_slice()?),
            Self::Reals(cells) => Actions::Continuous(cells.as_slice()?),
        })
    }
}

/// The array of the only group in `object`, a mapping.
pub(crate) fn parse_actions<'py>(
    object: &Bound<'py, PyAny>,
    n_envs: usize,
    spec: &TeamSpec,
) -> PyResult<TeamActions<'py>> {
    let group = &spec.group;
    let Ok(mapping) = object.cast::<PyMapping>() else {
        return Err(PyTypeError::new_err(format!(
            "actions must be a dict by group ('{group}'), got {}",
            type_name(object)
        )));
    };
    if mapping.len()? != 1 || !mapping.contains(group)? {
        let keys = mapping.keys()?;
        let text = format!("actions must have the group '{group}' and no other, got {keys}");
        return Err(PyValueError::new_err(text));
    }
    let given = mapping.get_item(group)?;
    let array = as_real_array(&given, "actions")?;
    let (kind, dtype) = (array.dtype().kind(), array.dtype());
    let agents = [n_envs, spec.n_agents()];
    let expected = |shape| Expected { shape, like: "the agents", optional: 0 };
    match &spec.action_space {
        ActionSpace::Discrete { .. } => {
            // A mask passed by mistake would otherwise be actions.
            if !b"iu".contains(&kind) {
                let text = format!("actions must be integers, got dtype {dtype}");
                return Err(PyTypeError::new_err(text));
            }
            read(array.as_any(), "actions", &expected(&agents)).map(TeamActions::Integers)
        }
        ActionSpace::Continuous { low, .. } => {
            if kind == b'b' {
                return Err(PyTypeError::new_err("actions must be real numbers, got dtype bool"));
            }
            let shape = [agents[0], agents[1], low.len()];
            read(array.as_any(), "actions", &expected(&shape)).map(TeamActions::Reals)
        }
    }
}

/// The options in `object`, a mapping from names to numbers and flags of Python or NumPy.
pub(crate) fn parse_options(object: &Bound<'_, PyAny>) -> PyResult<Vec<(String, OptionValue)>> {
    let Ok(mapping) = object.cast::<PyMapping>() else {
        let text = format!("env_kwargs must be a dict by name, got {}", type_name(object));
        return Err(PyTypeError::new_err(text));
    };
    let mut options = Vec::new();
    for item in mapping.items()?.iter() {
        let (name, value) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        let Ok(name) = name.cast::<PyString>() else {
            let text = format!("env_kwargs must have names as keys, got {}", type_name(&name));
            return Err(PyTypeError::new_err(text));
        };
        let name = name.to_string();
        let value = parse_value(&value).ok_or_else(|| {
            let got = type_name(&value);
            PyTypeError::new_err(format!(
                "env_kwargs['{name}'] must be a number or a bool, got {got}"
            ))
        })?;
        options.push((name, value));
    }
    Ok(options)
}

/// The value of an option; NumPy scalars are unwrapped.
fn parse_value(object: &Bound<'_, PyAny>) -> Option<OptionValue> {
    let plain = object.call_method0(intern!(object.py(), "item")).ok();
    let object = plain.as_ref().unwrap_or(object);
    if let Ok(flag) = object.cast::<PyBool>() {
        return Some(OptionValue::Flag(flag.is_true()));
    }
    let integer = object.extract::<i64>().map(OptionValue::Integer);
    integer.or_else(|_| object.extract::<f64>().map(OptionValue::Real)).ok()
}
