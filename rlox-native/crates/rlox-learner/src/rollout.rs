//! Rollouts: environments stepped with the policy's actions.

use pulp::{Arch, Simd, WithSimd};

use super::Real;
use super::acting::{ActionBuffer, seen};
use super::actor_critic::Head;
use super::block::Block;
use super::linalg::BLOCK_ROWS;
use super::passes::forward;
use super::runs::Hidden;
use super::update::Learner;
use rlox_kernels::env::{ActionSpace, Actions, ObsType, StepBuffers, VectorEnv};
use rlox_kernels::error::{KernelError, Result, check_len};
use rlox_kernels::rng::Pcg64;

/// Output of a rollout of T steps of N envs, one row of envs after the other.
#[derive(Debug)]
pub struct Rollout<'a> {
    /// Observations acted on, T × N × `obs_dim`.
    pub obs: &'a mut [f32],
    /// Actions as sampled.
    pub actions: ActionBuffer<'a>,
    /// Log-probabilities of the actions, T × N.
    pub log_probs: &'a mut [f32],
    /// Rewards, T × N.
    pub rewards: &'a mut [f32],
    /// Whether a step reached a terminal state, T × N.
    pub terminated: &'a mut [bool],
    /// Whether an episode was cut after a step, T × N.
    pub truncated: &'a mut [bool],
    /// V of the final observation of truncated episodes, 0 elsewhere, T × N.
    pub final_values: &'a mut [f32],
}

impl Learner<f32> {
    /// Steps every env of `envs` with actions drawn from the policy until `rollout` is full.
    ///
    /// Actions are drawn as in [`Learner::act`].
    ///
    /// # Errors
    /// [`KernelError`] if a length or a kind of action does not fit; nothing changes then.
    pub fn collect(
        &mut self,
        parameters: &[f32],
        envs: &mut dyn VectorEnv,
        rng: Option<&mut Pcg64>,
        obs: &mut [f32],
        rollout: &mut Rollout<'_>,
    ) -> Result<()> {
        let steps = self.check_rollout(parameters, envs, obs, rollout)?;
        self.packed.load(&self.shape, parameters);
        Arch::new().dispatch(Collect { learner: self, envs, rng, obs, rollout, steps })
    }

    /// Writes V of each row of `obs` into `values`.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if a length does not fit.
    pub fn values(&mut self, parameters: &[f32], obs: &[f32], values: &mut [f32]) -> Result<()> {
        check_len("parameters", parameters.len(), "the networks", self.shape.n_parameters())?;
        check_len("obs", obs.len(), "values * obs_dim", values.len() * self.shape.seen_dim())?;
        self.packed.load(&self.shape, parameters);
        Arch::new().dispatch(Values { learner: self, obs, out: values });
        Ok(())
    }

    fn check_rollout(
        &self,
        parameters: &[f32],
        envs: &dyn VectorEnv,
        obs: &[f32],
        rollout: &Rollout<'_>,
    ) -> Result<usize> {
        let (n, obs_dim) = (envs.n_envs(), self.shape.obs_dim);
        check_len("parameters", parameters.len(), "the networks", self.shape.n_parameters())?;
        let remembered = n * self.shape.state_size();
        check_len(
            "state",
            0,
            "n_envs * state_size, which a rollout here does not keep",
            remembered,
        )?;
        check_len("obs_dim", obs_dim, "the envs' observations", envs.spec().obs_dim())?;
        if envs.obs_type() != ObsType::F32 {
            let (expected, got) = (ObsType::F32.name(), envs.obs_type().name());
            return Err(KernelError::DType { name: "obs", expected, got });
        }
        check_len("obs", obs.len(), "n_envs * obs_dim", n * obs_dim)?;
        let rows = rollout.rewards.len();
        let steps = rows / n;
        check_len("rewards", rows, "whole rows of envs", steps * n)?;
        check_len("obs", rollout.obs.len(), "rewards * obs_dim", rows * obs_dim)?;
        check_len("log_probs", rollout.log_probs.len(), "rewards", rows)?;
        check_len("terminated", rollout.terminated.len(), "rewards", rows)?;
        check_len("truncated", rollout.truncated.len(), "rewards", rows)?;
        check_len("final_values", rollout.final_values.len(), "rewards", rows)?;
        let width = self.shape.head.width();
        let (actions, fits) = match (&rollout.actions, self.shape.head, &envs.spec().action_space) {
            (
                ActionBuffer::Discrete(actions),
                Head::Categorical(_),
                ActionSpace::Discrete { n },
            ) => (actions.len(), self.shape.choices.len() == 1 && usize::try_from(*n) == Ok(width)),
            (
                ActionBuffer::Continuous(actions),
                Head::Gaussian(_),
                ActionSpace::Continuous { low, .. },
            ) => (actions.len() / width, low.len() == width),
            _ => (rows, false),
        };
        if !fits {
            return Err(KernelError::ActionKind {
                env_id: envs.spec().id.clone(),
                expected: "other",
                got: "the policy's",
            });
        }
        check_len("actions", actions, "rewards", rows)?;
        Ok(steps)
    }
}

