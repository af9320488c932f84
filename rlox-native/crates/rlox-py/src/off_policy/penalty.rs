//! The penalty of conservative Q-learning in the critics' step.

use std::sync::Mutex;

use numpy::{Element, Ix1, Ix2, Ix3};
use pyo3::prelude::*;
use rlox_learner::Real;
use rlox_learner::off_policy::{ContinuousLearner, Samples};

use super::BatchArrays;
use crate::convert::real_array;
use crate::errors::raise;
use crate::locks::lock;

/// [`ContinuousLearner::penalize`] without the interpreter lock.
pub(super) fn run<F: Real + Element>(
    py: Python<'_>,
    learner: &Mutex<ContinuousLearner<F>>,
    [critics, policy]: [&Bound<'_, PyAny>; 2],
    batch: &BatchArrays<'_>,
    [random, here, there]: [&Bound<'_, PyAny>; 3],
    lower_bounds: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<f64>> {
    let critics = real_array::<F, Ix1>(critics, "critics")?;
    let policy = real_array::<F, Ix1>(policy, "policy")?;
    let actions = real_array::<F, Ix2>(&batch.actions, "actions")?;
    let random = real_array::<F, Ix3>(random, "random")?;
    let here = real_array::<F, Ix3>(here, "here")?;
    let there = real_array::<F, Ix3>(there, "there")?;
    let bounds = lower_bounds.map(|bounds| real_array::<F, Ix1>(bounds, "lower_bounds"));
    let bounds = bounds.transpose()?;
    let rows = batch.borrow::<F>()?;
    let rows = rows.view()?;
    let (critics, policy, actions) = (critics.as_slice()?, policy.as_slice()?, actions.as_slice()?);
    let samples = Samples {
        random: random.as_slice()?,
        here: here.as_slice()?,
        there: there.as_slice()?,
        lower_bounds: bounds.as_ref().map(|bounds| bounds.as_slice()).transpose()?,
    };
    py.detach(|| lock(learner).penalize(critics, policy, rows.obs, rows.next_obs, actions, samples))
        .map_err(raise)
}

/// [`ContinuousLearner::entropy`] without the interpreter lock.
pub(super) fn run_entropy<F: Real + Element>(
    py: Python<'_>,
    learner: &Mutex<ContinuousLearner<F>>,
    [policy, obs, noise]: [&Bound<'_, PyAny>; 3],
) -> PyResult<f64> {
    let policy = real_array::<F, Ix1>(policy, "policy")?;
    let obs = real_array::<F, Ix2>(obs, "obs")?;
    let noise = real_array::<F, Ix2>(noise, "noise")?;
    let (policy, obs, noise) = (policy.as_slice()?, obs.as_slice()?, noise.as_slice()?);
    py.detach(|| lock(learner).entropy(policy, obs, noise)).map_err(raise)
}
