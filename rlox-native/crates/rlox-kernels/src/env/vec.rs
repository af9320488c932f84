//! Many envs of one kind, stepped together.

use std::sync::Arc;

use super::{Action, Actions, Env, EnvSpec, ObsMut, ObsType, Observed};
use crate::error::{KernelError, Result, StateError, check_len, check_range, check_size};
use crate::rng::{Pcg64, halves};
use crate::threads::{self, Meter};

/// Largest number of envs of a vector env: far above any use, far below exhausting memory.
pub const MAX_ENVS: usize = 1 << 24;

/// Outputs of a step of `n` envs. Earlier content does not matter.
#[derive(Debug)]
pub struct StepBuffers<'a> {
    /// The observation to act on next, `n * obs_dim`: the first of the new episode if one ended.
    pub obs: ObsMut<'a>,
    /// The rewards, `n`.
    pub rewards: &'a mut [f64],
    /// Whether the step reached a terminal state, `n`.
    pub terminated: &'a mut [bool],
    /// Whether the step reached the time limit, `n`; both may be true.
    pub truncated: &'a mut [bool],
    /// The observation the step led to, `n * obs_dim`: the last of the old episode if one ended.
    pub final_obs: ObsMut<'a>,
}

/// The complete state of a vector env.
#[derive(Debug, Clone, PartialEq)]
pub struct VecEnvState {
    /// The physical states, `n * state_dim`.
    pub physics: Vec<f64>,
    /// Steps since each episode began, `n`.
    pub elapsed: Vec<u32>,
    /// The words of each random stream, `n`.
    pub rng: Vec<[u64; 4]>,
    /// Whether the envs have ever been reset.
    pub started: bool,
}

impl VecEnvState {
    /// Checks a state against `n_envs` envs and their limits; returns its random streams.
    ///
    /// # Errors
    /// Errors of the state.
    pub(super) fn checked(
        &self,
        n_envs: usize,
        [low, high]: [&[f64]; 2],
        max_episode_steps: u32,
    ) -> Result<Vec<Pcg64>> {
        let dim = low.len();
        check_len("physics", self.physics.len(), "n_envs * state_dim", n_envs * dim)?;
        check_len("elapsed", self.elapsed.len(), "n_envs", n_envs)?;
        check_len("rng", self.rng.len(), "n_envs", n_envs)?;
        if let Some(index) = self.physics.iter().position(|value| !value.is_finite()) {
            return Err(KernelError::NonFinite { name: "physics", index });
        }
        for row in self.physics.chunks_exact(dim) {
            for (&value, (&low, &high)) in row.iter().zip(low.iter().zip(high)) {
                check_range("physics", value, low, high)?;
            }
        }
        if self.elapsed.iter().any(|&elapsed| elapsed >= max_episode_steps) {
            return Err(KernelError::Corrupt {
                name: "elapsed",
                reason: "a running episode is shorter than the time limit",
            });
        }
        self.rng.iter().map(|&words| Pcg64::from_words(words)).collect()
    }
}

/// A stream for each of `n_envs` envs, seeded by the operating system.
pub(super) fn seeded_streams(n_envs: usize) -> Result<Vec<Pcg64>> {
    let mut rngs = Vec::new();
    rngs.try_reserve_exact(n_envs)
        .map_err(|_| KernelError::OutOfMemory { name: "n", requested: n_envs })?;
    // One draw of entropy seeds all: a system call per env would dominate construction.
    let mut root = Pcg64::from_os()?;
    rngs.resize_with(n_envs, || {
        let words = [root.next_u64(), root.next_u64()];
        Pcg64::from_entropy(&words.map(halves).concat())
    });
    Ok(rngs)
}

/// A vector env of any env type.
pub trait VectorEnv: Send {
    /// Properties of each env.
    fn spec(&self) -> &Arc<EnvSpec>;

    /// The type of the observations' components.
    fn obs_type(&self) -> ObsType;

    /// Number of envs.
    fn n_envs(&self) -> usize;

    /// Gives env `i` the stream of the seed `seeds[i]`, without resetting it.
    ///
    /// # Errors
    /// [`KernelError::Shape`] unless there is one seed per env.
    fn seed_all(&mut self, seeds: &[u64]) -> Result<()>;

