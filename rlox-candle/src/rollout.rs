//! One rollout, collected on the calling thread.

use std::sync::atomic::{AtomicBool, Ordering};

use rlox_kernels::env::{ActionSpace, EnvSpec, StepBuffers, VecEnvState, VectorEnv};
use rlox_kernels::gae::{Discount, Estimates, TimeMajor, gae_time_major};
use rlox_kernels::rng::Pcg64;

use crate::policy::{ActionRows, ActorCritic, Heads, gaussian};
use crate::sampling::{categorical, normal};
use crate::{Error, Result};

/// `n_steps` rows of `n_envs`: element `(t, env)` of every array is at `t * n_envs + env`.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// The observations acted on, `obs_dim` each.
    pub observations: Vec<f32>,
    /// The actions taken.
    pub actions: ActionRows,
    /// The rewards.
    pub rewards: Vec<f32>,
    /// Whether the step reached a terminal state.
    pub terminated: Vec<bool>,
    /// Whether the step reached the time limit.
    pub truncated: Vec<bool>,
    /// Log-probabilities of the actions.
    pub log_probs: Vec<f32>,
    /// The values of the observations.
    pub values: Vec<f32>,
    /// Generalised advantage estimates.
    pub advantages: Vec<f32>,
    /// Advantages plus values.
    pub returns: Vec<f32>,
    /// Version of the acting weights.
    pub weights_version: u64,
}

/// Envs with the start of the next rollout.
pub struct Collector {
    envs: Box<dyn VectorEnv>,
    rng: Pcg64,
    n_steps: usize,
    discount: Discount,
    /// The observations to act on next; `None` before the first rollout.
    obs: Option<Vec<f32>>,
}

/// The complete state of a collector.
#[derive(Debug, Clone)]
pub struct CollectorState {
    /// The envs.
    pub envs: VecEnvState,
    /// The words of the stream of actions.
    pub rng: [u64; 4],
    /// The observations to act on next; `None` before the first rollout.
    pub obs: Option<Vec<f32>>,
}

impl Collector {
    /// A collector of rollouts of `n_steps` with actions drawn from `rng`.
    #[must_use]
    pub fn new(envs: Box<dyn VectorEnv>, rng: Pcg64, n_steps: usize, discount: Discount) -> Self {
        Self { envs, rng, n_steps, discount, obs: None }
    }

    /// A copy of the complete state.
    #[must_use]
    pub fn state(&self) -> CollectorState {
        let (envs, rng) = (self.envs.state(), self.rng.to_words());
        CollectorState { envs, rng, obs: self.obs.clone() }
    }

    /// Restores `state` exactly.
    ///
    /// # Errors
    /// Errors of the state.
    pub fn set_state(&mut self, state: CollectorState) -> Result<()> {
        let rng = Pcg64::from_words(state.rng)?;
        self.envs.set_state(&state.envs)?;
        (self.rng, self.obs) = (rng, state.obs);
        Ok(())
    }

