//! Many multi-agent envs, stepped together.

use std::sync::Arc;

use super::vec::{MAX_ENVS, seeded_streams};
use super::{ActionSpace, Actions, ObsMut, ObsType, Observed, TeamEnv, TeamSpec, VecEnvState};
use crate::error::{KernelError, Result, StateError, check_len, check_size};
use crate::rng::Pcg64;

/// Observations and states of `n` envs with `a` agents each.
#[derive(Debug)]
pub struct TeamView<'a> {
    /// The observations, `n * a * obs_dim`.
    pub obs: ObsMut<'a>,
    /// A centralised critic's states, `n * state_dim`.
    pub state: ObsMut<'a>,
}

/// Outputs of a step of `n` envs with `a` agents each. Earlier content does not matter.
#[derive(Debug)]
pub struct TeamStepBuffers<'a> {
    /// View to act on next: the first of the new episode if one ended.
    pub next: TeamView<'a>,
    /// The rewards, `n * a`.
    pub rewards: &'a mut [f64],
    /// Whether the step reached a terminal state, `n * a`.
    pub terminated: &'a mut [bool],
    /// Whether the step reached the time limit, `n * a`; both may be true.
    pub truncated: &'a mut [bool],
    /// View that the step led to: the last of the old episode if one ended.
    pub last: TeamView<'a>,
    /// Whether the episode ended, `n`.
    pub ended: &'a mut [bool],
}

/// A vector env of any multi-agent env.
pub trait TeamVectorEnv: Send {
    /// Properties of each env.
    fn spec(&self) -> &Arc<TeamSpec>;

    /// The type of the components of observations and states.
    fn obs_type(&self) -> ObsType;

    /// Number of envs.
    fn n_envs(&self) -> usize;

    /// Gives env `i` the stream of the seed `seeds[i]`, without resetting it.
    ///
    /// # Errors
    /// [`KernelError::Shape`] unless there is one seed per env.
    fn seed_all(&mut self, seeds: &[u64]) -> Result<()>;

    /// Begins an episode in every env.
    ///
    /// # Errors
    /// [`KernelError::Shape`] or [`KernelError::DType`] if a buffer has another length or type.
    fn reset_all(&mut self, view: &mut TeamView<'_>) -> Result<()>;

    /// Advances every env by one step and begins a new episode in each env whose episode ended.
    ///
    /// # Errors
    /// [`StateError::BatchNotReset`] before [`TeamVectorEnv::reset_all`], and errors of actions and
    /// buffers; no env moves on an error.
    fn step_all(&mut self, actions: Actions<'_>, out: &mut TeamStepBuffers<'_>) -> Result<()>;

    /// A copy of the complete state of the envs.
    fn state(&self) -> VecEnvState;

    /// Restores `state` exactly.
    ///
    /// # Errors
    /// Errors of the state; the envs are unchanged then.
    fn set_state(&mut self, state: &VecEnvState) -> Result<()>;
}

/// `n` envs of the type `E`, stepped one after the other on the calling thread.
#[derive(Debug, Clone)]
pub struct TeamVecEnv<E> {
    envs: Vec<E>,
    spec: Arc<TeamSpec>,
    elapsed: Vec<u32>,
    rngs: Vec<Pcg64>,
    started: bool,
}

impl<E: TeamEnv> TeamVecEnv<E> {
    /// Calls `make` for each of `n_envs` envs, whose streams the operating system seeds.
    ///
    /// # Errors
    /// [`KernelError::Range`] for `n_envs` outside `[1, MAX_ENVS]`, [`KernelError::OutOfMemory`],
    /// [`KernelError::NoEntropy`]; [`KernelError::Env`] for a spec whose sizes do not fit together,
    /// and the errors of `make`.
    pub fn new(n_envs: usize, mut make: impl FnMut() -> Result<E>) -> Result<Self> {
        check_size("n", n_envs, MAX_ENVS)?;
        let out_of_memory = |_| KernelError::OutOfMemory { name: "n", requested: n_envs };
        let (mut envs, mut elapsed) = (Vec::new(), Vec::new());
        envs.try_reserve_exact(n_envs).map_err(out_of_memory)?;
        elapsed.try_reserve_exact(n_envs).map_err(out_of_memory)?;
        envs.push(make()?);
        let spec = envs[0].spec();
        spec.check()?;
        for _ in 1..n_envs {
            envs.push(make()?);
        }
        elapsed.resize(n_envs, 0);
        let rngs = seeded_streams(n_envs)?;
        Ok(Self { envs, spec: Arc::new(spec), elapsed, rngs, started: false })
    }

