//! The learners of off-policy algorithms.

mod continuous;
mod implicit;
mod penalty;
mod q_learner;

pub(crate) use continuous::ContinuousLearner;
pub(crate) use implicit::ImplicitLearner;
pub(crate) use q_learner::QLearner;

use numpy::{Element, Ix1, Ix2, PyReadonlyArray, PyReadwriteArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::learner::off_policy::{StepRule, Transitions};
use rlox_kernels::learner::{Moments, Optimizer};

use crate::convert::{output_array, real_array};

/// A learner in either precision.
enum Precise<S, D> {
    Single(S),
    Double(D),
}

/// Makes a learner of the precision called `dtype`.
fn of_dtype<S, D>(
    dtype: &str,
    single: impl FnOnce() -> S,
    double: impl FnOnce() -> D,
) -> PyResult<Precise<S, D>> {
    match dtype {
        "float32" => Ok(Precise::Single(single())),
        "float64" => Ok(Precise::Double(double())),
        _ => {
            let text = format!("dtype must be 'float32' or 'float64', got '{dtype}'");
            Err(PyValueError::new_err(text))
        }
    }
}

/// What the dict given as `name` holds.
fn fields<'a, 'py, T>(dict: &'a Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    dict.extract().map_err(|error: PyErr| {
        let key = error.value(dict.py());
        if error.is_instance_of::<PyKeyError>(dict.py()) {
            PyValueError::new_err(format!("{name} lacks the key {key}"))
        } else {
            error
        }
    })
}

/// What Python gives to move parameters with: Adam's moments, and its constants.
#[derive(FromPyObject)]
struct Adam<'py> {
    #[pyo3(item)]
    parameters: Bound<'py, PyAny>,
    #[pyo3(item)]
    first_moments: Bound<'py, PyAny>,
    #[pyo3(item)]
    second_moments: Bound<'py, PyAny>,
    #[pyo3(item)]
    step: u64,
    #[pyo3(item)]
    betas: (f64, f64),
    #[pyo3(item)]
    eps: f64,
    #[pyo3(item)]
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
    fn rule(&self, learning_rate: f64) -> StepRule {
        let optimizer = Optimizer::Adam { betas: self.betas.into(), eps: self.eps };
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
#[derive(FromPyObject)]
struct BatchArrays<'py> {
    #[pyo3(item)]
    obs: Bound<'py, PyAny>,
    #[pyo3(item)]
    actions: Bound<'py, PyAny>,
    #[pyo3(item)]
    rewards: Bound<'py, PyAny>,
    #[pyo3(item)]
    next_obs: Bound<'py, PyAny>,
    #[pyo3(item)]
    discounts: Bound<'py, PyAny>,
    #[pyo3(item)]
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
