//! Rollouts from Python: arrays (T,) of one env or (T, N) of several.

use numpy::ndarray::IxDyn;
use numpy::{Element, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlox_kernels::number::Float;
use rlox_kernels::rollout::TimeMajor;

use crate::convert::{check_shape, real_array};
use crate::flags::{MaskArray, mask_array};

/// A rollout as passed by the caller.
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) rewards: &'a Bound<'py, PyAny>,
    pub(crate) values: &'a Bound<'py, PyAny>,
    pub(crate) dones: &'a Bound<'py, PyAny>,
    pub(crate) last_value: (&'static str, &'a Bound<'py, PyAny>),
    pub(crate) truncated: Option<&'a Bound<'py, PyAny>>,
    pub(crate) final_values: Option<&'a Bound<'py, PyAny>>,
}

/// A rollout of one element type, with checked shapes.
pub(crate) struct Rollout<'py, F: Element> {
    rewards: PyReadonlyArrayDyn<'py, F>,
    values: PyReadonlyArrayDyn<'py, F>,
    terminated: MaskArray<'py, IxDyn>,
    last_values: PyReadonlyArrayDyn<'py, F>,
    /// Truncated steps, and the values of their final observations.
    cuts: Option<(MaskArray<'py, IxDyn>, PyReadonlyArrayDyn<'py, F>)>,
    /// Replacement for missing `cuts`.
    none: (Vec<u8>, Vec<F>),
}

impl<'py, F: Float + Element> Rollout<'py, F> {
    pub(crate) fn parse(arguments: &Arguments<'_, 'py>) -> PyResult<Self> {
        let rewards = real_array::<F, IxDyn>(arguments.rewards, "rewards")?;
        let shape = rewards.shape().to_vec();
        if !(1..=2).contains(&shape.len()) {
            let text = format!("rewards must have 1 or 2 dimensions, got {}", shape.len());
            return Err(PyValueError::new_err(text));
        }
        let values = real_array::<F, IxDyn>(arguments.values, "values")?;
        check_shape("values", values.shape(), "rewards", &shape)?;
        let terminated = mask_array::<IxDyn>(arguments.dones, "dones")?;
        check_shape("dones", terminated.shape(), "rewards", &shape)?;
        let (name, last_values) = arguments.last_value;
        let last_values = real_array::<F, IxDyn>(last_values, name)?;
        let expected = shape.get(1..).unwrap_or_default();
        check_shape(name, last_values.shape(), "a step of rewards", expected)?;
        let cuts = match (arguments.truncated, arguments.final_values) {
            (None, None) => None,
            (Some(truncated), Some(final_values)) => {
                let truncated = mask_array::<IxDyn>(truncated, "truncated")?;
                check_shape("truncated", truncated.shape(), "rewards", &shape)?;
                let final_values = real_array::<F, IxDyn>(final_values, "final_values")?;
                check_shape("final_values", final_values.shape(), "rewards", &shape)?;
                Some((truncated, final_values))
            }
            _ => {
                let text = "truncated and final_values come together: a cut episode is \
                            bootstrapped from the value of its final observation";
                return Err(PyValueError::new_err(text));
            }
        };
        let len = if cuts.is_some() { 0 } else { rewards.len() };
        let none = (vec![0; len], vec![F::default(); len]);
        Ok(Self { rewards, values, terminated, last_values, cuts, none })
    }

    pub(crate) fn shape(&self) -> IxDyn {
        self.rewards.as_array().raw_dim()
    }

    pub(crate) fn time_major(&self) -> PyResult<TimeMajor<'_, F, u8>> {
        let (truncated, final_values) = match &self.cuts {
            Some((truncated, final_values)) => (truncated.as_slice(), final_values.as_slice()?),
            None => (&self.none.0[..], &self.none.1[..]),
        };
        Ok(TimeMajor {
            rewards: self.rewards.as_slice()?,
            values: self.values.as_slice()?,
            terminated: self.terminated.as_slice(),
            truncated,
            final_values,
            last_values: self.last_values.as_slice()?,
        })
    }
}