    /// Begins an episode in every env and writes the first observations into `obs`,
    /// `n_envs * obs_dim`.
    ///
    /// # Errors
    /// [`KernelError::Shape`] or [`KernelError::DType`] if `obs` has another length or type.
    fn reset_all(&mut self, obs: ObsMut<'_>) -> Result<()>;

    /// Advances every env by one step and begins a new episode in each env whose episode ended.
    ///
    /// # Errors
    /// [`StateError::BatchNotReset`] before [`VectorEnv::reset_all`], and errors of actions and
    /// buffers; no env moves on an error.
    fn step_all(&mut self, actions: Actions<'_>, out: &mut StepBuffers<'_>) -> Result<()>;

    /// A copy of the complete state of the envs.
    fn state(&self) -> VecEnvState;

    /// Restores `state` exactly.
    ///
    /// # Errors
    /// Errors of the state; the envs are unchanged then.
    fn set_state(&mut self, state: &VecEnvState) -> Result<()>;
}

/// Envs per block of a thread's work.
const BLOCK: usize = 128;

/// `n` envs of the type `E`, stepped one after the other, or in blocks on several threads if the
/// measured cost of a step makes that pay ([`threads`]).
#[derive(Debug, Clone)]
pub struct VecEnv<E> {
    // Data of every step lies together; the streams, which only resets read, lie apart.
    envs: Vec<E>,
    spec: Arc<EnvSpec>,
    elapsed: Vec<u32>,
    rngs: Vec<Pcg64>,
    started: bool,
    cost: Meter,
}

impl<E: Env> VecEnv<E> {
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
        spec.check(E::OBS_DIM)?;
        for _ in 1..n_envs {
            envs.push(make()?);
        }
        elapsed.resize(n_envs, 0);
        let rngs = seeded_streams(n_envs)?;
        Ok(Self { envs, spec: Arc::new(spec), elapsed, rngs, started: false, cost: Meter::new() })
    }
}

impl<E: Env> VecEnv<E> {
    /// Number of components of an observation: a compile-time constant if `E` fixes it.
    fn obs_dim(&self) -> usize {
        E::OBS_DIM.unwrap_or_else(|| self.spec.obs_dim())
    }
}

/// Consecutive envs with the outputs of their step.
struct Block<'a, E: Env> {
    envs: &'a mut [E],
    elapsed: &'a mut [u32],
    rngs: &'a mut [Pcg64],
    obs: &'a mut [E::Obs],
    rewards: &'a mut [f64],
    terminated: &'a mut [bool],
    truncated: &'a mut [bool],
    final_obs: &'a mut [E::Obs],
}

impl<E: Env> Block<'_, E> {
    /// Splits off the first `n` envs.
    fn split_off(&mut self, n: usize, obs_dim: usize) -> Self {
        Self {
            envs: self.envs.split_off_mut(..n).unwrap_or_default(),
            elapsed: self.elapsed.split_off_mut(..n).unwrap_or_default(),
            rngs: self.rngs.split_off_mut(..n).unwrap_or_default(),
            obs: self.obs.split_off_mut(..n * obs_dim).unwrap_or_default(),
            rewards: self.rewards.split_off_mut(..n).unwrap_or_default(),
            terminated: self.terminated.split_off_mut(..n).unwrap_or_default(),
            truncated: self.truncated.split_off_mut(..n).unwrap_or_default(),
            final_obs: self.final_obs.split_off_mut(..n * obs_dim).unwrap_or_default(),
        }
    }

    /// Advances every env with the next of `actions`, and resets each env whose episode ended.
    fn step<'b>(
        &mut self,
        actions: impl Iterator<Item = E::Action<'b>>,
        obs_dim: usize,
        max_episode_steps: u32,
    ) {
        let clocks = self.elapsed.iter_mut().zip(&mut *self.rngs);
        let flags = self.terminated.iter_mut().zip(self.truncated.iter_mut());
        let scalars = self.rewards.iter_mut().zip(flags);
        let (mut obs, mut final_obs) = (&mut *self.obs, &mut *self.final_obs);
        for (((env, action), (elapsed, rng)), (reward, (terminated, truncated))) in
            self.envs.iter_mut().zip(actions).zip(clocks).zip(scalars)
        {
            // In a zip of this depth the compiler no longer knows the length of chunks.
            let (row, final_row);
            (row, obs) = obs.split_at_mut(obs_dim);
            (final_row, final_obs) = final_obs.split_at_mut(obs_dim);
            let outcome = env.step(action, rng);
            *elapsed += 1;
            let is_last = *elapsed >= max_episode_steps;
            (*reward, *terminated, *truncated) = (outcome.reward, outcome.terminated, is_last);
            env.observe(final_row);
            if outcome.terminated || is_last {
                env.reset(rng);
                *elapsed = 0;
                env.observe(row);
            } else {
                row.copy_from_slice(final_row);
            }
        }
    }
}

