//! Python binding of the collector.

use std::sync::Arc;
use std::time::Duration;

use numpy::ndarray::Ix1;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::KernelError;
use rlox_kernels::env::{ActionSpace, EnvSpec, VecEnvState, make_vec};
use rlox_kernels::gae::Discount;
use rlox_kernels::memory::check_room;
use rlox_kernels::rng::Pcg64;

use crate::Error;
use crate::policy::{ActionRows, Shape};
use crate::rollout::{Collector, CollectorState, Rollout};
use crate::worker::Worker;

/// Time between checks for signals during a wait.
const PATIENCE: Duration = Duration::from_millis(50);

/// Log-probabilities and values.
type Evaluation<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>);

/// Rollouts of native envs, collected by a background thread in Rust.
#[pyclass(frozen, module = "rlox_candle")]
pub(crate) struct CandleCollector {
    worker: Worker,
    spec: Arc<EnvSpec>,
    n_envs: usize,
    n_steps: usize,
    capacity: usize,
}

#[pymethods]
impl CandleCollector {
    #[new]
    #[pyo3(signature = (
        env_id, n_envs, obs_dim=None, n_actions=None, n_steps=128, hidden=None, seed=None, *,
        critic_hidden=None, gamma=0.99, gae_lambda=0.95, capacity=1, weights=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "the options of a collector")]
    fn new(
        py: Python<'_>,
        env_id: &str,
        n_envs: usize,
        obs_dim: Option<usize>,
        n_actions: Option<usize>,
        n_steps: usize,
        hidden: Option<Bound<'_, PyAny>>,
        seed: Option<u64>,
        critic_hidden: Option<Bound<'_, PyAny>>,
        gamma: f64,
        gae_lambda: f64,
        capacity: usize,
        weights: Option<PyReadonlyArray1<'_, f32>>,
    ) -> PyResult<Self> {
        let widths = |given: Option<Bound<'_, PyAny>>, default| match given {
            None => Ok(default),
            Some(given) => given.extract().map(|n| vec![n; 2]).or_else(|_| given.extract()),
        };
        let hidden = widths(hidden, vec![64; 2])?;
        let hidden = [hidden.clone(), widths(critic_hidden, hidden)?];
        let sizes = hidden.iter().flatten().map(|&width| ("hidden", width));
        for (name, value) in sizes.chain([("n_envs", n_envs), ("n_steps", n_steps)]) {
            if value == 0 {
                return Err(PyValueError::new_err(format!("{name} must be at least 1, got 0")));
            }
        }
        let kernel = |error: KernelError| raise(error.into());
        let mut envs = make_vec(env_id, n_envs).map_err(kernel)?;
        let spec = envs.spec().clone();
        let shape = Shape::of(&spec, hidden);
        check_size("obs_dim", obs_dim, shape.obs_dim, env_id)?;
        check_size("n_actions", n_actions, shape.n_actions, env_id)?;
        check_rollouts(&spec, n_envs, n_steps, capacity).map_err(kernel)?;
        let weights_bytes = shape.n_weights().saturating_mul(2 * 4);
        check_room("hidden", &shape.hidden, weights_bytes, "").map_err(kernel)?;
        let discount = Discount::new(gamma, gae_lambda).map_err(kernel)?;
        let mut rng = Pcg64::from_os().map_err(kernel)?;
        if let Some(seed) = seed {
            let seeds = (0..n_envs as u64).map(|env| seed.wrapping_add(env)).collect::<Vec<_>>();
            envs.seed_all(&seeds).map_err(kernel)?;
            rng = action_stream(seed);
        }
        let weights = match weights {
            Some(weights) => weights.to_vec()?,
            None => shape.initial_weights(&mut rng),
        };
        let collector = Collector::new(envs, rng, n_steps, discount);
        let worker = py.detach(|| Worker::start(collector, shape, weights, capacity));
        Ok(Self { worker: worker.map_err(raise)?, spec, n_envs, n_steps, capacity })
    }

    /// The id of each env.
    #[getter]
    fn env_id(&self) -> &str {
        &self.spec.id
    }

    /// The number of envs.
    #[getter]
    fn n_envs(&self) -> usize {
        self.n_envs
    }

    /// The steps of each env in a rollout.
    #[getter]
    fn n_steps(&self) -> usize {
        self.n_steps
    }

    /// Largest number of rollouts ahead of the consumer.
    #[getter]
    fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of syncs of weights.
    #[getter]
    fn weights_version(&self, py: Python<'_>) -> PyResult<u64> {
        let worker = self.worker()?;
        Ok(py.detach(|| worker.version()))
    }

    /// Wait for the next rollout and return its arrays, (T, N) each.
    fn recv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let worker = self.worker()?;
        loop {
            if let Some(rollout) = py.detach(|| worker.receive(PATIENCE)).map_err(raise)? {
                return self.arrays(py, rollout);
            }
            py.check_signals()?;
        }
    }

    /// Use these weights, float32 (P,), for later rollouts; return their version.
    fn sync_weights(&self, py: Python<'_>, flat: &Bound<'_, PyAny>) -> PyResult<u64> {
        let Ok(array) = flat.cast::<PyArray1<f32>>() else {
            let got = match flat.cast::<PyUntypedArray>() {
                Ok(array) => format!("{} of {} dimensions", array.dtype(), array.ndim()),
                Err(_) => flat.get_type().name()?.to_string(),
            };
            let text = format!("weights must be a float32 array of one dimension, got {got}");
            return Err(PyTypeError::new_err(text));
        };
        let weights = array.try_readonly()?.as_array().to_vec();
        let worker = self.worker()?;
        py.detach(|| worker.sync(weights)).map_err(raise)
    }

    /// Return a copy of the newest weights, float32 (P,).
    fn get_weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let worker = self.worker()?;
        Ok(py.detach(|| worker.weights()).into_pyarray(py))
    }

    /// Return log-probabilities (B,) of actions and values (B,) of observations (B, `obs_dim`), by
    /// the newest weights.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        observations: &Bound<'py, PyArray2<f32>>,
        actions: &Bound<'py, PyAny>,
    ) -> PyResult<Evaluation<'py>> {
        let (expected, got) = (self.spec.obs_dim(), observations.shape().to_vec());
        if got.last() != Some(&expected) {
            let text = format!("observations must have shape (B, {expected}), got {got:?}");
            return Err(PyValueError::new_err(text));
        }
        let actions = match &self.spec.action_space {
            ActionSpace::Discrete { .. } => ActionRows::Discrete(
                actions.extract::<PyReadonlyArray1<'_, i64>>()?.as_array().to_vec(),
            ),
            ActionSpace::Continuous { .. } => {
                let rows = actions.extract::<PyReadonlyArray2<'_, f32>>()?;
                ActionRows::Continuous(rows.as_array().iter().copied().collect())
            }
        };
        let obs: Vec<f32> = observations.try_readonly()?.as_array().iter().copied().collect();
        let worker = self.worker()?;
        let evaluated = py.detach(|| worker.evaluate(&obs, &actions)).map_err(raise)?;
        Ok((evaluated.0.into_pyarray(py), evaluated.1.into_pyarray(py)))
    }

    /// End the thread and wait for its end; calling it again does nothing.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.worker.stop());
    }

    /// Return a copy of the envs' complete state, once the thread is between rollouts.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let worker = self.worker()?;
        let state = py.detach(|| worker.state());
        let result = PyDict::new(py);
        result.set_item("physics", PyArray1::from_vec(py, state.envs.physics))?;
        result.set_item("elapsed", PyArray1::from_vec(py, state.envs.elapsed))?;
        let words = PyArray1::from_vec(py, state.envs.rng.concat());
        result.set_item("env_rng", words.reshape([self.n_envs, 4])?)?;
        result.set_item("rng", PyArray1::from_slice(py, &state.rng))?;
        let obs = state.obs.unwrap_or_default();
        result.set_item("obs", PyArray1::from_vec(py, obs))?;
        Ok(result)
    }

    /// Restore a `state()` exactly.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let obs = entry::<f32>(state, "obs")?;
        let started = !obs.is_empty();
        let n_obs = self.n_envs * self.spec.obs_dim();
        if started && obs.len() != n_obs {
            let text = format!("obs must have length {n_obs} like the envs, got {}", obs.len());
            return Err(PyValueError::new_err(text));
        }
        let words = match state.get_item("env_rng")? {
            Some(words) => words.cast::<PyArray2<u64>>()?.try_readonly()?.to_vec()?,
            None => return Err(missing("env_rng")),
        };
        let rng = entry::<u64>(state, "rng")?;
        let Ok(rng) = <[u64; 4]>::try_from(rng) else {
            return Err(PyValueError::new_err("rng must have 4 words"));
        };
        let envs = VecEnvState {
            physics: entry(state, "physics")?,
            elapsed: entry(state, "elapsed")?,
            rng: words.as_chunks().0.to_vec(),
            started,
        };
        let state = CollectorState { envs, rng, obs: started.then_some(obs) };
        let worker = self.worker()?;
        py.detach(|| worker.set_state(state)).map_err(raise)
    }

    fn __repr__(&self) -> String {
        let Self { spec, n_envs, n_steps, .. } = self;
        format!("CandleCollector(env_id='{}', n_envs={n_envs}, n_steps={n_steps})", spec.id)
    }
}

