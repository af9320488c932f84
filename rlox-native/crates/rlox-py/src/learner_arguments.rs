//! Networks and data of an actor-critic, from Python arguments.

use numpy::{Ix1, Ix2, PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rlox_learner::{ActionRows, ActorCritic, Batch, Head, Sequences};

use crate::convert::{check_shape, real_array};
use crate::errors::raise;
use crate::flags::{MaskArray, mask_array};
use crate::memory::{check_memory, check_networks};
use crate::replay::{Cells, Expected, read, read_rows};

/// Arguments on actions: `n_actions`, `choices`, `act_dim` and `scaled`.
type ActionArguments<'a> = (Option<usize>, Option<&'a [usize]>, Option<usize>, bool);

/// Returns the networks and the form of the actions.
pub(crate) fn parse_networks(
    obs_dim: usize,
    hidden: [&[usize]; 2],
    actions: ActionArguments<'_>,
    (critic_dim, memory_size): (Option<usize>, Option<usize>),
    activation: &str,
) -> PyResult<(ActorCritic, ActionForm)> {
    let (head, form) = parse_head(actions)?;
    let seen = memory_size.unwrap_or_else(|| obs_dim.max(critic_dim.unwrap_or(0)));
    check_networks(seen, hidden, head.width(), 2)?;
    let shape = match (critic_dim, memory_size) {
        (None, None) => ActorCritic::new(obs_dim, hidden, head),
        (Some(critic_dim), None) => ActorCritic::apart([obs_dim, critic_dim], hidden, head),
        (None, Some(units)) => {
            check_memory(obs_dim, units)?;
            ActorCritic::recurrent(obs_dim, units, hidden, head)
        }
        (Some(_), Some(_)) => {
            let text = "give either critic_dim or memory_size: with a memory both see the same";
            return Err(PyValueError::new_err(text));
        }
    };
    if !["tanh", "relu"].contains(&activation) {
        let text = format!("activation must be 'tanh' or 'relu', got '{activation}'");
        return Err(PyValueError::new_err(text));
    }
    let shape = if activation == "relu" { shape.map(ActorCritic::rectified) } else { shape };
    let shape = match actions.1 {
        Some(choices) => shape.and_then(|shape| shape.with_choices(choices)),
        None => shape,
    };
    Ok((shape.map_err(raise)?, form))
}

/// Form of actions in Python.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ActionForm {
    /// An integer each.
    Integers,
    /// A row of integers, one for each of several choices.
    Choices(usize),
    /// A row of several real numbers.
    Reals(usize),
}

/// Returns the policy's head and the form of its actions, from the arguments that name them.
fn parse_head(actions: ActionArguments<'_>) -> PyResult<(Head, ActionForm)> {
    match actions {
        (Some(n), None, None, false) => Ok((Head::Categorical(n), ActionForm::Integers)),
        (None, Some(choices), None, false) => {
            let all = choices.iter().fold(0_usize, |sum, &n| sum.saturating_add(n));
            Ok((Head::Categorical(all), ActionForm::Choices(choices.len())))
        }
        (None, None, Some(n), scaled) => {
            let head = if scaled { Head::ScaledGaussian(n) } else { Head::Gaussian(n) };
            Ok((head, ActionForm::Reals(n)))
        }
        _ => Err(PyTypeError::new_err("give one of n_actions, choices and act_dim")),
    }
}

/// The actions of R rows.
enum ActionArray<'py> {
    Integers(Cells<'py, i64>),
    Reals(PyReadonlyArray<'py, f32, Ix2>),
}

impl<'py> ActionArray<'py> {
    /// Reads an action for each row of `log_probs`.
    fn read(form: ActionForm, actions: &Bound<'py, PyAny>, rows: usize) -> PyResult<Self> {
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

    fn as_rows(&self) -> PyResult<ActionRows<'_, f32>> {
        Ok(match self {
            Self::Integers(actions) => ActionRows::Discrete(actions.as_slice()?),
            Self::Reals(components) => ActionRows::Continuous(components.as_slice()?),
        })
    }
}

/// R rows of a rollout, from Python arguments.
pub(crate) struct Rows<'a, 'py> {
    pub(crate) obs: &'a Bound<'py, PyAny>,
    pub(crate) actions: &'a Bound<'py, PyAny>,
    pub(crate) log_probs: &'a Bound<'py, PyAny>,
    pub(crate) values: &'a Bound<'py, PyAny>,
    pub(crate) advantages: &'a Bound<'py, PyAny>,
    pub(crate) returns: &'a Bound<'py, PyAny>,
    pub(crate) masks: Option<&'a Bound<'py, PyAny>>,
    pub(crate) states: Option<&'a Bound<'py, PyAny>>,
    pub(crate) starts: Option<&'a Bound<'py, PyAny>>,
}

/// The same, as arrays borrowed for reading.
pub(crate) struct BatchArrays<'py> {
    obs: PyReadonlyArray<'py, f32, Ix2>,
    actions: ActionArray<'py>,
    log_probs: PyReadonlyArray<'py, f32, Ix1>,
    values: PyReadonlyArray<'py, f32, Ix1>,
    advantages: PyReadonlyArray<'py, f32, Ix1>,
    returns: PyReadonlyArray<'py, f32, Ix1>,
    masks: Option<MaskArray<'py, Ix2>>,
    sequences: Option<SequenceArrays<'py>>,
}

