//! A car in a valley, too weak to climb the hill without swinging.

use super::{ActionSpace, Env, EnvSpec, Outcome};
use crate::rng::Pcg64;

/// Left end of the valley.
pub(super) const MIN_POSITION: f64 = -1.2;
/// Right end of the valley.
pub(super) const MAX_POSITION: f64 = 0.6;
pub(super) const MAX_SPEED: f64 = 0.07;
/// Speed that the slope adds in a step.
pub(super) const GRAVITY: f64 = 0.0025;
/// The position starts uniformly in `[START.0, START.1)`, at rest.
pub(super) const START: (f64, f64) = (-0.6, -0.4);

/// The car is on the hill from this position on.
const GOAL: f64 = 0.5;
/// Speed that the engine adds in a step.
const FORCE: f64 = 0.001;

#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
pub(super) const OBS_LOW: [f32; 2] = [MIN_POSITION as f32, -MAX_SPEED as f32];
#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
pub(super) const OBS_HIGH: [f32; 2] = [MAX_POSITION as f32, MAX_SPEED as f32];

/// gymnasium's `MountainCar-v0`: the same bits for the same seed.
///
/// Actions: 0 accelerates to the left, 1 not at all, 2 to the right. Reward: -1 a step.
/// Observation: position and velocity. The episode terminates when the car reaches 0.5, and is
/// truncated after 200 steps. The left wall stops the car.
///
/// The arithmetic keeps gymnasium's order of operations: bit equality depends on it.
///
/// Source: Moore, "Efficient Memory-based Learning for Robot Control", 1990, with the numbers of
/// Sutton and Barto, "Reinforcement Learning: An Introduction", example 10.1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MountainCar {
    position: f64,
    velocity: f64,
}

impl Env for MountainCar {
    type Action<'a> = i64;
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(OBS_HIGH.len());

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "MountainCar-v0".to_owned(),
            obs_low: OBS_LOW.map(f64::from).to_vec(),
            obs_high: OBS_HIGH.map(f64::from).to_vec(),
            action_space: ActionSpace::Discrete { n: 3 },
            max_episode_steps: 200,
            state_low: vec![MIN_POSITION, -MAX_SPEED],
            state_high: vec![MAX_POSITION, MAX_SPEED],
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        *self = Self { position: rng.uniform(START.0, START.1), velocity: 0.0 };
    }

    #[inline]
    fn step(&mut self, action: i64, _rng: &mut Pcg64) -> Outcome {
        let force = match action {
            0 => -FORCE,
            1 => 0.0,
            _ => FORCE,
        };
        let push = force + (3.0 * self.position).cos() * -GRAVITY;
        self.velocity = (self.velocity + push).clamp(-MAX_SPEED, MAX_SPEED);
        self.position = (self.position + self.velocity).clamp(MIN_POSITION, MAX_POSITION);
        if self.position == MIN_POSITION && self.velocity < 0.0 {
            self.velocity = 0.0;
        }
        let terminated = self.position >= GOAL && self.velocity >= 0.0;
        Outcome { reward: -1.0, terminated }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
    fn observe(&self, obs: &mut [f32]) {
        for (slot, component) in obs.iter_mut().zip([self.position, self.velocity]) {
            *slot = component as f32;
        }
    }

    fn save(&self, state: &mut [f64]) {
        state.copy_from_slice(&[self.position, self.velocity]);
    }

    fn load(&mut self, state: &[f64]) {
        if let [position, velocity] = *state {
            *self = Self { position, velocity };
        }
    }
}