impl CandleCollector {
    /// The worker, if its thread belongs to this process.
    fn worker(&self) -> PyResult<&Worker> {
        self.worker.check_process().map_err(raise)?;
        Ok(&self.worker)
    }

    fn arrays<'py>(&self, py: Python<'py>, rollout: Rollout) -> PyResult<Bound<'py, PyDict>> {
        let (steps, envs) = (self.n_steps, self.n_envs);
        let dones: Vec<bool> =
            rollout.terminated.iter().zip(&rollout.truncated).map(|(a, b)| a | b).collect();
        let batch = PyDict::new(py);
        let obs_dim = self.spec.obs_dim();
        let observations = rollout.observations.into_pyarray(py);
        batch.set_item("observations", observations.reshape([steps, envs, obs_dim])?)?;
        match rollout.actions {
            ActionRows::Discrete(actions) => {
                batch.set_item("actions", actions.into_pyarray(py).reshape([steps, envs])?)?;
            }
            ActionRows::Continuous(actions) => {
                let act_dim = actions.len() / (steps * envs);
                let actions = actions.into_pyarray(py).reshape([steps, envs, act_dim])?;
                batch.set_item("actions", actions)?;
            }
        }
        for (name, values) in [
            ("rewards", rollout.rewards),
            ("log_probs", rollout.log_probs),
            ("values", rollout.values),
            ("advantages", rollout.advantages),
            ("returns", rollout.returns),
        ] {
            batch.set_item(name, values.into_pyarray(py).reshape([steps, envs])?)?;
        }
        for (name, flags) in
            [("dones", dones), ("terminated", rollout.terminated), ("truncated", rollout.truncated)]
        {
            batch.set_item(name, flags.into_pyarray(py).reshape([steps, envs])?)?;
        }
        batch.set_item("n_envs", envs)?;
        batch.set_item("n_steps", steps)?;
        batch.set_item("weights_version", rollout.weights_version)?;
        Ok(batch)
    }
}

