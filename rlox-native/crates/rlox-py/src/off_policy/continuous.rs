//! SAC, TD3 and DDPG, and what conservative Q-learning adds.

use std::sync::Mutex;

use numpy::{Element, Ix1, Ix2, PyArray1, PyArrayMethods, PyReadonlyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_learner::Real;
use rlox_learner::off_policy::{
    self as kernels, Actor, Cloning, PolicyStep, PolicyTerms, ValueStep,
};

use super::{Adam, BatchArrays, penalty};
use crate::convert::{real, real_array};
use crate::errors::raise;
use crate::locks::lock;
use crate::precision::{Precise, of_dtype, with_learner};

type Learners = Precise<kernels::ContinuousLearner<f32>, kernels::ContinuousLearner<f64>>;

/// Takes gradient steps of a policy and its critics on arrays that the caller keeps.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct ContinuousLearner {
    learner: Learners,
    n_critics: usize,
    act_dim: usize,
}

#[pymethods]
impl ContinuousLearner {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "what Python gives is owned")]
    #[pyo3(signature = (
        obs_dim, act_dim, hidden, n_critics, *, log_std_bounds=None, dtype="float32"
    ))]
    fn new(
        obs_dim: usize,
        act_dim: usize,
        hidden: Vec<usize>,
        n_critics: usize,
        log_std_bounds: Option<[f64; 2]>,
        dtype: &str,
    ) -> PyResult<Self> {
        let actor = match log_std_bounds {
            Some(log_std_bounds) => Actor::SquashedGaussian { log_std_bounds },
            None => Actor::Deterministic,
        };
        let learner = of_dtype(
            dtype,
            || kernels::ContinuousLearner::new(obs_dim, act_dim, &hidden, actor, n_critics),
            || kernels::ContinuousLearner::new(obs_dim, act_dim, &hidden, actor, n_critics),
        )?;
        Ok(Self { learner, n_critics, act_dim })
    }

    /// How many parameters the policy has.
    #[getter]
    fn n_policy_parameters(&self) -> usize {
        with_learner!(self.learner, |learner| lock(learner).n_policy_parameters())
    }

    /// How many parameters the critics have.
    #[getter]
    fn n_critic_parameters(&self) -> usize {
        with_learner!(self.learner, |learner| lock(learner).n_critic_parameters())
    }

    /// Take a gradient step of the critics; return the loss, the mean value and the TD errors.
    #[pyo3(signature = (
        critics, target, policy, batch, noise, *, learning_rate, alpha, scale, penalty_weight=0.0
    ))]
    fn step_values(
        &self,
        py: Python<'_>,
        critics: &Bound<'_, PyDict>,
        target: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        noise: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        #[pyo3(from_py_with = real::alpha)] alpha: f64,
        #[pyo3(from_py_with = real::scale)] scale: f64,
        #[pyo3(from_py_with = real::penalty_weight)] penalty_weight: f64,
    ) -> PyResult<(f64, f64, Py<PyAny>)> {
        let critics = Adam::parse(critics, "critics")?;
        let batch = BatchArrays::parse(batch)?;
        let step = ValueStep { alpha, scale, penalty_weight, rule: critics.rule(learning_rate) };
        let others = [target, policy];
        with_learner!(self.learner, |learner| self
            .run_values(py, learner, &critics, others, &batch, noise, step))
    }

    /// Take a gradient step of the policy; return the loss and the mean entropy.
    #[pyo3(signature = (policy, critics, obs, noise, *, learning_rate, alpha, cloning=None))]
    fn step_policy(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyDict>,
        critics: &Bound<'_, PyAny>,
        obs: &Bound<'_, PyAny>,
        noise: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = real::learning_rate)] learning_rate: f64,
        #[pyo3(from_py_with = real::alpha)] alpha: f64,
        cloning: Option<(Bound<'_, PyAny>, f64)>,
    ) -> PyResult<(f64, f64)> {
        let policy = Adam::parse(policy, "policy")?;
        let (arrays, rates) = ([critics, obs], (alpha, learning_rate));
        let terms = with_learner!(self.learner, |learner| run_policy(
            py, learner, &policy, arrays, noise, cloning, rates
        ))?;
        Ok((terms.loss, terms.entropy))
    }

    /// Return the penalty of each critic, and keep its gradient for the next step of the critics.
    #[pyo3(signature = (critics, policy, batch, random, here, there, lower_bounds=None))]
    fn penalize(
        &self,
        py: Python<'_>,
        critics: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        batch: &Bound<'_, PyDict>,
        random: &Bound<'_, PyAny>,
        here: &Bound<'_, PyAny>,
        there: &Bound<'_, PyAny>,
        lower_bounds: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<f64>> {
        let batch = BatchArrays::parse(batch)?;
        let (networks, samples) = ([critics, policy], [random, here, there]);
        with_learner!(self.learner, |learner| penalty::run(
            py,
            learner,
            networks,
            &batch,
            samples,
            lower_bounds
        ))
    }

    /// Return the mean of -log π of the actions that the policy makes of noise.
    fn entropy(
        &self,
        py: Python<'_>,
        policy: &Bound<'_, PyAny>,
        obs: &Bound<'_, PyAny>,
        noise: &Bound<'_, PyAny>,
    ) -> PyResult<f64> {
        with_learner!(self.learner, |learner| penalty::run_entropy(
            py,
            learner,
            [policy, obs, noise]
        ))
    }

    /// The gradients of the last steps of the policy and of the critics.
    fn gradients(&self, py: Python<'_>) -> (Py<PyAny>, Py<PyAny>) {
        with_learner!(self.learner, |learner| copied(py, learner))
    }

    fn __repr__(&self) -> String {
        format!("ContinuousLearner(act_dim={}, n_critics={})", self.act_dim, self.n_critics)
    }
}

