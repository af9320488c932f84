//! Environments: the trait of a single env, and the registry of this crate's envs.
//!
//! An [`Env`] is the dynamics of one episode and nothing else. Time limits, random streams, resets
//! and batches are added by [`Episode`] and [`VecEnv`], once for all envs. Another crate passes a
//! constructor of its env to [`VecEnv::new`], and hands the vector env to non-generic code as a
//! `Box<dyn VectorEnv>`. Sizes and options may be set at run time, observations have single or
//! double precision, and construction may fail.
//!
//! [`TeamEnv`] and [`TeamVecEnv`] are their counterparts for several agents.

mod acrobot;
mod action;
mod cartpole;
mod episode;
mod mountain_car;
mod mountain_car_continuous;
mod numpy;
mod observation;
mod options;
mod pendulum;
mod simple_spread;
mod team;
mod team_vec;
mod vec;

pub use acrobot::Acrobot;
pub use action::{Action, ActionSpace, Actions};
pub use cartpole::CartPole;
pub use episode::Episode;
pub use mountain_car::MountainCar;
pub use mountain_car_continuous::MountainCarContinuous;
pub use observation::{ObsMut, ObsType, Observed};
pub use options::{OptionValue, Options};
pub use pendulum::Pendulum;
pub use simple_spread::SimpleSpread;
pub use team::{TeamEnv, TeamSpec};
pub use team_vec::{TeamStepBuffers, TeamVecEnv, TeamVectorEnv, TeamView};
pub use vec::{MAX_ENVS, StepBuffers, VecEnv, VecEnvState, VectorEnv};

use crate::error::{KernelError, Result};
use crate::rng::Pcg64;

/// Fixed properties of an env.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvSpec {
    /// The registered name, `"CartPole-v1"`.
    pub id: String,
    /// Lower bounds of the observation, one per component.
    pub obs_low: Vec<f64>,
    /// Upper bounds of the observation, one per component.
    pub obs_high: Vec<f64>,
    /// The action space.
    pub action_space: ActionSpace,
    /// Steps after which an episode is truncated.
    pub max_episode_steps: u32,
    /// Lower bounds of the physical state within an episode, one per component.
    pub state_low: Vec<f64>,
    /// Upper bounds of the physical state within an episode, one per component.
    pub state_high: Vec<f64>,
}

impl EnvSpec {
    /// Number of components of an observation.
    #[must_use]
    pub fn obs_dim(&self) -> usize {
        self.obs_low.len()
    }

    /// Number of components of the physical state.
    #[must_use]
    pub fn state_dim(&self) -> usize {
        self.state_low.len()
    }

    /// Checks that observations and states exist, that their bounds fit together, and that an
    /// observation has the size fixed by the env's type, if any.
    fn check(&self, obs_dim: Option<usize>) -> Result<()> {
        let bounds = |low: &[f64], high: &[f64]| !low.is_empty() && low.len() == high.len();
        let reason = if !bounds(&self.obs_low, &self.obs_high) {
            "obs_low and obs_high must have one element per component, at least one"
        } else if obs_dim.is_some_and(|fixed| fixed != self.obs_dim()) {
            "obs_low must have OBS_DIM elements"
        } else if !bounds(&self.state_low, &self.state_high) {
            "state_low and state_high must have one element per component, at least one"
        } else if !self.action_space.is_possible() {
            "the action space must have an action and an upper bound for each lower one"
        } else {
            return Ok(());
        };
        Err(KernelError::Env { env_id: self.id.clone(), reason: reason.to_owned() })
    }
}

/// Results of a step other than the observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The reward of the step.
    pub reward: f64,
    /// Whether the step reached a terminal state.
    pub terminated: bool,
}

/// The dynamics of one episode.
///
/// An implementation keeps its physical state and draws every random number from the given stream,
/// so that a seed fixes an episode. Its own constructor takes its parameters and may fail with
/// [`KernelError::Env`].
pub trait Env: Send + 'static {
    /// One action: `i64` for discrete actions, `[f32; D]` for continuous ones, or `&'a [f32]` if
    /// their number is only known at run time.
    type Action<'a>: Action<'a>;

    /// One component of an observation: `f32` or `f64`.
    type Obs: Observed;

    /// Number of components of an observation, if known at compile time. Observations are then
    /// copied without a call, which saves a cheap env up to a tenth of a step.
    const OBS_DIM: Option<usize> = None;

    /// The env's properties, equal for all envs of a vector env.
    fn spec(&self) -> EnvSpec;

    /// Begins an episode.
    fn reset(&mut self, rng: &mut Pcg64);

    /// Advances by one step. The caller has checked `action` against the action space.
    fn step(&mut self, action: Self::Action<'_>, rng: &mut Pcg64) -> Outcome;

    /// Writes the observation into `obs`, which has `obs_dim` elements.
    fn observe(&self, obs: &mut [Self::Obs]);

    /// Writes the physical state into `state`, which has `state_dim` elements.
    fn save(&self, state: &mut [f64]);

    /// Restores a physical state of `state_dim` finite elements within the bounds.
    fn load(&mut self, state: &[f64]);
}

