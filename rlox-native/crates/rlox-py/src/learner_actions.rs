//! Arrays of the actions that an actor-critic learns from and draws.

use numpy::{Ix2, PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rlox_learner::{ActionRows, Head};

use crate::convert::{check_shape, real_array};
use crate::replay::{Cells, Expected, read, read_rows};

/// What actions are in Python.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ActionForm {
    /// An integer each.
    Integers,
    /// A row of integers, one of each of so many choices.
    Choices(usize),
    /// A row of so many real numbers.
    Reals(usize),
}

/// Returns the policy's head and the form of its actions, from the arguments that name them.
pub(crate) fn parse_head(
    n_actions: Option<usize>,
    choices: Option<&[usize]>,
    act_dim: Option<usize>,
    scaled: bool,
) -> PyResult<(Head, ActionForm)> {
    match (n_actions, choices, act_dim) {
        (Some(n), None, None) => Ok((Head::Categorical(n), ActionForm::Integers)),
        (None, Some(choices), None) => {
            let all = choices.iter().fold(0_usize, |sum, &n| sum.saturating_add(n));
            Ok((Head::Categorical(all), ActionForm::Choices(choices.len())))
        }
        (None, None, Some(n)) => {
            let head = if scaled { Head::ScaledGaussian(n) } else { Head::Gaussian(n) };
            Ok((head, ActionForm::Reals(n)))
        }
        _ => Err(PyTypeError::new_err("give one of n_actions, choices and act_dim")),
    }
}

/// The actions of R rows.
pub(crate) enum ActionArray<'py> {
    Integers(Cells<'py, i64>),
    Reals(PyReadonlyArray<'py, f32, Ix2>),
}

impl<'py> ActionArray<'py> {
    /// Reads as many actions as `log_probs` has rows.
    pub(crate) fn read(
        form: ActionForm,
        actions: &Bound<'py, PyAny>,
        rows: usize,
    ) -> PyResult<Self> {
        match form {
            ActionForm::Integers => {
                read_rows(actions, "actions", "log_probs", rows).map(Self::Integers)
            }
            ActionForm::Choices(n) => {
                let expected = Expected { shape: &[rows, n], like: "log_probs", optional: 0 };
                read(actions, "actions", &expected).map(Self::Integers)
            }
            ActionForm::Reals(width) => {
                let components = real_array::<f32, Ix2>(actions, "actions")?;
                check_shape("actions", components.shape(), "log_probs", &[rows, width])?;
                Ok(Self::Reals(components))
            }
        }
    }

    pub(crate) fn as_rows(&self) -> PyResult<ActionRows<'_, f32>> {
        Ok(match self {
            Self::Integers(actions) => ActionRows::Discrete(actions.as_slice()?),
            Self::Reals(components) => ActionRows::Continuous(components.as_slice()?),
        })
    }
}
