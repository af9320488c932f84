//! The multi-agent vector env.

use std::sync::{Arc, Mutex, MutexGuard};

use numpy::{PyArray2, PyArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use rlox_kernels::env::{self, MAX_ENVS, ObsType, TeamSpec, TeamVectorEnv, make_team_vec};

use crate::convert::{parse_seeds, parse_size};
use crate::env_arrays::{Numbers, Outputs, ViewArrays};
use crate::errors::raise;
use crate::locks::lock;
use crate::memory::check_room;
use crate::team_arguments::{parse_actions, parse_options};
use crate::{env_state, spaces};

/// Return the ids that `MultiAgentVecEnv` builds.
#[pyfunction]
pub(crate) fn native_team_env_ids() -> Vec<&'static str> {
    env::native_team_env_ids().to_vec()
}

/// `n` native multi-agent envs stepped together, each reset in the step that ends its episode.
///
/// Env i equals the original env of the same id and seed. Calls from several threads run one after
/// the other.
#[pyclass(frozen, module = "rlox_native")]
pub struct MultiAgentVecEnv {
    // Taken only with the interpreter lock released: its holder then needs no other lock.
    envs: Mutex<Box<dyn TeamVectorEnv>>,
    spec: Arc<TeamSpec>,
    obs_type: ObsType,
    n_envs: usize,
    // Created once, so that a space keeps the seed given by a caller.
    groups: PyOnceLock<Py<PyAny>>,
    state_space: PyOnceLock<Option<Py<PyAny>>>,
}

impl MultiAgentVecEnv {
    /// The Python object for envs of any kind, including those of other crates.
    #[must_use]
    pub fn from_envs(envs: Box<dyn TeamVectorEnv>) -> Self {
        let (spec, obs_type, n_envs) = (envs.spec().clone(), envs.obs_type(), envs.n_envs());
        let (groups, state_space) = (PyOnceLock::new(), PyOnceLock::new());
        Self { envs: Mutex::new(envs), spec, obs_type, n_envs, groups, state_space }
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn TeamVectorEnv>> {
        lock(&self.envs)
    }

    /// A dict with `value` under the group's name.
    fn by_group<'py>(
        &self,
        py: Python<'py>,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item(&self.spec.group, value)?;
        Ok(dict)
    }

    /// The envs' view before a step, with every agent active and nothing masked.
    fn shown<'py>(&self, py: Python<'py>, view: &ViewArrays<'py>) -> PyResult<Bound<'py, PyDict>> {
        let active = PyArray2::<bool>::zeros(py, [self.n_envs, self.spec.n_agents()], false);
        active.try_readwrite()?.as_slice_mut()?.fill(true);
        let result = PyDict::new(py);
        result.set_item(intern!(py, "obs"), self.by_group(py, view.obs.object())?)?;
        result.set_item(intern!(py, "active"), self.by_group(py, active)?)?;
        result.set_item(intern!(py, "masks"), PyDict::new(py))?;
        result.set_item(intern!(py, "state"), self.critic(&view.state))?;
        Ok(result)
    }

    /// A state, or `None` if the env has none.
    fn critic<'py>(&self, state: &Numbers<'py>) -> Option<Bound<'py, PyAny>> {
        (self.spec.state_dim() > 0).then(|| state.object())
    }
}

/// Bytes of the observations and states of one env in a step's result.
fn step_size(spec: &TeamSpec, obs_type: ObsType) -> usize {
    let size = if obs_type == ObsType::F32 { size_of::<f32>() } else { size_of::<f64>() };
    2 * (spec.n_agents() * spec.obs_dim() + spec.state_dim()) * size
}

#[pymethods]
impl MultiAgentVecEnv {
    #[new]
    #[pyo3(signature = (n, seed=None, env_id="mpe2/simple_spread_v3", env_kwargs=None))]
    fn new(
        n: &Bound<'_, PyAny>,
        seed: Option<&Bound<'_, PyAny>>,
        env_id: &str,
        env_kwargs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let n_envs = parse_size(n, "n")?;
        let options = env_kwargs.map_or_else(|| Ok(Vec::new()), parse_options)?;
        if n_envs <= MAX_ENVS {
            let one = make_team_vec(env_id, 1, &options).map_err(raise)?;
            let bytes = n_envs.saturating_mul(step_size(one.spec(), one.obs_type()));
            check_room("n", &n_envs, bytes, " for the result of one step")?;
        }
        let mut envs = make_team_vec(env_id, n_envs, &options).map_err(raise)?;
        if let Some(seeds) = parse_seeds(seed, n_envs)? {
            envs.seed_all(&seeds).map_err(raise)?;
        }
        Ok(Self::from_envs(envs))
    }

