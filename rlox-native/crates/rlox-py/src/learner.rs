//! The learner of small actor-critics.

use std::sync::Mutex;

use numpy::{Ix1, Ix2, Ix3, PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rlox_kernels::rng::Pcg64;
use rlox_learner::{
    ActionBuffer, ActionRequest, ActorCritic, Learner, Learnt, Loss, Objective, Optimizer, Plan,
    Rollout, StepRule,
};

use crate::convert::{
    as_real_array, check_shape, output_array, parse_critic_hidden, parse_hidden, parse_step, real,
    real_array,
};
use crate::env::VecEnv;
use crate::errors::raise;
use crate::flags::{MaskArray, mask_array, output_flags};
use crate::learner_arguments::{ActionForm, BatchArrays, Rows, parse_networks};
use crate::locks::lock;
use crate::output::filled;
use crate::replay::{Expected, read, vector};

/// Takes the gradient steps of an iteration on the caller's arrays.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ActorCriticLearner {
    learner: Mutex<Learner<f32>>,
    shape: ActorCritic,
    form: ActionForm,
}

#[pymethods]
impl ActorCriticLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (
        obs_dim, hidden, *, n_actions=None, choices=None, act_dim=None, critic_dim=None, memory_size=None,
        scaled=false, activation="tanh", critic_hidden=None
    ))]
    fn new(
        obs_dim: usize,
        #[pyo3(from_py_with = parse_hidden)] hidden: Vec<usize>,
        n_actions: Option<usize>,
        choices: Option<Vec<usize>>,
        act_dim: Option<usize>,
        critic_dim: Option<usize>,
        memory_size: Option<usize>,
        scaled: bool,
        activation: &str,
        #[pyo3(from_py_with = parse_critic_hidden)] critic_hidden: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let hidden = [&hidden[..], critic_hidden.as_deref().unwrap_or(&hidden)];
        let actions = (n_actions, choices.as_deref(), act_dim, scaled);
        let (shape, form) =
            parse_networks(obs_dim, hidden, actions, (critic_dim, memory_size), activation)?;
        Ok(Self { learner: Mutex::new(Learner::new(shape.clone())), shape, form })
    }

    /// Size of the state remembered of an episode.
    #[getter]
    fn state_size(&self) -> usize {
        self.shape.state_size()
    }

    /// Number of parameters of the two networks.
    #[getter]
    fn n_parameters(&self) -> usize {
        self.shape.n_parameters()
    }

    /// The clipped gradient of the last minibatch, `(n_parameters,)`.
    fn gradients<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        vector(py, &lock(&self.learner).gradients())
    }

    /// Take one gradient step per minibatch; return the means of the terms and the steps taken.
    #[pyo3(signature = (
        parameters, second_moments, obs, actions, log_probs, values, advantages, returns, order, *,
        batch_size, learning_rate, max_grad_norm, vf_coef, ent_coef, normalize_advantages,
        step=0, first_moments=None, betas=None, alpha=None, eps=1e-8,
        clip_eps=None, dual_clip=None, vf_clip_eps=None, target_kl=None, action_masks=None,
        initial_state=None, episode_starts=None
    ))]
    fn update<'py>(
        &self,
        py: Python<'py>,
        parameters: &Bound<'py, PyAny>,
        second_moments: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
        actions: &Bound<'py, PyAny>,
        log_probs: &Bound<'py, PyAny>,
        values: &Bound<'py, PyAny>,
        advantages: &Bound<'py, PyAny>,
        returns: &Bound<'py, PyAny>,
        order: &Bound<'py, PyAny>,
        batch_size: usize,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        max_grad_norm: Option<f64>,
        #[pyo3(from_py_with = real::vf_coef)] vf_coef: f64,
        #[pyo3(from_py_with = real::ent_coef)] ent_coef: f64,
        normalize_advantages: bool,
        #[pyo3(from_py_with = parse_step)] step: u64,
        first_moments: Option<&Bound<'py, PyAny>>,
        betas: Option<[f64; 2]>,
        alpha: Option<f64>,
        #[pyo3(from_py_with = real::eps)] eps: f64,
        clip_eps: Option<f64>,
        dual_clip: Option<f64>,
        vf_clip_eps: Option<f64>,
        target_kl: Option<f64>,
        action_masks: Option<&Bound<'py, PyAny>>,
        initial_state: Option<&Bound<'py, PyAny>>,
        episode_starts: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<([f64; 5], usize)> {
        let optimizer = match (betas, alpha) {
            (Some(betas), None) => Optimizer::Adam { betas, eps },
            (None, Some(alpha)) => Optimizer::RmsProp { alpha, eps },
            _ => return Err(PyTypeError::new_err("give either betas (Adam) or alpha (RMSprop)")),
        };
        let objective = match clip_eps {
            Some(clip_eps) => {
                Objective::Clipped { clip_eps, dual_clip, vf_clip_eps, vf_bound: None }
            }
            None => Objective::PolicyGradient,
        };
        let loss = Loss { objective, vf_coef, ent_coef, normalize_advantages };
        let rule = StepRule { optimizer, learning_rate, max_grad_norm };
        let all = [self.shape.n_parameters()];
        let (masks, states, starts) = (action_masks, initial_state, episode_starts);
        let rows =
            Rows { obs, actions, log_probs, values, advantages, returns, masks, states, starts };
        let mut parameters = output_array::<f32, Ix1>(parameters, "parameters", &all)?;
        let mut second = output_array::<f32, Ix1>(second_moments, "second_moments", &all)?;
        let first =
            first_moments.map(|array| output_array::<f32, Ix1>(array, "first_moments", &all));
        let mut first = first.transpose()?;
        let batch = BatchArrays::read(&self.shape, self.form, &rows)?;
        let order = as_real_array(order, "order")?;
        let [_, epoch_rows] = *order.shape() else {
            return Err(PyValueError::new_err("order must have 2 dimensions"));
        };
        let expected = Expected { shape: order.shape(), like: "order", optional: 0 };
        let order = read::<i64>(order.as_any(), "order", &expected)?;
        let batch = batch.as_batch()?;
        let order = order.as_slice()?;
        let plan = Plan { order, epoch_rows, batch_size, loss, target_kl };
        let learnt = Learnt {
            parameters: parameters.as_slice_mut()?,
            first: first.as_mut().map_or(Ok(&mut [][..]), |first| first.as_slice_mut())?,
            second: second.as_slice_mut()?,
            step,
            rule,
        };
        let progress = py.detach(|| lock(&self.learner).update(learnt, batch, plan));
        let progress = progress.map_err(raise)?;
        Ok((progress.terms.to_array(), progress.steps))
    }

    /// Compute the gradient of the mean loss of R rows, without a step; return the means of its terms.
    #[pyo3(signature = (
        parameters, obs, actions, log_probs, advantages, returns, *,
        clip_eps, dual_clip, vf_bound, vf_coef, ent_coef
    ))]
    fn differentiate(
        &self,
        py: Python<'_>,
        parameters: &Bound<'_, PyAny>,
        obs: &Bound<'_, PyAny>,
        actions: &Bound<'_, PyAny>,
        log_probs: &Bound<'_, PyAny>,
        advantages: &Bound<'_, PyAny>,
        returns: &Bound<'_, PyAny>,
        clip_eps: f64,
        dual_clip: Option<f64>,
        vf_bound: Option<f64>,
        #[pyo3(from_py_with = real::vf_coef)] vf_coef: f64,
        #[pyo3(from_py_with = real::ent_coef)] ent_coef: f64,
    ) -> PyResult<[f64; 5]> {
        let objective = Objective::Clipped { clip_eps, dual_clip, vf_clip_eps: None, vf_bound };
        let loss = Loss { objective, vf_coef, ent_coef, normalize_advantages: false };
        let values = returns; // read only by a clip of the value's change
        let (masks, states, starts) = (None, None, None);
        let rows =
            Rows { obs, actions, log_probs, values, advantages, returns, masks, states, starts };
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let batch = BatchArrays::read(&self.shape, self.form, &rows)?;
        let batch = batch.as_batch()?;
        let parameters = parameters.as_slice()?;
        let terms = py.detach(|| lock(&self.learner).differentiate(parameters, batch, loss));
        Ok(terms.map_err(raise)?.to_array())
    }

    /// Step native envs with actions drawn from the policy until the arrays (T, N, ...) are full.
    #[pyo3(signature = (
        envs, parameters, stream, next_obs, obs, actions, log_probs, rewards, terminated, truncated,
        final_values
    ))]
    fn collect<'py>(
        &self,
        py: Python<'py>,
        envs: &VecEnv,
        parameters: &Bound<'py, PyAny>,
        stream: &Bound<'py, PyAny>,
        next_obs: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
        actions: &Bound<'py, PyAny>,
        log_probs: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        final_values: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let (n, obs_dim) = (envs.n_envs(), self.shape.obs_dim());
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
        let actions = match self.form {
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
        drawing(Some(stream), |rng| {
            py.detach(|| {
                let mut learner = lock(&self.learner);
                learner.collect(parameters, &mut **envs.lock(), rng, next_obs, &mut rollout)
            })
            .map_err(raise)
        })
    }

    /// Draw an action for each row of `obs`; return actions (R, ...) and log-probabilities (R,).
    #[pyo3(signature = (parameters, stream, obs, *, action_masks=None))]
    fn act<'py>(
        &self,
        parameters: &Bound<'py, PyAny>,
        stream: Option<&Bound<'py, PyAny>>,
        obs: &Bound<'py, PyAny>,
        action_masks: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyArray1<f32>>)> {
        let (py, obs_dim, width) = (obs.py(), self.shape.seen_dim(), self.shape.head().width());
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let rows = obs.shape().first().copied().unwrap_or(0);
        check_shape("obs", obs.shape(), "the networks", &[rows, obs_dim])?;
        let masks = action_masks.map(|masks| mask_array::<Ix2>(masks, "action_masks"));
        let masks = masks.transpose()?;
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
            let parameters = parameters.as_slice()?;
            drawing(stream, |rng| {
                py.detach(|| lock(&self.learner).act(parameters, rng, &mut request)).map_err(raise)
            })
        };
        let actions = match self.form {
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

    /// Update each row of `state` by one observation; return the new states.
    #[pyo3(signature = (parameters, obs, state))]
    fn remember<'py>(
        &self,
        parameters: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let before = real_array::<f32, Ix2>(state, "state")?;
        let n = obs.shape().first().copied().unwrap_or(0);
        check_shape("obs", obs.shape(), "the memory", &[n, self.shape.obs_dim()])?;
        check_shape("state", before.shape(), "obs", &[n, self.shape.state_size()])?;
        let after = PyArray2::from_array(state.py(), &before.as_array());
        {
            let mut after = after.try_readwrite()?;
            lock(&self.learner)
                .remember(parameters.as_slice()?, obs.as_slice()?, after.as_slice_mut()?)
                .map_err(raise)?;
        }
        Ok(after)
    }

    /// Return V of each row of `obs`, (R,).
    #[pyo3(signature = (parameters, obs))]
    fn values<'py>(
        &self,
        parameters: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let py = obs.py();
        let parameters = real_array::<f32, Ix1>(parameters, "parameters")?;
        let obs = real_array::<f32, Ix2>(obs, "obs")?;
        let rows = obs.shape().first().copied().unwrap_or(0);
        let (parameters, obs) = (parameters.as_slice()?, obs.as_slice()?);
        filled(py, Ix1(rows), |values| lock(&self.learner).values(parameters, obs, values))
    }

    fn __repr__(&self) -> String {
        format!("ActorCriticLearner(obs_dim={}, {:?})", self.shape.obs_dim(), self.shape.head())
    }
}

/// Calls `call` with the generator in the state `stream`, if any, and advances that.
fn drawing<T>(
    stream: Option<&Bound<'_, PyAny>>,
    call: impl FnOnce(Option<&mut Pcg64>) -> PyResult<T>,
) -> PyResult<T> {
    let Some(stream) = stream else { return call(None) };
    let mut stream = output_array::<u64, Ix1>(stream, "stream", &[4])?;
    let stream = stream.as_slice_mut()?;
    let mut words = [0; 4];
    words.copy_from_slice(stream);
    let mut rng = Pcg64::from_words(words).map_err(raise)?;
    let found = call(Some(&mut rng))?;
    stream.copy_from_slice(&rng.to_words());
    Ok(found)
}
