//! Two links that hang from a fixed point, swung up by a torque at the joint between them.

use super::numpy::{cos_f32, sin_f32, square};
use super::{ActionSpace, Env, EnvSpec, Outcome};
use crate::gae::Float;
use crate::rng::Pcg64;

use std::f64::consts::{FRAC_PI_2, PI, TAU};

/// m/s².
const GRAVITY: f64 = 9.8;
/// kg, of either link.
const MASS: f64 = 1.0;
/// m, of the first link.
const LENGTH: f64 = 1.0;
/// m from the upper end of either link to its centre of mass.
const CENTRE: f64 = 0.5;
/// kg m², of either link.
const INERTIA: f64 = 1.0;
/// rad/s, of the first and of the second joint.
const MAX_SPEED: [f64; 2] = [4.0 * PI, 9.0 * PI];
/// Seconds between two states.
const STEP: f64 = 0.2;
/// Each state variable starts uniformly in `[-START, START)`, rounded to single precision.
const START: f64 = 0.1;

#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
const OBS_HIGH: [f32; 6] = [1.0, 1.0, 1.0, 1.0, MAX_SPEED[0] as f32, MAX_SPEED[1] as f32];

/// gymnasium's `Acrobot-v1`: the same bits for the same seed.
///
/// Actions: a torque of -1 (0), none (1) or 1 N m (2) at the lower joint. Reward: -1 a step, 0 for
/// the terminal one. Observation: cosine and sine of the first link's angle from hanging down and
/// of the second's from the first, and their angular velocities (rad/s). The episode terminates
/// when the tip swings higher than one link above the fixed point, and is truncated after 500
/// steps.
///
/// The arithmetic keeps gymnasium's order of operations and its types: the first observation of an
/// episode is computed in single precision, everything else in double.
///
/// Source: Sutton and Barto, "Reinforcement Learning: An Introduction", the acrobot, by fourth-order
/// Runge-Kutta steps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Acrobot {
    angles: [f64; 2],
    speeds: [f64; 2],
    /// True before the first step of an episode.
    fresh: bool,
}

impl Env for Acrobot {
    type Action<'a> = i64;
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(OBS_HIGH.len());

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "Acrobot-v1".to_owned(),
            obs_low: OBS_HIGH.map(|high| -f64::from(high)).to_vec(),
            obs_high: OBS_HIGH.map(f64::from).to_vec(),
            action_space: ActionSpace::Discrete { n: 3 },
            max_episode_steps: 500,
            state_low: vec![-PI, -PI, -MAX_SPEED[0], -MAX_SPEED[1], 0.0],
            state_high: vec![PI, PI, MAX_SPEED[0], MAX_SPEED[1], 1.0],
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        let mut draw = |_| f64::from(f32::from_f64(rng.uniform(-START, START)));
        let angles = std::array::from_fn(&mut draw);
        *self = Self { angles, speeds: std::array::from_fn(draw), fresh: true };
    }

    #[inline]
    fn step(&mut self, action: i64, _rng: &mut Pcg64) -> Outcome {
        let torque = match action {
            0 => -1.0,
            1 => 0.0,
            _ => 1.0,
        };
        let ([angle_1, angle_2], [speed_1, speed_2]) = (self.angles, self.speeds);
        let [angle_1, angle_2, speed_1, speed_2] =
            integrate([angle_1, angle_2, speed_1, speed_2], torque);
        self.angles = [wrap(angle_1), wrap(angle_2)];
        self.speeds = [
            speed_1.clamp(-MAX_SPEED[0], MAX_SPEED[0]),
            speed_2.clamp(-MAX_SPEED[1], MAX_SPEED[1]),
        ];
        self.fresh = false;
        let [angle_1, angle_2] = self.angles;
        let terminated = -angle_1.cos() - (angle_2 + angle_1).cos() > 1.0;
        Outcome { reward: if terminated { 0.0 } else { -1.0 }, terminated }
    }

    #[inline]
    fn observe(&self, obs: &mut [f32]) {
        let [speed_1, speed_2] = self.speeds.map(f32::from_f64);
        let [(cos_1, sin_1), (cos_2, sin_2)] = if self.fresh {
            self.angles.map(f32::from_f64).map(|angle| (cos_f32(angle), sin_f32(angle)))
        } else {
            self.angles.map(|angle| (f32::from_f64(angle.cos()), f32::from_f64(angle.sin())))
        };
        for (slot, component) in obs.iter_mut().zip([cos_1, sin_1, cos_2, sin_2, speed_1, speed_2])
        {
            *slot = component;
        }
    }

    fn save(&self, state: &mut [f64]) {
        let ([angle_1, angle_2], [speed_1, speed_2]) = (self.angles, self.speeds);
        let fresh = f64::from(u8::from(self.fresh));
        state.copy_from_slice(&[angle_1, angle_2, speed_1, speed_2, fresh]);
    }

    fn load(&mut self, state: &[f64]) {
        if let [angle_1, angle_2, speed_1, speed_2, fresh] = *state {
            let (angles, speeds) = ([angle_1, angle_2], [speed_1, speed_2]);
            *self = Self { angles, speeds, fresh: fresh != 0.0 };
        }
    }
}

/// The angle modulo full turns, in [-π, π].
fn wrap(mut angle: f64) -> f64 {
    while angle > PI {
        angle -= TAU;
    }
    while angle < -PI {
        angle += TAU;
    }
    angle
}

/// The state after one step, by the classical Runge-Kutta method.
fn integrate(state: [f64; 4], torque: f64) -> [f64; 4] {
    let along = |step: f64, slope: [f64; 4]| -> [f64; 4] {
        std::array::from_fn(|i| state[i] + step * slope[i])
    };
    let k1 = derivatives(state, torque);
    let k2 = derivatives(along(STEP / 2.0, k1), torque);
    let k3 = derivatives(along(STEP / 2.0, k2), torque);
    let k4 = derivatives(along(STEP, k3), torque);
    along(STEP / 6.0, std::array::from_fn(|i| k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]))
}

/// The time derivatives of angles and speeds, after the equations of the book.
fn derivatives([angle_1, angle_2, speed_1, speed_2]: [f64; 4], torque: f64) -> [f64; 4] {
    /// Mass times length times centre, kg m².
    const MLC: f64 = MASS * LENGTH * CENTRE;
    /// Mass times the square of centre, kg m².
    const MCC: f64 = MASS * CENTRE * CENTRE;
    let (sin, cos) = (angle_2.sin(), angle_2.cos());

    let d1 = MCC
        + MASS * (LENGTH * LENGTH + CENTRE * CENTRE + 2.0 * LENGTH * CENTRE * cos)
        + INERTIA
        + INERTIA;
    let d2 = MASS * (CENTRE * CENTRE + LENGTH * CENTRE * cos) + INERTIA;
    let phi2 = MASS * CENTRE * GRAVITY * (angle_1 + angle_2 - FRAC_PI_2).cos();
    let phi1 = -MLC * square(speed_2) * sin - 2.0 * MLC * speed_2 * speed_1 * sin
        + (MASS * CENTRE + MASS * LENGTH) * GRAVITY * (angle_1 - FRAC_PI_2).cos()
        + phi2;
    let acceleration_2 = (torque + d2 / d1 * phi1 - MLC * square(speed_1) * sin - phi2)
        / (MCC + INERTIA - square(d2) / d1);
    let acceleration_1 = -(d2 * acceleration_2 + phi1) / d1;
    [speed_1, speed_2, acceleration_1, acceleration_2]
}
