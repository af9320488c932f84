//! Arrays of the rows that an actor-critic learns from.

use numpy::{Ix1, Ix2, PyReadonlyArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rlox_learner::{ActorCritic, Batch};

use crate::convert::{check_shape, real_array};
use crate::flags::{MaskArray, mask_array};
use crate::learner_actions::{ActionArray, ActionForm};
use crate::learner_memory::SequenceArrays;

/// What Python passes of R rows of a rollout.
pub(crate) struct Rows<'a, 'py> {
    pub(crate) obs: &'a Bound<'py, PyAny>,
    pub(crate) actions: &'a Bound<'py, PyAny>,
    pub(crate) log_probs: &'a Bound<'py, PyAny>,
    /// The values before the rollout; without, the returns, as then no loss reads them.
    pub(crate) values: Option<&'a Bound<'py, PyAny>>,
    pub(crate) advantages: &'a Bound<'py, PyAny>,
    pub(crate) returns: &'a Bound<'py, PyAny>,
    pub(crate) masks: Option<&'a Bound<'py, PyAny>>,
    pub(crate) states: Option<&'a Bound<'py, PyAny>>,
    pub(crate) starts: Option<&'a Bound<'py, PyAny>>,
}

/// The same, as arrays that are borrowed for reading.
pub(crate) struct BatchArrays<'py> {
    obs: PyReadonlyArray<'py, f32, Ix2>,
    actions: ActionArray<'py>,
    log_probs: PyReadonlyArray<'py, f32, Ix1>,
    values: Option<PyReadonlyArray<'py, f32, Ix1>>,
    advantages: PyReadonlyArray<'py, f32, Ix1>,
    returns: PyReadonlyArray<'py, f32, Ix1>,
    masks: Option<MaskArray<'py, Ix2>>,
    sequences: Option<SequenceArrays<'py>>,
}

impl<'py> BatchArrays<'py> {
    /// Reads as many rows as there are log-probabilities.
    pub(crate) fn read(
        shape: &ActorCritic,
        form: ActionForm,
        given: &Rows<'_, 'py>,
    ) -> PyResult<Self> {
        let obs = real_array::<f32, Ix2>(given.obs, "obs")?;
        let log_probs = real_array::<f32, Ix1>(given.log_probs, "log_probs")?;
        let values = given.values.map(|values| real_array::<f32, Ix1>(values, "values"));
        let values = values.transpose()?;
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
        let returns = self.returns.as_slice()?;
        Ok(Batch {
            masks: self.masks.as_ref().map(MaskArray::as_slice),
            obs: self.obs.as_slice()?,
            actions: self.actions.as_rows()?,
            log_probs: self.log_probs.as_slice()?,
            values: match &self.values {
                Some(values) => values.as_slice()?,
                None => returns,
            },
            advantages: self.advantages.as_slice()?,
            returns,
            sequences: self.sequences.as_ref().map(SequenceArrays::as_sequences).transpose()?,
        })
    }
}
