//! The env. Replace it with yours: `VecEnv` adds time limit, seeding, autoreset, batches, action
//! checks and exact resume.

use rlox_kernels::env::{ActionSpace, Env, EnvSpec, Outcome};
use rlox_kernels::rng::Pcg64;

/// The id by which the env is found.
pub const ID: &str = "NativeCorridor-v0";
const LENGTH: f64 = 10.0;

/// A corridor of 10 m that is left at its right end.
///
/// Actions: 0 goes 1 m to the left, 1 to the right. Reward: -1 a step. Observation: the place in m.
/// Episodes begin within the first metre, and are truncated after 50 steps.
#[derive(Debug, Default)]
pub struct Corridor {
    place: f64,
}

impl Env for Corridor {
    // For continuous actions `[f32; 1]`, and `Continuous { low: vec![-1.0], high: vec![1.0] }`.
    type Action<'a> = i64;
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(1);

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: ID.to_owned(),
            obs_low: vec![0.0],
            obs_high: vec![11.0],
            action_space: ActionSpace::Discrete { n: 2 },
            max_episode_steps: 50,
            // What `save` writes, for an episode that goes on; a state from beyond is refused.
            state_low: vec![0.0],
            state_high: vec![LENGTH],
        }
    }

    // Every random number comes from `rng`: then the seed fixes the episode.
    fn reset(&mut self, rng: &mut Pcg64) {
        self.place = rng.uniform(0.0, 1.0);
    }

    // The action has been checked. Continuous ones are finite but may lie beyond the bounds.
    fn step(&mut self, action: i64, _rng: &mut Pcg64) -> Outcome {
        self.place = (self.place + if action == 1 { 1.0 } else { -1.0 }).max(0.0);
        Outcome { reward: -1.0, terminated: self.place > LENGTH }
    }

    #[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
    fn observe(&self, obs: &mut [f32]) {
        obs.fill(self.place as f32);
    }

    fn save(&self, state: &mut [f64]) {
        state.fill(self.place);
    }

    fn load(&mut self, state: &[f64]) {
        self.place = state.first().copied().unwrap_or_default();
    }
}