/// Builds a given number of envs.
type Build = fn(usize) -> Result<Box<dyn VectorEnv>>;

/// The ids of this crate's envs, in gymnasium's order.
static NATIVE_ENV_IDS: [&str; 5] =
    ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1"];

/// Constructors of the envs of [`NATIVE_ENV_IDS`], in that order.
const BUILDS: [Build; NATIVE_ENV_IDS.len()] = [
    native::<CartPole>,
    native::<MountainCar>,
    native::<MountainCarContinuous>,
    native::<Pendulum>,
    native::<Acrobot>,
];

fn native<E: Env + Default>(n_envs: usize) -> Result<Box<dyn VectorEnv>> {
    Ok(Box::new(VecEnv::new(n_envs, || Ok(E::default()))?))
}

/// The ids of this crate's envs of several agents.
static NATIVE_TEAM_ENV_IDS: [&str; 1] = [SimpleSpread::ID];

/// Least Jaro-Winkler similarity of a name that is offered as a correction.
const SIMILAR: f64 = 0.75;

/// The ids that [`make_vec`] builds.
#[must_use]
pub fn native_env_ids() -> &'static [&'static str] {
    &NATIVE_ENV_IDS
}

/// Builds `n_envs` envs of the id `env_id`, with random streams seeded by the operating system.
///
/// # Errors
/// [`KernelError::UnknownEnv`] for an id that is not in [`native_env_ids`],
/// [`KernelError::Range`] for `n_envs` outside `[1, MAX_ENVS]`, [`KernelError::OutOfMemory`].
pub fn make_vec(env_id: &str, n_envs: usize) -> Result<Box<dyn VectorEnv>> {
    if let Some(at) = NATIVE_ENV_IDS.iter().position(|id| *id == env_id) {
        return BUILDS[at](n_envs);
    }
    let nearest = nearest(env_id, &NATIVE_ENV_IDS);
    Err(KernelError::UnknownEnv { id: env_id.to_owned(), nearest, known: &NATIVE_ENV_IDS })
}

/// The ids that [`make_team_vec`] builds.
#[must_use]
pub fn native_team_env_ids() -> &'static [&'static str] {
    &NATIVE_TEAM_ENV_IDS
}

/// Builds `n_envs` multi-agent envs of the id `env_id`, with the options `given` by name.
///
/// # Errors
/// Those of [`make_vec`], and [`KernelError::Env`] for an option that is unknown or out of range.
pub fn make_team_vec(
    env_id: &str,
    n_envs: usize,
    given: &[(String, OptionValue)],
) -> Result<Box<dyn TeamVectorEnv>> {
    if env_id == SimpleSpread::ID {
        return Ok(Box::new(TeamVecEnv::new(n_envs, || SimpleSpread::new(given))?));
    }
    let nearest = nearest(env_id, &NATIVE_TEAM_ENV_IDS);
    Err(KernelError::UnknownEnv { id: env_id.to_owned(), nearest, known: &NATIVE_TEAM_ENV_IDS })
}

/// The known name most similar to `name`, if any is similar enough.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let similarity =
        |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    known
        .iter()
        .copied()
        .filter(|known| similarity(known) >= SIMILAR)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_env_is_answered_with_the_nearest() {
        let error = make_vec("cartpole-v1", 1).err().unwrap();
        let text = "unknown env id 'cartpole-v1', did you mean 'CartPole-v1'?; the native envs are \
                    CartPole-v1, MountainCar-v0, MountainCarContinuous-v0, Pendulum-v1, Acrobot-v1; \
                    rlox.envs.make_vec_env makes others";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_wholly_different_name_gets_no_suggestion() {
        let error = make_vec("Humanoid", 1).err().unwrap();
        assert!(matches!(error, KernelError::UnknownEnv { nearest: None, .. }));
    }
}
