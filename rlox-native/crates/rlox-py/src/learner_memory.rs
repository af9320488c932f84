//! Arrays of what the learner's policy remembers.

use std::sync::Mutex;

use numpy::{Ix1, Ix2, PyArray2, PyArrayMethods, PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rlox_learner::{ActorCritic, Learner, Sequences};

use crate::convert::{check_shape, real_array};
use crate::errors::raise;
use crate::flags::{MaskArray, mask_array};
use crate::learner_rollout::{as_option, read_parameters};
use crate::locks::lock;

/// The states before sequences, and where episodes begin in them.
pub(crate) struct SequenceArrays<'py> {
    length: usize,
    states: PyReadonlyArray<'py, f32, Ix2>,
    starts: MaskArray<'py, Ix1>,
}

impl<'py> SequenceArrays<'py> {
    /// Reads both for `rows` rows, or neither.
    pub(crate) fn read(
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

    pub(crate) fn as_sequences(&self) -> PyResult<Sequences<'_, f32>> {
        let (length, starts) = (self.length, self.starts.as_slice());
        Ok(Sequences { length, starts, states: self.states.as_slice()? })
    }
}

/// Returns the states after one observation for each row of `state`.
pub(crate) fn remember<'py>(
    learner: &Mutex<Learner<f32>>,
    shape: &ActorCritic,
    parameters: Option<&Bound<'py, PyAny>>,
    obs: &Bound<'py, PyAny>,
    state: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let parameters = read_parameters(parameters)?;
    let obs = real_array::<f32, Ix2>(obs, "obs")?;
    let before = real_array::<f32, Ix2>(state, "state")?;
    let n = obs.shape().first().copied().unwrap_or(0);
    check_shape("obs", obs.shape(), "the memory", &[n, shape.obs_dim()])?;
    check_shape("state", before.shape(), "obs", &[n, shape.state_size()])?;
    let after = PyArray2::from_array(state.py(), &before.as_array());
    {
        let mut after = after.try_readwrite()?;
        lock(learner)
            .remember(as_option(parameters.as_ref())?, obs.as_slice()?, after.as_slice_mut()?)
            .map_err(raise)?;
    }
    Ok(after)
}