    /// The elements of both buffers of a view, of the right type and lengths.
    fn parts<'a>(&self, view: &'a mut TeamView<'_>) -> Result<[&'a mut [E::Obs]; 2]> {
        let n_envs = self.envs.len();
        let (obs, state) = (view.obs.of("obs")?, view.state.of("state")?);
        let size = n_envs * self.spec.n_agents() * self.spec.obs_dim();
        check_len("obs", obs.len(), "n_envs * n_agents * obs_dim", size)?;
        check_len("state", state.len(), "n_envs * state_dim", n_envs * self.spec.state_dim())?;
        Ok([obs, state])
    }

    /// Checks that every agent has an action in the env's action space.
    fn check_actions(&self, actions: Actions<'_>) -> Result<()> {
        let rows = self.envs.len() * self.spec.n_agents();
        match (&self.spec.action_space, actions) {
            (ActionSpace::Discrete { n }, Actions::Discrete(given)) => {
                check_len("actions", given.len(), "n_envs * n_agents", rows)?;
                let wrong = given.iter().position(|action| !(0..*n).contains(action));
                #[expect(clippy::cast_precision_loss, reason = "only for the message")]
                wrong.map_or(Ok(()), |row| {
                    Err(self.outside(row, 0.0, (n - 1) as f64, given[row] as f64))
                })
            }
            (ActionSpace::Continuous { low, high }, Actions::Continuous(given)) => {
                let dim = low.len();
                check_len("actions", given.len(), "n_envs * n_agents * action_dim", rows * dim)?;
                for (index, value) in given.iter().enumerate() {
                    let (low, high) = (low[index % dim], high[index % dim]);
                    if !(low..=high).contains(value) {
                        let bounds = [low, high, *value].map(f64::from);
                        return Err(self.outside(index / dim, bounds[0], bounds[1], bounds[2]));
                    }
                }
                Ok(())
            }
            (space, actions) => Err(KernelError::ActionKind {
                env_id: self.spec.id.clone(),
                expected: space.kind(),
                got: actions.kind(),
            }),
        }
    }

    /// The error for the action in one row of the agents of all envs.
    fn outside(&self, row: usize, low: f64, high: f64, value: f64) -> KernelError {
        let (env, agent) = (row / self.spec.n_agents(), row % self.spec.n_agents());
        KernelError::AgentAction { agent: self.spec.agents[agent].clone(), env, low, high, value }
    }
}

impl<E: TeamEnv> TeamVectorEnv for TeamVecEnv<E> {
    fn spec(&self) -> &Arc<TeamSpec> {
        &self.spec
    }

    fn obs_type(&self) -> ObsType {
        E::Obs::TYPE
    }

    fn n_envs(&self) -> usize {
        self.envs.len()
    }

    fn seed_all(&mut self, seeds: &[u64]) -> Result<()> {
        check_len("seed", seeds.len(), "n_envs", self.envs.len())?;
        for (rng, &seed) in self.rngs.iter_mut().zip(seeds) {
            *rng = Pcg64::from_seed(seed);
        }
        Ok(())
    }

