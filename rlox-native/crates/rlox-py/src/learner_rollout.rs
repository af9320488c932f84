//! Actions, rollouts and values of the learner's policy.

use std::sync::Mutex;

use numpy::{
    Ix1, Ix2, Ix3, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rlox_kernels::rng::Pcg64;
use rlox_learner::{ActionBuffer, ActionRequest, Draws, Learner, Rollout};

use crate::convert::{check_shape, output_array, real_array};
use crate::env::VecEnv;
use crate::errors::raise;
use crate::flags::{MaskArray, mask_array, output_flags};
use crate::learner_actions::ActionForm;
use crate::locks::lock;
use crate::output::filled;

/// Borrows the arrays and fills them without the interpreter lock.
pub(crate) fn collect(
    py: Python<'_>,
    learner: &Mutex<Learner<f32>>,
    shape: (usize, ActionForm),
    envs: &VecEnv,
    source: Source<'_, '_>,
    [parameters, next_obs, obs, actions]: [&Bound<'_, PyAny>; 4],
    [log_probs, rewards, terminated, truncated, final_values]: [&Bound<'_, PyAny>; 5],
) -> PyResult<()> {
    let (obs_dim, form) = shape;
    let n = envs.n_envs();
    let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
    let mut next_obs = output_array::<f32, Ix2>(next_obs, "next_obs", &[n, obs_dim])?;
    let steps = rewards.len()?;
    let table = [steps, n];
    let mut obs = output_array::<f32, Ix3>(obs, "obs", &[steps, n, obs_dim])?;
    let mut log_probs = output_array::<f32, Ix2>(log_probs, "log_probs", &table)?;
    let mut rewards = output_array::<f32, Ix2>(rewards, "rewards", &table)?;
    let mut terminated = output_flags::<Ix2>(terminated, "terminated", &table)?;
    let mut truncated = output_flags::<Ix2>(truncated, "truncated", &table)?;
    let mut final_values = output_array::<f32, Ix2>(final_values, "final_values", &table)?;
    let (mut integers, mut choices, mut components);
    let actions = match form {
        ActionForm::Integers => {
            integers = output_array::<i64, Ix2>(actions, "actions", &table)?;
            ActionBuffer::Discrete(integers.as_slice_mut()?)
        }
        ActionForm::Choices(n_choices) => {
            let shape = [steps, n, n_choices];
            choices = output_array::<i64, Ix3>(actions, "actions", &shape)?;
            ActionBuffer::Discrete(choices.as_slice_mut()?)
        }
        ActionForm::Reals(width) => {
            let shape = [steps, n, width];
            components = output_array::<f32, Ix3>(actions, "actions", &shape)?;
            ActionBuffer::Continuous(components.as_slice_mut()?)
        }
    };
    let mut rollout = Rollout {
        obs: obs.as_slice_mut()?,
        actions,
        log_probs: log_probs.as_slice_mut()?,
        rewards: rewards.as_slice_mut()?,
        terminated: terminated.as_slice_mut()?,
        truncated: truncated.as_slice_mut()?,
        final_values: final_values.as_slice_mut()?,
    };
    let (parameters, next_obs) = (parameters.as_slice()?, next_obs.as_slice_mut()?);
    drawing(source, |draws| {
        py.detach(|| {
            let mut learner = lock(learner);
            learner.collect(parameters, &mut **envs.lock(), draws, next_obs, &mut rollout)
        })
        .map_err(raise)
    })
}

/// The state of a generator, or numbers drawn before; with neither nothing is drawn.
pub(crate) type Source<'a, 'py> = (Option<&'a Bound<'py, PyAny>>, Option<&'a Bound<'py, PyAny>>);

/// Calls `call` with the draws of a source, and advances its generator.
fn drawing<T>(
    (stream, noise): Source<'_, '_>,
    call: impl FnOnce(&mut Draws<'_>) -> PyResult<T>,
) -> PyResult<T> {
    match (stream, noise) {
        (None, None) => call(&mut Draws::Mode),
        (None, Some(noise)) => {
            let noise = real_array::<f32, Ix1>(noise, "noise")?;
            call(&mut Draws::Given(noise.as_slice()?))
        }
        (Some(stream), None) => {
            let mut stream = output_array::<u64, Ix1>(stream, "stream", &[4])?;
            let stream = stream.as_slice_mut()?;
            let mut rng = generator(stream)?;
            let found = call(&mut Draws::Stream(&mut rng))?;
            stream.copy_from_slice(&rng.to_words());
            Ok(found)
        }
        _ => Err(PyTypeError::new_err("give either a stream or noise")),
    }
}

/// Draws an action for each row of `obs` without the interpreter lock; returns actions and
/// log-probabilities.
pub(crate) fn act<'py>(
    learner: &Mutex<Learner<f32>>,
    shape: (usize, usize, ActionForm),
    parameters: Option<&Bound<'py, PyAny>>,
    source: Source<'_, 'py>,
    obs: &Bound<'py, PyAny>,
    masks: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray1<f32>>)> {
    let (py, (obs_dim, width, form)) = (obs.py(), shape);
    let parameters = read_parameters(parameters)?;
    let obs = real_array::<f32, Ix2>(obs, "obs")?;
    let rows = obs.shape().first().copied().unwrap_or(0);
    check_shape("obs", obs.shape(), "the networks", &[rows, obs_dim])?;
    let masks = masks.map(|masks| mask_array::<Ix2>(masks, "action_masks")).transpose()?;
    if let Some(masks) = &masks {
        check_shape("action_masks", masks.shape(), "obs and actions", &[rows, width])?;
    }
    let log_probs = PyArray1::zeros(py, rows, false);
    let draw = |actions: ActionBuffer<'_>| {
        let mut log_probs = log_probs.try_readwrite()?;
        let mut request = ActionRequest {
            obs: obs.as_slice()?,
            masks: masks.as_ref().map(MaskArray::as_slice),
            actions,
            log_probs: log_probs.as_slice_mut()?,
        };
        let parameters = as_option(parameters.as_ref())?;
        drawing(source, |draws| {
            py.detach(|| lock(learner).act(parameters, draws, &mut request)).map_err(raise)
        })
    };
    let actions = match form {
        ActionForm::Integers => {
            let actions = PyArray1::zeros(py, rows, false);
            draw(ActionBuffer::Discrete(actions.try_readwrite()?.as_slice_mut()?))?;
            actions.into_any()
        }
        ActionForm::Choices(n) => {
            let actions = PyArray2::zeros(py, [rows, n], false);
            draw(ActionBuffer::Discrete(actions.try_readwrite()?.as_slice_mut()?))?;
            actions.into_any()
        }
        ActionForm::Reals(width) => {
            let actions = PyArray2::zeros(py, [rows, width], false);
            draw(ActionBuffer::Continuous(actions.try_readwrite()?.as_slice_mut()?))?;
            actions.into_any()
        }
    };
    Ok((actions, log_probs))
}

/// Reads parameters, if there are some.
pub(crate) fn read_parameters<'py>(
    parameters: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<PyReadonlyArray1<'py, f32>>> {
    parameters.map(|given| real_array::<f32, Ix1>(given, "parameters")).transpose()
}

/// The numbers of [`read_parameters`].
pub(crate) fn as_option<'a>(
    parameters: Option<&'a PyReadonlyArray1<'_, f32>>,
) -> PyResult<Option<&'a [f32]>> {
    Ok(parameters.map(PyReadonlyArray1::as_slice).transpose()?)
}

/// The generator in the state of four words.
fn generator(stream: &[u64]) -> PyResult<Pcg64> {
    let mut words = [0; 4];
    words.copy_from_slice(stream);
    Pcg64::from_words(words).map_err(raise)
}

/// V of each row of `obs`.
pub(crate) fn values<'py>(
    learner: &Mutex<Learner<f32>>,
    parameters: Option<&Bound<'py, PyAny>>,
    obs: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let py = obs.py();
    let parameters = read_parameters(parameters)?;
    let obs = real_array::<f32, Ix2>(obs, "obs")?;
    let rows = obs.shape().first().copied().unwrap_or(0);
    let (parameters, obs) = (as_option(parameters.as_ref())?, obs.as_slice()?);
    filled(py, Ix1(rows), |values| lock(learner).values(parameters, obs, values))
}
