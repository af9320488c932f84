//! A pendulum, swung up and held upright by a torque.

use super::numpy::{square, square_f32};
use super::{ActionSpace, Env, EnvSpec, Outcome};
use crate::rng::Pcg64;

use std::f64::consts::{PI, TAU};

/// rad/s.
const MAX_SPEED: f64 = 8.0;
/// N m.
const MAX_TORQUE: f32 = 2.0;
/// Seconds between two states.
const STEP: f64 = 0.05;
/// 3 g / (2 l) for a rod of length l = 1 m and g = 10 m/s².
const GRAVITY: f64 = 3.0 * 10.0 / (2.0 * 1.0);
/// 3 / (m l²) for a rod of mass m = 1 kg and length l = 1 m.
const INVERSE_INERTIA: f32 = 3.0;
/// The angle starts uniformly in `[-START[0], START[0])`, the speed in `[-START[1], START[1])`.
const START: [f64; 2] = [PI, 1.0];

#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
const OBS_HIGH: [f32; 3] = [1.0, 1.0, MAX_SPEED as f32];

/// gymnasium's `Pendulum-v1`: the same bits for the same seed.
///
/// Action: the torque in N m, clipped to ±2. Reward: minus the squared angle from upright, a tenth
/// of the squared speed and a thousandth of the squared torque. Observation: cosine and sine of the
/// angle, angular velocity (rad/s). Nothing terminates; the episode is truncated after 200 steps.
///
/// The arithmetic keeps gymnasium's order of operations and its types: single precision for the
/// torque and for NumPy 2's results from it and Python floats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pendulum {
    /// Angle from upright, full turns included.
    theta: f64,
    theta_dot: f64,
}

impl Env for Pendulum {
    type Action<'a> = [f32; 1];
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(OBS_HIGH.len());

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "Pendulum-v1".to_owned(),
            obs_low: OBS_HIGH.map(|high| -f64::from(high)).to_vec(),
            obs_high: OBS_HIGH.map(f64::from).to_vec(),
            action_space: ActionSpace::Continuous {
                low: vec![-MAX_TORQUE],
                high: vec![MAX_TORQUE],
            },
            max_episode_steps: 200,
            state_low: vec![f64::NEG_INFINITY, -MAX_SPEED],
            state_high: vec![f64::INFINITY, MAX_SPEED],
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        let [theta, theta_dot] = START.map(|start| rng.uniform(-start, start));
        *self = Self { theta, theta_dot };
    }

    #[inline]
    fn step(&mut self, [torque]: [f32; 1], _rng: &mut Pcg64) -> Outcome {
        let Self { theta, theta_dot } = *self;
        let torque = torque.clamp(-MAX_TORQUE, MAX_TORQUE);
        let angle = (theta + PI).rem_euclid(TAU) - PI;
        let cost = square(angle) + 0.1 * square(theta_dot) + f64::from(0.001 * square_f32(torque));

        let acceleration = GRAVITY * theta.sin() + f64::from(INVERSE_INERTIA * torque);
        self.theta_dot = (theta_dot + acceleration * STEP).clamp(-MAX_SPEED, MAX_SPEED);
        self.theta = theta + self.theta_dot * STEP;
        Outcome { reward: -cost, terminated: false }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
    fn observe(&self, obs: &mut [f32]) {
        let components = [self.theta.cos(), self.theta.sin(), self.theta_dot];
        for (slot, component) in obs.iter_mut().zip(components) {
            *slot = component as f32;
        }
    }

    fn save(&self, state: &mut [f64]) {
        state.copy_from_slice(&[self.theta, self.theta_dot]);
    }

    fn load(&mut self, state: &[f64]) {
        if let [theta, theta_dot] = *state {
            *self = Self { theta, theta_dot };
        }
    }
}