/// The arguments of [`Learner::values`].
struct Values<'a> {
    learner: &'a mut Learner<f32>,
    obs: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for Values<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Learner { shape, packed, block: Block { critic, memory, .. }, .. } = self.learner;
        let obs = seen(memory, 1, self.obs);
        let rows = obs.chunks(BLOCK_ROWS * shape.critic.input_stride);
        for (obs, values) in rows.zip(self.out.chunks_mut(BLOCK_ROWS)) {
            forward(
                simd,
                &shape.critic,
                &packed.critic,
                obs,
                values.len(),
                critic,
                Hidden::Overwritten,
            );
            let outputs = critic.output().chunks_exact(shape.critic.output_stride());
            for (value, output) in values.iter_mut().zip(outputs) {
                *value = output[0];
            }
        }
    }
}

/// The arguments of [`Learner::collect`].
struct Collect<'a, 'b, 'c> {
    learner: &'a mut Learner<f32>,
    envs: &'a mut dyn VectorEnv,
    rng: Option<&'c mut Pcg64>,
    obs: &'a mut [f32],
    rollout: &'a mut Rollout<'b>,
    steps: usize,
}

impl WithSimd for Collect<'_, '_, '_> {
    type Output = Result<()>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Result<()> {
        let Self { learner, envs, mut rng, obs, rollout, steps } = self;
        let (n, obs_dim, width) =
            (envs.n_envs(), learner.shape.obs_dim, learner.shape.head.width());
        let (mut rewards, mut final_obs) = (vec![0.0; n], vec![0.0; n * obs_dim]);
        let mut clipped = Vec::new();
        let mut final_values = vec![0.0; n];
        for t in 0..steps {
            let at = t * n..(t + 1) * n;
            rollout.obs[t * n * obs_dim..][..n * obs_dim].copy_from_slice(obs);
            let log_probs = &mut rollout.log_probs[at.clone()];
            let actions = match &mut rollout.actions {
                ActionBuffer::Discrete(actions) => {
                    let actions = &mut actions[at.clone()];
                    learner.choose(simd, rng.as_deref_mut(), obs, None, actions, log_probs);
                    Actions::Discrete(actions)
                }
                ActionBuffer::Continuous(actions) => {
                    let actions = &mut actions[at.start * width..at.end * width];
                    learner.perturb(simd, rng.as_deref_mut(), obs, actions, log_probs);
                    clip(actions, &envs.spec().action_space, &mut clipped);
                    Actions::Continuous(&clipped)
                }
            };
            let terminated = &mut rollout.terminated[at.clone()];
            let truncated = &mut rollout.truncated[at.clone()];
            envs.step_all(
                actions,
                &mut StepBuffers {
                    obs: (&mut *obs).into(),
                    rewards: &mut rewards,
                    terminated: &mut *terminated,
                    truncated: &mut *truncated,
                    final_obs: (&mut final_obs).into(),
                },
            )?;
            for (kept, &reward) in rollout.rewards[at.clone()].iter_mut().zip(&rewards) {
                *kept = f32::of(reward);
            }
            let kept = &mut rollout.final_values[at];
            kept.fill(0.0);
            if truncated.iter().any(|&cut| cut) {
                let values = &mut final_values;
                Values { learner: &mut *learner, obs: &final_obs, out: values }.with_simd(simd);
                for ((kept, &value), &cut) in kept.iter_mut().zip(values.iter()).zip(&*truncated) {
                    *kept = if cut { value } else { 0.0 };
                }
            }
        }
        Ok(())
    }
}

/// Writes `actions`, clipped to the bounds of `space`, into `clipped`.
fn clip(actions: &[f32], space: &ActionSpace, clipped: &mut Vec<f32>) {
    clipped.clear();
    clipped.extend_from_slice(actions);
    if let ActionSpace::Continuous { low, high } = space {
        for row in clipped.chunks_exact_mut(low.len()) {
            for ((component, &low), &high) in row.iter_mut().zip(low).zip(high) {
                *component = component.clamp(low, high);
            }
        }
    }
}
