//! The vector env.

use std::sync::{Arc, Mutex, MutexGuard};

use numpy::{PyArray1, PyArrayMethods, PyReadwriteArray1};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rlox_kernels::env::{self, EnvSpec, ObsType, StepBuffers, VectorEnv, make_vec};

use crate::actions::ActionArray;
use crate::convert::{output_array, parse_seeds, parse_size};
use crate::env_arrays::Numbers;
use crate::errors::raise;
use crate::flags::output_flags;
use crate::locks::lock;
use crate::{env_state, spaces};

/// Return the ids that `VecEnv` builds.
#[pyfunction]
pub(crate) fn native_env_ids() -> Vec<&'static str> {
    env::native_env_ids().to_vec()
}

/// `n` native envs stepped together, each reset in the step that ends its episode.
///
/// Env i is bit-identical to gymnasium's env of the same id and seed. Calls from several threads
/// run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub struct VecEnv {
    // Taken only with the interpreter lock released: its holder then needs no other lock.
    envs: Mutex<Box<dyn VectorEnv>>,
    spec: Arc<EnvSpec>,
    obs_type: ObsType,
    n_envs: usize,
    // Created once, so that a space keeps the seed given by a caller.
    observation_space: PyOnceLock<Py<PyAny>>,
    action_space: PyOnceLock<Py<PyAny>>,
}

impl VecEnv {
    /// The Python object for envs of any kind, including those of other crates.
    #[must_use]
    pub fn from_envs(envs: Box<dyn VectorEnv>) -> Self {
        let (spec, obs_type, n_envs) = (envs.spec().clone(), envs.obs_type(), envs.n_envs());
        let (observation_space, action_space) = (PyOnceLock::new(), PyOnceLock::new());
        Self { envs: Mutex::new(envs), spec, obs_type, n_envs, observation_space, action_space }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<dyn VectorEnv>> {
        lock(&self.envs)
    }

    fn parse_actions<'py>(&self, actions: &Bound<'py, PyAny>) -> PyResult<ActionArray<'py>> {
        ActionArray::parse(actions, self.n_envs, &self.spec.action_space)
    }

    fn step(
        &self,
        py: Python<'_>,
        actions: &ActionArray<'_>,
        out: &mut Outputs<'_>,
    ) -> PyResult<()> {
        let actions = actions.as_actions()?;
        let mut buffers = out.buffers()?;
        py.detach(|| self.lock().step_all(actions, &mut buffers)).map_err(raise)
    }
}

/// The output arrays of a step, borrowed for writing.
struct Outputs<'py> {
    obs: Numbers<'py>,
    rewards: PyReadwriteArray1<'py, f64>,
    terminated: PyReadwriteArray1<'py, bool>,
    truncated: PyReadwriteArray1<'py, bool>,
    final_obs: Numbers<'py>,
}

impl Outputs<'_> {
    fn buffers(&mut self) -> PyResult<StepBuffers<'_>> {
        Ok(StepBuffers {
            obs: self.obs.values()?,
            rewards: self.rewards.as_slice_mut()?,
            terminated: self.terminated.as_slice_mut()?,
            truncated: self.truncated.as_slice_mut()?,
            final_obs: self.final_obs.values()?,
        })
    }
}

#[pymethods]
impl VecEnv {
    #[new]
    #[pyo3(signature = (n, seed=None, env_id="CartPole-v1"))]
    fn new(n: &Bound<'_, PyAny>, seed: Option<&Bound<'_, PyAny>>, env_id: &str) -> PyResult<Self> {
        let n_envs = parse_size(n, "n")?;
        let mut envs = make_vec(env_id, n_envs).map_err(raise)?;
        if let Some(seeds) = parse_seeds(seed, n_envs)? {
            envs.seed_all(&seeds).map_err(raise)?;
        }
        Ok(Self::from_envs(envs))
    }

    /// Number of envs.
    #[getter]
    pub(crate) fn n_envs(&self) -> usize {
        self.n_envs
    }

    /// The id of each env.
    #[getter]
    fn env_id(&self) -> &str {
        &self.spec.id
    }

