//! A pole on a cart, balanced by pushing the cart left or right.

use super::{ActionSpace, Env, EnvSpec, Outcome};
use crate::rng::Pcg64;

/// m/s².
const GRAVITY: f64 = 9.8;
/// kg.
const MASS_POLE: f64 = 0.1;
/// kg; the cart has 1 kg.
const TOTAL_MASS: f64 = MASS_POLE + 1.0;
/// Half the pole's length, m.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = MASS_POLE * LENGTH;
/// N.
const FORCE: f64 = 10.0;
/// Seconds between two states.
const TAU: f64 = 0.02;
/// Cart position at which the episode fails, m.
const X_LIMIT: f64 = 2.4;
/// Pole angle at which the episode fails, 12 degrees in radians.
const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
/// Each state variable starts uniformly in `[-START, START)`.
const START: f64 = 0.05;

/// Twice the limits, so that a failing observation is within the bounds.
#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
const OBS_HIGH: [f32; 4] =
    [(X_LIMIT * 2.0) as f32, f32::INFINITY, (THETA_LIMIT * 2.0) as f32, f32::INFINITY];

/// gymnasium's `CartPole-v1`: the same bits for the same seed.
///
/// Actions: 0 pushes left, 1 pushes right. Reward: 1 a step. Observation: cart position (m) and
/// velocity (m/s), pole angle (rad) and angular velocity (rad/s). The episode terminates when the
/// cart leaves ±2.4 m or the pole ±12 degrees, and is truncated after 500 steps.
///
/// The arithmetic keeps gymnasium's order of operations: bit equality depends on it.
///
/// Source: Barto, Sutton, Anderson, "Neuronlike Adaptive Elements That Can Solve Difficult Learning
/// Control Problems", 1983, in the equations of Florian, "Correct equations for the dynamics of the
/// cart-pole system", 2007, without friction, by explicit Euler steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CartPole {
    x: f64,
    x_dot: f64,
    theta: f64,
    theta_dot: f64,
}

impl Env for CartPole {
    type Action<'a> = i64;
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(OBS_HIGH.len());

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "CartPole-v1".to_owned(),
            obs_low: OBS_HIGH.map(|high| -f64::from(high)).to_vec(),
            obs_high: OBS_HIGH.map(f64::from).to_vec(),
            action_space: ActionSpace::Discrete { n: 2 },
            max_episode_steps: 500,
            state_low: vec![-X_LIMIT, f64::NEG_INFINITY, -THETA_LIMIT, f64::NEG_INFINITY],
            state_high: vec![X_LIMIT, f64::INFINITY, THETA_LIMIT, f64::INFINITY],
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        let [x, x_dot, theta, theta_dot] = std::array::from_fn(|_| rng.uniform(-START, START));
        *self = Self { x, x_dot, theta, theta_dot };
    }

    #[inline]
    fn step(&mut self, action: i64, _rng: &mut Pcg64) -> Outcome {
        let Self { x, x_dot, theta, theta_dot } = *self;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = (theta.sin(), theta.cos());

        let temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sin) / TOTAL_MASS;
        let theta_acc = (GRAVITY * sin - cos * temp)
            / (LENGTH * (4.0 / 3.0 - MASS_POLE * (cos * cos) / TOTAL_MASS));
        let x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS;

        *self = Self {
            x: x + TAU * x_dot,
            x_dot: x_dot + TAU * x_acc,
            theta: theta + TAU * theta_dot,
            theta_dot: theta_dot + TAU * theta_acc,
        };
        // One bitwise `or`: a chain of short circuits would mispredict at every episode's end.
        let terminated = (self.x.abs() > X_LIMIT) | (self.theta.abs() > THETA_LIMIT);
        Outcome { reward: 1.0, terminated }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
    fn observe(&self, obs: &mut [f32]) {
        let components = [self.x, self.x_dot, self.theta, self.theta_dot];
        for (slot, component) in obs.iter_mut().zip(components) {
            *slot = component as f32;
        }
    }

    fn save(&self, state: &mut [f64]) {
        let components = [self.x, self.x_dot, self.theta, self.theta_dot];
        state.copy_from_slice(&components);
    }

    fn load(&mut self, state: &[f64]) {
        if let [x, x_dot, theta, theta_dot] = *state {
            *self = Self { x, x_dot, theta, theta_dot };
        }
    }
}
