//! A car in a valley, driven by a continuous force.

use super::mountain_car::{
    GRAVITY, MAX_POSITION, MAX_SPEED, MIN_POSITION, OBS_HIGH, OBS_LOW, START,
};
use super::{ActionSpace, Env, EnvSpec, Outcome};
use crate::gae::Float;
use crate::rng::Pcg64;

/// The car is on the hill from this position on.
const GOAL: f64 = 0.45;
/// Speed that the engine at full force adds in a step.
const POWER: f64 = 0.0015;
const MAX_FORCE: f32 = 1.0;

/// gymnasium's `MountainCarContinuous-v0`: the same bits for the same seed.
///
/// Action: the force, clamped to ±1. Reward: minus a tenth of the squared action before the clamp,
/// and 100 at the goal. Observation: position and velocity. The episode terminates when the car
/// reaches 0.45, and is truncated after 999 steps. The left wall stops the car.
///
/// The arithmetic keeps gymnasium's order of operations and its types, which change on the way:
/// the first step of an episode starts from double precision, every later one from single.
///
/// Source: that of [`MountainCar`](super::MountainCar), with a force as the action.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MountainCarContinuous {
    position: f64,
    velocity: f64,
    /// True before the first step of an episode; afterwards both numbers fit single precision.
    fresh: bool,
}

impl Env for MountainCarContinuous {
    type Action<'a> = [f32; 1];
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(OBS_HIGH.len());

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "MountainCarContinuous-v0".to_owned(),
            obs_low: OBS_LOW.map(f64::from).to_vec(),
            obs_high: OBS_HIGH.map(f64::from).to_vec(),
            action_space: ActionSpace::Continuous { low: vec![-MAX_FORCE], high: vec![MAX_FORCE] },
            max_episode_steps: 999,
            state_low: vec![f64::from(OBS_LOW[0]), f64::from(OBS_LOW[1]), 0.0],
            state_high: vec![f64::from(OBS_HIGH[0]), f64::from(OBS_HIGH[1]), 1.0],
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        let position = rng.uniform(START.0, START.1);
        *self = Self { position, velocity: 0.0, fresh: true };
    }

    #[inline]
    fn step(&mut self, [action]: [f32; 1], _rng: &mut Pcg64) -> Outcome {
        let Self { position, velocity, fresh } = *self;
        let (position, velocity, terminated) = if fresh {
            drive(position, velocity, action)
        } else {
            drive(f32::from_f64(position), f32::from_f64(velocity), action)
        };
        *self = Self { position: position.into(), velocity: velocity.into(), fresh: false };
        let bonus = if terminated { 100.0 } else { 0.0 };
        let action = f64::from(action);
        Outcome { reward: bonus - action * action * 0.1, terminated }
    }

    #[inline]
    fn observe(&self, obs: &mut [f32]) {
        for (slot, component) in obs.iter_mut().zip([self.position, self.velocity]) {
            *slot = f32::from_f64(component);
        }
    }

    fn save(&self, state: &mut [f64]) {
        let components = [self.position, self.velocity, f64::from(u8::from(self.fresh))];
        state.copy_from_slice(&components);
    }

    fn load(&mut self, state: &[f64]) {
        if let [position, velocity, fresh] = *state {
            *self = Self { position, velocity, fresh: fresh != 0.0 };
        }
    }
}

/// A step in the state's precision: the next position and velocity, and whether the goal is met.
#[inline]
fn drive<T>(position: T, velocity: T, action: f32) -> (f32, f32, bool)
where
    T: Float + PartialOrd + Into<f64>,
{
    let number = T::from_f64;
    let slope = GRAVITY * (number(3.0) * position).into().cos();
    // A force within the bounds is a NumPy scalar and keeps the result in single precision. A
    // clamped one is one of the bounds, which are Python floats.
    let push = if action.abs() <= MAX_FORCE {
        f64::from(action * f32::from_f64(POWER) - f32::from_f64(slope))
    } else {
        f64::from(MAX_FORCE.copysign(action)) * POWER - slope
    };
    let mut velocity = clamp(velocity + number(push), number(-MAX_SPEED), number(MAX_SPEED));
    let position = clamp(position + velocity, number(MIN_POSITION), number(MAX_POSITION));
    if position == number(MIN_POSITION) && velocity < number(0.0) {
        velocity = number(0.0);
    }
    let terminated = position >= number(GOAL) && velocity >= number(0.0);
    (f32::from_f64(position.into()), f32::from_f64(velocity.into()), terminated)
}

fn clamp<T: PartialOrd>(value: T, low: T, high: T) -> T {
    if value > high {
        high
    } else if value < low {
        low
    } else {
        value
    }
}