    /// Steps every env `n_steps` times with `policy`. Episodes continue from one call to the next.
    ///
    /// # Errors
    /// [`Error::Stopped`] as soon as `stop` is set, or errors of the envs or the policy.
    pub fn collect(
        &mut self,
        policy: &ActorCritic,
        weights_version: u64,
        stop: &AtomicBool,
    ) -> Result<Rollout> {
        let (spec, n_envs) = (self.envs.spec().clone(), self.envs.n_envs());
        let (obs_dim, rows) = (spec.obs_dim(), self.n_steps * n_envs);
        let mut obs = self.obs.take().unwrap_or_default();
        if obs.is_empty() {
            obs.resize(n_envs * obs_dim, 0.0);
            self.envs.reset_all((&mut obs).into())?;
        }
        let mut rollout = Rollout::with_capacity(&spec, rows, weights_version);
        let mut final_values = vec![0.0; rows];
        let mut final_obs = vec![0.0; n_envs * obs_dim];
        let mut rewards = vec![0.0; n_envs];
        for start in (0..rows).step_by(n_envs) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let heads = policy.heads(&obs)?;
            rollout.observations.extend_from_slice(&obs);
            let actions = self.act(&spec, policy, &heads, &mut rollout);
            rollout.values.extend(heads.values);
            let step = start..start + n_envs;
            let (terminated, truncated) =
                (&mut rollout.terminated[step.clone()], &mut rollout.truncated[step.clone()]);
            let mut out = StepBuffers {
                obs: (&mut obs).into(),
                rewards: &mut rewards,
                terminated,
                truncated,
                final_obs: (&mut final_obs).into(),
            };
            self.envs.step_all(actions.borrowed(), &mut out)?;
            #[expect(clippy::cast_possible_truncation, reason = "rewards are stored in f32")]
            rollout.rewards.extend(rewards.iter().map(|&reward| reward as f32));
            if rollout.truncated[step.clone()].contains(&true) {
                final_values[step].copy_from_slice(&policy.values(&final_obs)?);
            }
        }
        let last_values = policy.values(&obs)?;
        self.obs = Some(obs);
        rollout.estimate(self.discount, &final_values, &last_values)?;
        Ok(rollout)
    }

    /// Draws an action for each env, stores it, and returns the actions as the envs take them.
    fn act(
        &mut self,
        spec: &EnvSpec,
        policy: &ActorCritic,
        heads: &Heads,
        rollout: &mut Rollout,
    ) -> ActionRows {
        let n_envs = self.envs.n_envs();
        match (&mut rollout.actions, &spec.action_space) {
            (ActionRows::Continuous(taken), ActionSpace::Continuous { low, high }) => {
                let begin = taken.len();
                for means in heads.actions.chunks_exact(low.len()) {
                    let mut log_prob = 0.0;
                    for (mean, log_std) in means.iter().zip(policy.log_std()) {
                        let noise = normal(&mut self.rng);
                        taken.push(mean + log_std.exp() * noise);
                        log_prob += gaussian(noise, *log_std);
                    }
                    rollout.log_probs.push(log_prob);
                }
                let bounds = low.iter().zip(high).cycle();
                let clipped = taken[begin..].iter().zip(bounds);
                ActionRows::Continuous(
                    clipped.map(|(a, (&low, &high))| a.clamp(low, high)).collect(),
                )
            }
            (ActionRows::Discrete(taken), _) => {
                let n_actions = heads.actions.len() / n_envs;
                let begin = taken.len();
                for log_probs in heads.actions.chunks_exact(n_actions) {
                    let (action, log_prob) = categorical(log_probs, &mut self.rng);
                    taken.push(action);
                    rollout.log_probs.push(log_prob);
                }
                ActionRows::Discrete(taken[begin..].to_vec())
            }
            (ActionRows::Continuous(_), ActionSpace::Discrete { .. }) => {
                unreachable!("a rollout has the actions of its env")
            }
        }
    }
}

impl Rollout {
    fn with_capacity(spec: &EnvSpec, rows: usize, weights_version: u64) -> Self {
        let actions = match &spec.action_space {
            ActionSpace::Discrete { .. } => ActionRows::Discrete(Vec::with_capacity(rows)),
            ActionSpace::Continuous { low, .. } => {
                ActionRows::Continuous(Vec::with_capacity(rows * low.len()))
            }
        };
        Self {
            observations: Vec::with_capacity(rows * spec.obs_dim()),
            actions,
            rewards: Vec::with_capacity(rows),
            terminated: vec![false; rows],
            truncated: vec![false; rows],
            log_probs: Vec::with_capacity(rows),
            values: Vec::with_capacity(rows),
            advantages: vec![0.0; rows],
            returns: vec![0.0; rows],
            weights_version,
        }
    }

    fn estimate(
        &mut self,
        discount: Discount,
        final_values: &[f32],
        last_values: &[f32],
    ) -> Result<()> {
        let input = TimeMajor {
            rewards: &self.rewards,
            values: &self.values,
            terminated: &self.terminated,
            truncated: &self.truncated,
            final_values,
            last_values,
        };
        let mut output = Estimates { advantages: &mut self.advantages, returns: &mut self.returns };
        Ok(gae_time_major(&input, discount, &mut output)?)
    }
}