impl ContinuousLearner {
    fn run_values<F: Real + Element>(
        &self,
        py: Python<'_>,
        learner: &Mutex<kernels::ContinuousLearner<F>>,
        critics: &Adam<'_>,
        [target, policy]: [&Bound<'_, PyAny>; 2],
        batch: &BatchArrays<'_>,
        noise: Option<&Bound<'_, PyAny>>,
        step: ValueStep,
    ) -> PyResult<(f64, f64, Py<PyAny>)> {
        let mut borrowed = critics.borrow::<F>()?;
        let (parameters, mut moments) = borrowed.view()?;
        let target = real_array::<F, Ix1>(target, "target")?;
        let policy = real_array::<F, Ix1>(policy, "policy")?;
        let actions = real_array::<F, Ix2>(&batch.actions, "actions")?;
        let noise = noise_array::<F>(noise)?;
        let rows = batch.borrow::<F>()?;
        let mut errors = vec![F::zero(); self.n_critics * rows.len()];
        let (target, policy) = (target.as_slice()?, policy.as_slice()?);
        let (actions, noise, batch) = (actions.as_slice()?, view(noise.as_ref())?, rows.view()?);
        let terms = py
            .detach(|| {
                let errors = &mut errors;
                lock(learner).step_values(
                    parameters,
                    target,
                    policy,
                    &mut moments,
                    batch,
                    actions,
                    noise,
                    step,
                    errors,
                )
            })
            .map_err(raise)?;
        let errors = PyArray1::from_vec(py, errors).reshape([self.n_critics, rows.len()])?;
        Ok((terms.loss, terms.value, errors.into_any().unbind()))
    }
}

fn run_policy<F: Real + Element>(
    py: Python<'_>,
    learner: &Mutex<kernels::ContinuousLearner<F>>,
    policy: &Adam<'_>,
    [critics, obs]: [&Bound<'_, PyAny>; 2],
    noise: Option<&Bound<'_, PyAny>>,
    cloning: Option<(Bound<'_, PyAny>, f64)>,
    (alpha, learning_rate): (f64, f64),
) -> PyResult<PolicyTerms> {
    let mut borrowed = policy.borrow::<F>()?;
    let (parameters, mut moments) = borrowed.view()?;
    let critics = real_array::<F, Ix1>(critics, "critics")?;
    let obs = real_array::<F, Ix2>(obs, "obs")?;
    let noise = noise_array::<F>(noise)?;
    let cloning = cloning
        .map(|(actions, alpha)| Ok::<_, PyErr>((real_array::<F, Ix2>(&actions, "actions")?, alpha)))
        .transpose()?;
    let cloning = match &cloning {
        Some((actions, alpha)) => Some(Cloning { actions: actions.as_slice()?, alpha: *alpha }),
        None => None,
    };
    let step = PolicyStep { alpha, cloning, rule: policy.rule(learning_rate) };
    let (critics, obs, noise) = (critics.as_slice()?, obs.as_slice()?, view(noise.as_ref())?);
    py.detach(|| lock(learner).step_policy(parameters, critics, &mut moments, obs, noise, step))
        .map_err(raise)
}

fn noise_array<'py, F: Element>(
    noise: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<PyReadonlyArray<'py, F, Ix2>>> {
    noise.map(|noise| real_array(noise, "noise")).transpose()
}

fn view<'a, F: Element>(noise: Option<&'a PyReadonlyArray<'_, F, Ix2>>) -> PyResult<&'a [F]> {
    Ok(noise.map(|noise| noise.as_slice()).transpose()?.unwrap_or(&[]))
}

fn copied<F: Real + Element>(
    py: Python<'_>,
    learner: &Mutex<kernels::ContinuousLearner<F>>,
) -> (Py<PyAny>, Py<PyAny>) {
    let learner = lock(learner);
    let array = |values: &[F]| PyArray1::from_slice(py, values).into_any().unbind();
    (array(learner.policy_gradients()), array(learner.critic_gradients()))
}
