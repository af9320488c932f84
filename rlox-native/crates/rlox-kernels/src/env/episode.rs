//! One env with its random stream and its time limit.

use super::{Action, ActionSpace, Env, EnvSpec, Outcome};
use crate::error::{Result, StateError};
use crate::rng::Pcg64;

/// Phase of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotReset,
    Running,
    Over,
}

/// One env, stepped by hand: after an episode's end it must be reset.
#[derive(Debug, Clone)]
pub struct Episode<E> {
    env: E,
    action_space: ActionSpace,
    max_episode_steps: u32,
    rng: Pcg64,
    elapsed: u32,
    phase: Phase,
}

impl<E: Env> Episode<E> {
    /// Wraps an `env` that draws from `rng`; call [`Episode::reset`] before the first step.
    #[must_use]
    pub fn new(env: E, rng: Pcg64) -> Self {
        let EnvSpec { action_space, max_episode_steps, .. } = env.spec();
        let (elapsed, phase) = (0, Phase::NotReset);
        Self { env, action_space, max_episode_steps, rng, elapsed, phase }
    }

    /// Begins an episode, with the stream `rng` if given, otherwise with the present one. Writes
    /// the first observation into `obs`.
    pub fn reset(&mut self, rng: Option<Pcg64>, obs: &mut [E::Obs]) {
        if let Some(rng) = rng {
            self.rng = rng;
        }
        self.env.reset(&mut self.rng);
        self.elapsed = 0;
        self.phase = Phase::Running;
        self.env.observe(obs);
    }

    /// Advances by one step, writes the observation into `obs`, and returns the outcome and whether
    /// the time limit was reached.
    ///
    /// # Errors
    /// [`StateError::NotReset`], [`StateError::EpisodeOver`], or an error of [`Action::check`].
    pub fn step(&mut self, action: E::Action<'_>, obs: &mut [E::Obs]) -> Result<(Outcome, bool)> {
        match self.phase {
            Phase::NotReset => return Err(StateError::NotReset.into()),
            Phase::Over => return Err(StateError::EpisodeOver.into()),
            Phase::Running => action.check(&self.action_space, None)?,
        }
        let outcome = self.env.step(action, &mut self.rng);
        self.elapsed += 1;
        let truncated = self.elapsed >= self.max_episode_steps;
        if outcome.terminated || truncated {
            self.phase = Phase::Over;
        }
        self.env.observe(obs);
        Ok((outcome, truncated))
    }
}