    /// Number of envs.
    #[getter]
    fn n_envs(&self) -> usize {
        self.n_envs
    }

    /// The id of each env.
    #[getter]
    fn env_id(&self) -> &str {
        &self.spec.id
    }

    /// The names of all agents, in the order of their rows.
    #[getter]
    fn possible_agents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.spec.agents)
    }

    /// The agents as one group with their spaces, a tuple of one `rlox.protocols.AgentGroup`.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        self.groups.get_or_try_init(py, || {
            let spec = &self.spec;
            let obs = spaces::make_box_space(py, &spec.obs_low, &spec.obs_high, self.obs_type)?;
            let actions = spaces::make_action_space(py, &spec.action_space)?;
            let agents = PyTuple::new(py, &spec.agents)?;
            let protocols = py.import(intern!(py, "rlox.protocols"))?;
            let group = protocols.getattr(intern!(py, "AgentGroup"))?.call1((
                &spec.group,
                agents,
                obs,
                actions,
            ))?;
            Ok(PyTuple::new(py, [group])?.into_any().unbind())
        })
    }

    /// The gymnasium space of one env's state, the input of a centralised critic.
    #[getter]
    fn state_space(&self, py: Python<'_>) -> PyResult<Option<&Py<PyAny>>> {
        let made = self.state_space.get_or_try_init(py, || {
            let (low, high) = (&self.spec.state_low, &self.spec.state_high);
            let bounded = (!low.is_empty()).then_some((low, high));
            bounded
                .map(|(low, high)| spaces::make_box_space(py, low, high, self.obs_type))
                .transpose()
        })?;
        Ok(made.as_ref())
    }

    /// Begin an episode in every env and return the envs' view, by group.
    ///
    /// An integer s seeds env i with s + i, a sequence seeds each; else every stream continues.
    #[pyo3(signature = (seed=None))]
    fn reset_all<'py>(
        &self,
        py: Python<'py>,
        seed: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let seeds = parse_seeds(seed, self.n_envs)?;
        let mut arrays = ViewArrays::new(py, &self.spec, self.obs_type, self.n_envs)?;
        let mut view = arrays.view()?;
        py.detach(|| {
            let mut envs = self.lock();
            if let Some(seeds) = &seeds {
                envs.seed_all(seeds)?;
            }
            envs.reset_all(&mut view)
        })
        .map_err(raise)?;
        self.shown(py, &arrays)
    }

    /// Step every env with the actions of the group, (n, agents) or (n, agents, `action_dim`), and reset envs at an episode's end.
    fn step_all<'py>(
        &self,
        py: Python<'py>,
        actions: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let actions = parse_actions(actions, self.n_envs, &self.spec)?;
        let mut out = Outputs::new(py, &self.spec, self.obs_type, self.n_envs)?;
        let given = actions.as_actions()?;
        let mut buffers = out.buffers()?;
        py.detach(|| self.lock().step_all(given, &mut buffers)).map_err(raise)?;
        let result = self.shown(py, &out.next)?;
        result.set_item(intern!(py, "rewards"), self.by_group(py, out.rewards.as_any())?)?;
        result.set_item(intern!(py, "terminated"), self.by_group(py, out.terminated.as_any())?)?;
        result.set_item(intern!(py, "truncated"), self.by_group(py, out.truncated.as_any())?)?;
        result.set_item(intern!(py, "final_obs"), self.by_group(py, out.last.obs.object())?)?;
        result.set_item(intern!(py, "final_state"), self.critic(&out.last.state))?;
        result.set_item(intern!(py, "episode_ended"), out.ended.as_any())?;
        Ok(result)
    }

    /// Return a copy of the envs' complete state, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = py.detach(|| self.lock().state());
        env_state::export(py, &state, &self.spec.id, self.spec.physics_dim())
    }

    /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = env_state::parse(state, &self.spec.id, self.spec.physics_dim(), self.n_envs)?;
        py.detach(|| self.lock().set_state(&state)).map_err(raise)
    }

    /// Do nothing: the envs hold no resource but memory.
    #[expect(clippy::unused_self, reason = "part of the protocol of vector envs")]
    fn close(&self) {}

    fn __repr__(&self) -> String {
        let (id, agents) = (&self.spec.id, self.spec.n_agents());
        format!("MultiAgentVecEnv(n={}, env_id='{id}') of {agents} agents", self.n_envs)
    }
}