impl<E: Env> VectorEnv for VecEnv<E> {
    fn spec(&self) -> &Arc<EnvSpec> {
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

    fn reset_all(&mut self, mut obs: ObsMut<'_>) -> Result<()> {
        let (obs, obs_dim) = (obs.of("obs")?, self.obs_dim());
        check_len("obs", obs.len(), "n_envs * obs_dim", self.envs.len() * obs_dim)?;
        let rows = obs.chunks_exact_mut(obs_dim);
        for ((env, rng), row) in self.envs.iter_mut().zip(&mut self.rngs).zip(rows) {
            env.reset(rng);
            env.observe(row);
        }
        self.elapsed.fill(0);
        self.started = true;
        Ok(())
    }

    fn step_all(&mut self, actions: Actions<'_>, out: &mut StepBuffers<'_>) -> Result<()> {
        if !self.started {
            return Err(StateError::BatchNotReset.into());
        }
        let (n_envs, obs_dim) = (self.envs.len(), self.obs_dim());
        let EnvSpec { id, action_space, .. } = &*self.spec;
        let max_episode_steps = self.spec.max_episode_steps;
        let actions = E::Action::checked_rows(actions, n_envs, id, action_space)?;
        let StepBuffers { obs, rewards, terminated, truncated, final_obs } = out;
        let (obs, final_obs) = (obs.of("obs")?, final_obs.of("final_obs")?);
        check_len("obs", obs.len(), "n_envs * obs_dim", n_envs * obs_dim)?;
        check_len("rewards", rewards.len(), "n_envs", n_envs)?;
        check_len("terminated", terminated.len(), "n_envs", n_envs)?;
        check_len("truncated", truncated.len(), "n_envs", n_envs)?;
        check_len("final_obs", final_obs.len(), "n_envs * obs_dim", n_envs * obs_dim)?;

        let (envs, elapsed, rngs) = (&mut self.envs[..], &mut self.elapsed[..], &mut self.rngs[..]);
        let mut block =
            Block { envs, elapsed, rngs, obs, rewards, terminated, truncated, final_obs };
        let helpers = if n_envs > BLOCK { self.cost.helpers(n_envs) } else { 0 };
        if helpers == 0 {
            self.cost.timed(n_envs, || block.step(actions, obs_dim, max_episode_steps));
            return Ok(());
        }
        let mut blocks = Vec::with_capacity(n_envs.div_ceil(BLOCK));
        let mut rest = actions;
        while block.envs.len() > BLOCK {
            blocks.push((block.split_off(BLOCK, obs_dim), rest.clone()));
            rest.nth(BLOCK - 1);
        }
        blocks.push((block, rest));
        threads::for_each(blocks, helpers, |(mut block, actions)| {
            block.step(actions, obs_dim, max_episode_steps);
        });
        Ok(())
    }

    fn state(&self) -> VecEnvState {
        let mut physics = vec![0.0; self.envs.len() * self.spec.state_dim()];
        for (env, row) in self.envs.iter().zip(physics.chunks_exact_mut(self.spec.state_dim())) {
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
        let (spec, state_dim) = (&self.spec, self.spec.state_dim());
        let bounds = [&*spec.state_low, &*spec.state_high];
        let rngs = state.checked(self.envs.len(), bounds, spec.max_episode_steps)?;
        for (env, row) in self.envs.iter_mut().zip(state.physics.chunks_exact(state_dim)) {
            env.load(row);
        }
        self.elapsed.clone_from(&state.elapsed);
        self.rngs = rngs;
        self.started = state.started;
        Ok(())
    }
}