impl<'py> BatchArrays<'py> {
    /// Reads a row for each log-probability.
    pub(crate) fn read(
        shape: &ActorCritic,
        form: ActionForm,
        given: &Rows<'_, 'py>,
    ) -> PyResult<Self> {
        let obs = real_array::<f32, Ix2>(given.obs, "obs")?;
        let log_probs = real_array::<f32, Ix1>(given.log_probs, "log_probs")?;
        let values = real_array::<f32, Ix1>(given.values, "values")?;
        let advantages = real_array::<f32, Ix1>(given.advantages, "advantages")?;
        let returns = real_array::<f32, Ix1>(given.returns, "returns")?;
        let rows = log_probs.len();
        check_shape("obs", obs.shape(), "log_probs", &[rows, shape.obs_dim()])?;
        let actions = ActionArray::read(form, given.actions, rows)?;
        let masks = given.masks.map(|masks| mask_array::<Ix2>(masks, "action_masks"));
        let masks = masks.transpose()?;
        if let Some(masks) = &masks {
            let expected = [rows, shape.head().width()];
            check_shape("action_masks", masks.shape(), "log_probs", &expected)?;
        }
        let sequences = SequenceArrays::read(shape, rows, given.states, given.starts)?;
        Ok(Self { obs, actions, log_probs, values, advantages, returns, masks, sequences })
    }

    pub(crate) fn as_batch(&self) -> PyResult<Batch<'_, f32>> {
        Ok(Batch {
            masks: self.masks.as_ref().map(MaskArray::as_slice),
            obs: self.obs.as_slice()?,
            actions: self.actions.as_rows()?,
            log_probs: self.log_probs.as_slice()?,
            values: self.values.as_slice()?,
            advantages: self.advantages.as_slice()?,
            returns: self.returns.as_slice()?,
            sequences: self.sequences.as_ref().map(SequenceArrays::as_sequences).transpose()?,
        })
    }
}

/// The states before sequences, and the starts of episodes in them.
struct SequenceArrays<'py> {
    length: usize,
    states: PyReadonlyArray<'py, f32, Ix2>,
    starts: MaskArray<'py, Ix1>,
}

impl<'py> SequenceArrays<'py> {
    /// Reads both for `rows` rows, or neither.
    fn read(
        shape: &ActorCritic,
        rows: usize,
        states: Option<&Bound<'py, PyAny>>,
        starts: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Self>> {
        let (states, starts) = match (states, starts) {
            (Some(states), Some(starts)) => (states, starts),
            (None, None) if shape.state_size() == 0 => return Ok(None),
            _ => {
                let text = "a policy with a memory, and no other, is learnt from initial_state and \
                            episode_starts; give both";
                return Err(PyTypeError::new_err(text));
            }
        };
        let states = real_array::<f32, Ix2>(states, "initial_state")?;
        let starts = mask_array::<Ix1>(starts, "episode_starts")?;
        let n = states.shape().first().copied().unwrap_or(0);
        check_shape("initial_state", states.shape(), "the memory", &[n, shape.state_size()])?;
        check_shape("episode_starts", starts.shape(), "log_probs", &[rows])?;
        let length = rows.checked_div(n).unwrap_or(0);
        check_shape(
            "episode_starts",
            starts.shape(),
            "steps of each initial_state",
            &[length * n],
        )?;
        Ok(Some(Self { length, states, starts }))
    }

    fn as_sequences(&self) -> PyResult<Sequences<'_, f32>> {
        let (length, starts) = (self.length, self.starts.as_slice());
        Ok(Sequences { length, starts, states: self.states.as_slice()? })
    }
}
