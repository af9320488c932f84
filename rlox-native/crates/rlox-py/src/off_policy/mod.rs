//! The learners of off-policy algorithms.

mod continuous;
mod implicit;
mod q_learner;

pub(crate) use continuous::ContinuousLearner;
pub(crate) use implicit::ImplicitLearner;
pub(crate) use q_learner::QLearner;

use numpy::{Element, Ix1, Ix2, PyReadonlyArray, PyReadwriteArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::off_policy::Transitions;
use rlox_learner::{Moments, Optimizer, StepRule};

use crate::convert::{output_array, parse_real, parse_step, real_array, type_name};

/// What the dict given as `name` holds under `key`.
fn item<'py>(dict: &Bound<'py, PyDict>, name: &str, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let lacks = || PyValueError::new_err(format!("{name} lacks the key '{key}'"));
    dict.get_item(key)?.ok_or_else(lacks)
}

/// What Python gives to move parameters with: Adam's moments, and its constants.
struct Adam<'py> {
    parameters: Bound<'py, PyAny>,
    first_moments: Bound<'py, PyAny>,
    second_moments: Bound<'py, PyAny>,
    step: u64,
    betas: [f64; 2],
    eps: f64,
    max_grad_norm: Option<f64>,
}

/// The arrays of [`Adam`], borrowed.
struct Learnt<'py, F: Element> {
    parameters: PyReadwriteArray<'py, F, Ix1>,
    first: PyReadwriteArray<'py, F, Ix1>,
    second: PyReadwriteArray<'py, F, Ix1>,
    step: u64,
}

impl<'py> Adam<'py> {
    /// What the dict given as `name` holds.
    fn parse(dict: &Bound<'py, PyDict>, name: &str) -> PyResult<Self> {
        let item = |key| item(dict, name, key);
        let wrong = |key: &str, expected, got: &Bound<'_, PyAny>| {
            let got = type_name(got);
            PyTypeError::new_err(format!("{name}['{key}'] must be {expected}, got {got}"))
        };
        let parameters = item("parameters")?;
        let (betas, largest) = (item("betas")?, item("max_grad_norm")?);
        Ok(Self {
            parameters,
            first_moments: item("first_moments")?,
            second_moments: item("second_moments")?,
            step: parse_step(&item("step")?)?,
            betas: betas.extract().map_err(|_| wrong("betas", "two real numbers", &betas))?,
            eps: parse_real(&item("eps")?, "eps")?,
            max_grad_norm: largest
                .extract()
                .map_err(|_| wrong("max_grad_norm", "a real number or None", &largest))?,
        })
    }

    fn rule(&self, learning_rate: f64) -> StepRule {
        let optimizer = Optimizer::Adam { betas: self.betas, eps: self.eps };
        StepRule { optimizer, learning_rate, max_grad_norm: self.max_grad_norm }
    }

    fn borrow<F: Element>(&self) -> PyResult<Learnt<'py, F>> {
        let all = [self.parameters.len()?];
        Ok(Learnt {
            parameters: output_array(&self.parameters, "parameters", &all)?,
            first: output_array(&self.first_moments, "first_moments", &all)?,
            second: output_array(&self.second_moments, "second_moments", &all)?,
            step: self.step,
        })
    }
}

impl<F: Element> Learnt<'_, F> {
    fn view(&mut self) -> PyResult<(&mut [F], Moments<'_, F>)> {
        let Self { parameters, first, second, step } = self;
        let moments =
            Moments { step: *step, first: first.as_slice_mut()?, second: second.as_slice_mut()? };
        Ok((parameters.as_slice_mut()?, moments))
    }
}

/// A batch as Python gives it.
struct BatchArrays<'py> {
    obs: Bound<'py, PyAny>,
    actions: Bound<'py, PyAny>,
    rewards: Bound<'py, PyAny>,
    next_obs: Bound<'py, PyAny>,
    discounts: Bound<'py, PyAny>,
    weights: Option<Bound<'py, PyAny>>,
}

/// The arrays of [`BatchArrays`], borrowed; actions apart, as their type differs.
struct Rows<'py, F: Element> {
    obs: PyReadonlyArray<'py, F, Ix2>,
    rewards: PyReadonlyArray<'py, F, Ix1>,
    next_obs: PyReadonlyArray<'py, F, Ix2>,
    discounts: PyReadonlyArray<'py, F, Ix1>,
    weights: Option<PyReadonlyArray<'py, F, Ix1>>,
}

impl<'py> BatchArrays<'py> {
    /// What the dict given as `batch` holds.
    fn parse(dict: &Bound<'py, PyDict>) -> PyResult<Self> {
        let item = |key| item(dict, "batch", key);
        Ok(Self {
            obs: item("obs")?,
            actions: item("actions")?,
            rewards: item("rewards")?,
            next_obs: item("next_obs")?,
            discounts: item("discounts")?,
            weights: Some(item("weights")?).filter(|weights| !weights.is_none()),
        })
    }

    fn borrow<F: Element>(&self) -> PyResult<Rows<'py, F>> {
        Ok(Rows {
            obs: real_array(&self.obs, "obs")?,
            rewards: real_array(&self.rewards, "rewards")?,
            next_obs: real_array(&self.next_obs, "next_obs")?,
            discounts: real_array(&self.discounts, "discounts")?,
            weights: self.weights.as_ref().map(|w| real_array(w, "weights")).transpose()?,
        })
    }
}

impl<F: Element> Rows<'_, F> {
    fn len(&self) -> usize {
        self.rewards.len()
    }

    fn view(&self) -> PyResult<Transitions<'_, F>> {
        Ok(Transitions {
            obs: self.obs.as_slice()?,
            next_obs: self.next_obs.as_slice()?,
            rewards: self.rewards.as_slice()?,
            discounts: self.discounts.as_slice()?,
            weights: self.weights.as_ref().map(|weights| weights.as_slice()).transpose()?,
        })
    }
}
