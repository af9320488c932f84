//! The trait of a multi-agent environment.

use super::{ActionSpace, Actions, Observed};
use crate::error::{KernelError, Result};
use crate::rng::Pcg64;

/// Fixed properties of a multi-agent env.
#[derive(Debug, Clone, PartialEq)]
pub struct TeamSpec {
    /// The registered name, `"mpe2/simple_spread_v3"`.
    pub id: String,
    /// The name of the agents' group, `"agent"`.
    pub group: String,
    /// The agents' names, in the order of their rows.
    pub agents: Vec<String>,
    /// Lower bounds of one agent's observation, one per component.
    pub obs_low: Vec<f64>,
    /// Upper bounds of one agent's observation, one per component.
    pub obs_high: Vec<f64>,
    /// The actions of one agent.
    pub action_space: ActionSpace,
    /// Lower bounds of a centralised critic's state, one per component; empty without such a state.
    pub state_low: Vec<f64>,
    /// Upper bounds of a centralised critic's state, one per component.
    pub state_high: Vec<f64>,
    /// Lower bounds of the physical state within an episode, one per component.
    pub physics_low: Vec<f64>,
    /// Upper bounds of the physical state within an episode, one per component.
    pub physics_high: Vec<f64>,
    /// Steps after which an episode is truncated.
    pub max_episode_steps: u32,
}

impl TeamSpec {
    /// Number of agents.
    #[must_use]
    pub fn n_agents(&self) -> usize {
        self.agents.len()
    }

    /// Number of components of one agent's observation.
    #[must_use]
    pub fn obs_dim(&self) -> usize {
        self.obs_low.len()
    }

    /// Number of components of the critic's state; 0 without one.
    #[must_use]
    pub fn state_dim(&self) -> usize {
        self.state_low.len()
    }

    /// Number of components of the physical state.
    #[must_use]
    pub fn physics_dim(&self) -> usize {
        self.physics_low.len()
    }

    /// Checks that agents, actions, observations and physics exist, with bounds that fit together.
    pub(super) fn check(&self) -> Result<()> {
        let reason = if self.agents.is_empty() {
            "it must have an agent"
        } else if self.obs_low.is_empty() || self.obs_low.len() != self.obs_high.len() {
            "obs_low and obs_high must have one element per component, at least one"
        } else if self.state_low.len() != self.state_high.len() {
            "state_low and state_high must have one element per component"
        } else if self.physics_low.is_empty() || self.physics_low.len() != self.physics_high.len() {
            "physics_low and physics_high must have one element per component, at least one"
        } else if !self.action_space.is_possible() {
            "the action space must have an action and an upper bound for each lower one"
        } else if self.max_episode_steps == 0 {
            "max_episode_steps must be at least 1"
        } else {
            return Ok(());
        };
        Err(KernelError::Env { env_id: self.id.clone(), reason: reason.to_owned() })
    }
}

/// The dynamics of one episode with several agents.
///
/// The agents have equal spaces, all act in every step, and the episode ends for all of them at
/// once. As in [`Env`](super::Env), an implementation draws every random number from the given
/// stream, so that a seed fixes an episode; [`TeamVecEnv`](super::TeamVecEnv) adds time limits,
/// streams, resets and batches. Sizes and options are set at run time: its own constructor reads
/// them from [`Options`](super::Options) and may fail.
pub trait TeamEnv: Send + 'static {
    /// One component of an observation and of the state: `f32` or `f64`.
    type Obs: Observed;

    /// The env's properties, equal for all envs of a vector env.
    fn spec(&self) -> TeamSpec;

    /// Begins an episode.
    fn reset(&mut self, rng: &mut Pcg64);

    /// Advances by one step, writes each agent's reward into `rewards`, and returns whether the
    /// step reached a terminal state.
    ///
    /// The caller has checked `actions`, one row per agent, against the action space.
    fn step(&mut self, actions: Actions<'_>, rewards: &mut [f64], rng: &mut Pcg64) -> bool;

    /// Writes the observations into `obs`, `obs_dim` elements per agent, one agent after the other.
    fn observe(&self, obs: &mut [Self::Obs]);

    /// Writes a centralised critic's state into `state`, which has `state_dim` elements.
    fn observe_state(&self, state: &mut [Self::Obs]);

    /// Writes the physical state into `physics`, which has `physics_dim` elements.
    fn save(&self, physics: &mut [f64]);

    /// Restores a physical state of `physics_dim` finite elements within the bounds.
    fn load(&mut self, physics: &[f64]);
}