/// Makes panics raise a `RuntimeError`, as rlox-native does.
pub(crate) fn make_panics_ordinary(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PanicException>();
    class.setattr("__bases__", (py.get_type::<PyRuntimeError>(),))
}

/// Refuses more rollouts than fit into memory: those ahead of the consumer, the one in progress and
/// the consumer's.
fn check_rollouts(
    spec: &EnvSpec,
    n_envs: usize,
    n_steps: usize,
    capacity: usize,
) -> Result<(), KernelError> {
    let action = match &spec.action_space {
        ActionSpace::Discrete { .. } => size_of::<i64>(),
        ActionSpace::Continuous { low, .. } => low.len().saturating_mul(size_of::<f32>()),
    };
    // Five numbers and two flags per step, in addition to observation and action.
    let step = spec.obs_dim().saturating_mul(size_of::<f32>()).saturating_add(action + 5 * 4 + 2);
    let rollout = step.saturating_mul(n_envs).saturating_mul(n_steps);
    check_room("n_steps", &n_steps, rollout.saturating_mul(2), "; take fewer")?;
    let all = rollout.saturating_mul(capacity.saturating_add(2));
    check_room("capacity", &capacity, all, "; take fewer rollouts ahead")
}

/// The actions' stream of a seed: it has one word more than any env's seed, so no env shares it.
#[expect(clippy::cast_possible_truncation, reason = "only the two halves are wanted")]
fn action_stream(seed: u64) -> Pcg64 {
    Pcg64::from_entropy(&[seed as u32, (seed >> 32) as u32, 1])
}

/// Refuses a size that is not the env's.
fn check_size(name: &str, got: Option<usize>, expected: usize, env_id: &str) -> PyResult<()> {
    match got {
        Some(got) if got != expected => Err(PyValueError::new_err(format!(
            "{name} of {env_id} is {expected}, got {got}; leave it out or pass {expected}"
        ))),
        _ => Ok(()),
    }
}

fn missing(key: &str) -> PyErr {
    PyValueError::new_err(format!("state must have the key '{key}'"))
}

fn entry<T: numpy::Element + Clone>(state: &Bound<'_, PyDict>, key: &str) -> PyResult<Vec<T>> {
    let Some(array) = state.get_item(key)? else { return Err(missing(key)) };
    let Ok(array) = array.cast::<numpy::PyArray<T, Ix1>>() else {
        let dtype = T::get_dtype(state.py());
        let text = format!("state['{key}'] must be an array of dtype {dtype} and one dimension");
        return Err(PyValueError::new_err(text));
    };
    Ok(array.try_readonly()?.as_array().to_vec())
}

/// The exception for `error`, with its message.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Kernel(KernelError::OutOfMemory { .. } | KernelError::NoRoom { .. }) => {
            PyMemoryError::new_err(text)
        }
        Error::Kernel(KernelError::NoEntropy) => PyOSError::new_err(text),
        Error::Kernel(_) => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}