    fn reset_all(&mut self, view: &mut TeamView<'_>) -> Result<()> {
        let [mut obs, mut state] = self.parts(view)?;
        let obs_size = self.spec.n_agents() * self.spec.obs_dim();
        for (env, rng) in self.envs.iter_mut().zip(&mut self.rngs) {
            env.reset(rng);
            env.observe(obs.split_off_mut(..obs_size).unwrap_or_default());
            env.observe_state(state.split_off_mut(..self.spec.state_dim()).unwrap_or_default());
        }
        self.elapsed.fill(0);
        self.started = true;
        Ok(())
    }

    fn step_all(&mut self, actions: Actions<'_>, out: &mut TeamStepBuffers<'_>) -> Result<()> {
        if !self.started {
            return Err(StateError::BatchNotReset.into());
        }
        self.check_actions(actions)?;
        let (n_envs, n_agents) = (self.envs.len(), self.spec.n_agents());
        let [mut obs, mut state] = self.parts(&mut out.next)?;
        let [mut final_obs, mut final_state] = self.parts(&mut out.last)?;
        let rows = n_envs * n_agents;
        check_len("rewards", out.rewards.len(), "n_envs * n_agents", rows)?;
        check_len("terminated", out.terminated.len(), "n_envs * n_agents", rows)?;
        check_len("truncated", out.truncated.len(), "n_envs * n_agents", rows)?;
        check_len("episode_ended", out.ended.len(), "n_envs", n_envs)?;

        let (obs_size, state_dim) = (n_agents * self.spec.obs_dim(), self.spec.state_dim());
        let per_agent = out.terminated.chunks_exact_mut(n_agents);
        let flags = per_agent.zip(out.truncated.chunks_exact_mut(n_agents)).zip(&mut *out.ended);
        let paid = out.rewards.chunks_exact_mut(n_agents).zip(flags);
        for (i, (rewards, ((terminated, truncated), ended))) in paid.enumerate() {
            let (env, rng) = (&mut self.envs[i], &mut self.rngs[i]);
            let is_over = env.step(actions.of_env(i, n_envs), rewards, rng);
            self.elapsed[i] += 1;
            let is_last = self.elapsed[i] >= self.spec.max_episode_steps;
            terminated.fill(is_over);
            truncated.fill(is_last);
            *ended = is_over || is_last;
            // Not chunks: a state without components has none. The lengths have been checked.
            let final_row = final_obs.split_off_mut(..obs_size).unwrap_or_default();
            let final_critic = final_state.split_off_mut(..state_dim).unwrap_or_default();
            let row = obs.split_off_mut(..obs_size).unwrap_or_default();
            let critic = state.split_off_mut(..state_dim).unwrap_or_default();
            env.observe(final_row);
            env.observe_state(final_critic);
            if *ended {
                env.reset(rng);
                self.elapsed[i] = 0;
                env.observe(row);
                env.observe_state(critic);
            } else {
                row.copy_from_slice(final_row);
                critic.copy_from_slice(final_critic);
            }
        }
        Ok(())
    }

    fn state(&self) -> VecEnvState {
        let mut physics = vec![0.0; self.envs.len() * self.spec.physics_dim()];
        for (env, row) in self.envs.iter().zip(physics.chunks_exact_mut(self.spec.physics_dim())) {
            env.save(row);
        }
        VecEnvState {
            physics,
            elapsed: self.elapsed.clone(),
            rng: self.rngs.iter().map(Pcg64::to_words).collect(),
            started: self.started,
        }
    }

    fn set_state(&mut self, state: &VecEnvState) -> Result<()> {
        let spec = &self.spec;
        let bounds = [&*spec.physics_low, &*spec.physics_high];
        let rngs = state.checked(self.envs.len(), bounds, spec.max_episode_steps)?;
        for (env, row) in self.envs.iter_mut().zip(state.physics.chunks_exact(spec.physics_dim())) {
            env.load(row);
        }
        self.elapsed.clone_from(&state.elapsed);
        self.rngs = rngs;
        self.started = state.started;
        Ok(())
    }
}