    /// The gymnasium space of one env's observations.
    #[getter]
    fn observation_space(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        self.observation_space.get_or_try_init(py, || {
            let spec = &self.spec;
            spaces::make_box_space(py, &spec.obs_low, &spec.obs_high, self.obs_type)
        })
    }

    /// The gymnasium space of one env's actions.
    #[getter]
    fn action_space(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        self.action_space
            .get_or_try_init(py, || spaces::make_action_space(py, &self.spec.action_space))
    }

    /// Begin an episode in every env and return the observations, float32 (n, `obs_dim`).
    ///
    /// An integer s seeds env i with s + i, a sequence seeds each; else every stream continues.
    #[pyo3(signature = (seed=None))]
    fn reset_all<'py>(
        &self,
        py: Python<'py>,
        seed: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let seeds = parse_seeds(seed, self.n_envs)?;
        let mut array = Numbers::new(py, self.obs_type, &[self.n_envs, self.spec.obs_dim()])?;
        let obs = array.values()?;
        py.detach(|| {
            let mut envs = self.lock();
            if let Some(seeds) = &seeds {
                envs.seed_all(seeds)?;
            }
            envs.reset_all(obs)
        })
        .map_err(raise)?;
        Ok(array.object())
    }

    /// Step every env with one of the `actions`, (n,) or (n, `action_dim`), and reset envs at an episode's end.
    ///
    /// Return a dict of obs, rewards, terminated, truncated and `final_obs`; `final_obs` is the
    /// observation that the step led to, obs the one to act on next.
    fn step_all<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let actions = self.parse_actions(actions)?;
        let (n, table) = (self.n_envs, &[self.n_envs, self.spec.obs_dim()]);
        let mut out = Outputs {
            obs: Numbers::new(py, self.obs_type, table)?,
            rewards: PyArray1::zeros(py, n, false).try_readwrite()?,
            terminated: PyArray1::zeros(py, n, false).try_readwrite()?,
            truncated: PyArray1::zeros(py, n, false).try_readwrite()?,
            final_obs: Numbers::new(py, self.obs_type, table)?,
        };
        self.step(py, &actions, &mut out)?;
        let result = PyDict::new(py);
        result.set_item(intern!(py, "obs"), out.obs.object())?;
        result.set_item(intern!(py, "rewards"), out.rewards.as_any())?;
        result.set_item(intern!(py, "terminated"), out.terminated.as_any())?;
        result.set_item(intern!(py, "truncated"), out.truncated.as_any())?;
        result.set_item(intern!(py, "final_obs"), out.final_obs.object())?;
        Ok(result)
    }

    /// Do the same as `step_all`, into existing arrays.
    fn step_into<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
        obs: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        final_obs: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        // Before borrowing the flags: converting an object runs its code, which may write to them.
        let actions = self.parse_actions(actions)?;
        let (row, table) = ([self.n_envs], [self.n_envs, self.spec.obs_dim()]);
        let mut out = Outputs {
            obs: Numbers::of(obs, "obs", self.obs_type, &table)?,
            rewards: output_array(rewards, "rewards", &row)?,
            terminated: output_flags(terminated, "terminated", &row)?,
            truncated: output_flags(truncated, "truncated", &row)?,
            final_obs: Numbers::of(final_obs, "final_obs", self.obs_type, &table)?,
        };
        self.step(py, &actions, &mut out)
    }

    /// Return a copy of the envs' complete state, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = py.detach(|| self.lock().state());
        env_state::export(py, &state, &self.spec.id, self.spec.state_dim())
    }

    /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = env_state::parse(state, &self.spec.id, self.spec.state_dim(), self.n_envs)?;
        py.detach(|| self.lock().set_state(&state)).map_err(raise)
    }

    /// Do nothing: the envs hold no resource but memory.
    #[expect(clippy::unused_self, reason = "part of the protocol of vector envs")]
    fn close(&self) {}

    fn __repr__(&self) -> String {
        format!("VecEnv(n={}, env_id='{}')", self.n_envs, self.spec.id)
    }
}
