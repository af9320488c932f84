//! The learners of off-policy algorithms.

mod continuous;
mod implicit;
mod q_learner;

pub(crate) use continuous::ContinuousLearner;
pub(crate) use implicit::ImplicitLearner;
pub(crate) use q_learner::QLearner;

use numpy::{Ix1, Ix2, PyReadonlyArray, PyReadwriteArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::off_policy::Transitions;
use rlox_learner::{Learnt, Optimizer, StepRule};

use crate::convert::{output_array, parse_real, parse_step, real_array, type_name};

/// The value under `key` in the dict given as `name`.
fn item<'py>(dict: &Bound<'py, PyDict>, name: &str, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let lacks = || PyValueError::new_err(format!("{name} lacks the key '{key}'"));
    dict.get_item(key)?.ok_or_else(lacks)
}

/// Adam's arguments: its moments, borrowed, and its constants.
struct Adam<'py> {
    parameters: PyReadwriteArray<'py, f32, Ix1>,
    first: PyReadwriteArray<'py, f32, Ix1>,
    second: PyReadwriteArray<'py, f32, Ix1>,
    step: u64,
    betas: [f64; 2],
    eps: f64,
    max_grad_norm: Option<f64>,
}

impl<'py> Adam<'py> {
    /// Reads the dict given as `name`.
    fn parse(dict: &Bound<'py, PyDict>, name: &str) -> PyResult<Self> {
        let item = |key| item(dict, name, key);
        let wrong = |key: &str, expected, got: &Bound<'_, PyAny>| {
            let got = type_name(got);
            PyTypeError::new_err(format!("{name}['{key}'] must be {expected}, got {got}"))
        };
        let parameters = item("parameters")?;
        let all = [parameters.len()?];
        let (betas, largest) = (item("betas")?, item("max_grad_norm")?);
        Ok(Self {
            parameters: output_array(&parameters, "parameters", &all)?,
            first: output_array(&item("first_moments")?, "first_moments", &all)?,
            second: output_array(&item("second_moments")?, "second_moments", &all)?,
            step: parse_step(&item("step")?)?,
            betas: betas.extract().map_err(|_| wrong("betas", "two real numbers", &betas))?,
            eps: parse_real(&item("eps")?, "eps")?,
            max_grad_norm: largest
                .extract()
                .map_err(|_| wrong("max_grad_norm", "a real number or None", &largest))?,
        })
    }

    fn learnt(&mut self, learning_rate: f64) -> PyResult<Learnt<'_, f32>> {
        let optimizer = Optimizer::Adam { betas: self.betas, eps: self.eps };
        Ok(Learnt {
            parameters: self.parameters.as_slice_mut()?,
            first: self.first.as_slice_mut()?,
            second: self.second.as_slice_mut()?,
            step: self.step,
            rule: StepRule { optimizer, learning_rate, max_grad_norm: self.max_grad_norm },
        })
    }
}

/// The arrays of a batch, borrowed, except the actions, whose type differs.
struct BatchArrays<'py> {
    obs: PyReadonlyArray<'py, f32, Ix2>,
    actions: Bound<'py, PyAny>,
    rewards: PyReadonlyArray<'py, f32, Ix1>,
    next_obs: PyReadonlyArray<'py, f32, Ix2>,
    discounts: PyReadonlyArray<'py, f32, Ix1>,
    weights: Option<PyReadonlyArray<'py, f32, Ix1>>,
}

impl<'py> BatchArrays<'py> {
    /// Reads the dict given as `batch`.
    fn parse(dict: &Bound<'py, PyDict>) -> PyResult<Self> {
        let item = |key| item(dict, "batch", key);
        Ok(Self {
            obs: real_array(&item("obs")?, "obs")?,
            actions: item("actions")?,
            rewards: real_array(&item("rewards")?, "rewards")?,
            next_obs: real_array(&item("next_obs")?, "next_obs")?,
            discounts: real_array(&item("discounts")?, "discounts")?,
            weights: Some(item("weights")?)
                .filter(|weights| !weights.is_none())
                .map(|weights| real_array(&weights, "weights"))
                .transpose()?,
        })
    }

    fn len(&self) -> usize {
        self.rewards.len()
    }

    fn view(&self) -> PyResult<Transitions<'_>> {
        Ok(Transitions {
            obs: self.obs.as_slice()?,
            next_obs: self.next_obs.as_slice()?,
            rewards: self.rewards.as_slice()?,
            discounts: self.discounts.as_slice()?,
            weights: self.weights.as_ref().map(|weights| weights.as_slice()).transpose()?,
        })
    }
}
