//! Agents that spread over landmarks without colliding.

use super::{ActionSpace, Actions, OptionValue, Options, TeamEnv, TeamSpec};
use crate::error::Result;
use crate::rng::Pcg64;

/// Seconds between two states.
const STEP: f64 = 0.1;
/// The share of its velocity that an agent loses in a step.
const DAMPING: f64 = 0.25;
/// Force per depth of a contact.
const CONTACT_FORCE: f64 = 1e2;
/// Width of the zone over which a contact sets in.
const CONTACT_MARGIN: f64 = 1e-3;
/// Two agents at this distance touch.
const CONTACT_DISTANCE: f64 = 0.15 + 0.15;
/// Distance, in margins, beyond which a contact's depth is zero in double precision.
const OUT_OF_REACH: f64 = 750.0;
/// Force of a full action.
const SENSITIVITY: f64 = 5.0;
/// Discrete actions, and components of continuous ones: none, left, right, down, up.
const N_MOVES: usize = 5;

/// A point or a vector in the plane.
type Plane = [f64; 2];

/// mpe2's `simple_spread_v3`: the same numbers for the same seed.
///
/// Options: `N` agents and as many landmarks, `local_ratio`, `max_cycles` steps per episode,
/// `continuous_actions`. Actions: one of none, left, right, down, up, or a share in [0, 1] of each.
/// Observation: own velocity and position; relative positions of the landmarks, then of the other
/// agents; zeros in place of messages. State: the observations one after the other. Reward: (1 -
/// `local_ratio`) times minus the sum over landmarks of the nearest agent's distance, and minus
/// `local_ratio` per touched agent. Nothing terminates.
///
/// The arithmetic keeps mpe2's order of operations. Results equal mpe2's bit for bit if this crate
/// and NumPy call the same C library's `exp` and `log1p`, which compute the contact force.
///
/// Sources: <https://github.com/Farama-Foundation/MPE2>; Lowe et al. 2017,
/// <https://arxiv.org/abs/1706.02275>.
#[derive(Debug, Clone, PartialEq)]
pub struct SimpleSpread {
    positions: Vec<Plane>,
    velocities: Vec<Plane>,
    landmarks: Vec<Plane>,
    /// Scratch of a step.
    forces: Vec<Plane>,
    local_ratio: f64,
    max_cycles: u32,
    continuous_actions: bool,
}

impl SimpleSpread {
    /// The registered id.
    pub const ID: &str = "mpe2/simple_spread_v3";

    /// Largest number of agents n: their state has 6 n² components.
    pub const MAX_AGENTS: u32 = 1024;

    /// Makes an env with the options `given` by name.
    ///
    /// # Errors
    /// [`KernelError::Env`](crate::KernelError::Env) for an option that is unknown or out of range.
    pub fn new(given: &[(String, OptionValue)]) -> Result<Self> {
        let known = ["N", "local_ratio", "max_cycles", "continuous_actions"];
        let options = Options::new(Self::ID, &known, given)?;
        let n_agents = options.integer("N", 3, [1, Self::MAX_AGENTS])? as usize;
        Ok(Self {
            positions: vec![[0.0; 2]; n_agents],
            velocities: vec![[0.0; 2]; n_agents],
            landmarks: vec![[0.0; 2]; n_agents],
            forces: vec![[0.0; 2]; n_agents],
            local_ratio: options.real("local_ratio", 0.5, [0.0, 1.0])?,
            max_cycles: options.integer("max_cycles", 25, [1, u32::MAX])?,
            continuous_actions: options.flag("continuous_actions", false)?,
        })
    }

    fn n_agents(&self) -> usize {
        self.positions.len()
    }

    /// Sets the force of each agent's own action.
    fn act(&mut self, actions: Actions<'_>) {
        match actions {
            Actions::Discrete(moves) => {
                for (force, &chosen) in self.forces.iter_mut().zip(moves) {
                    *force = match chosen {
                        1 => [-SENSITIVITY, 0.0],
                        2 => [SENSITIVITY, 0.0],
                        3 => [0.0, -SENSITIVITY],
                        4 => [0.0, SENSITIVITY],
                        _ => [0.0, 0.0],
                    };
                }
            }
            Actions::Continuous(shares) => {
                for (force, share) in self.forces.iter_mut().zip(shares.as_chunks::<N_MOVES>().0) {
                    // The differences have the actions' precision.
                    let [_, left, right, down, up] = *share;
                    *force = [right - left, up - down].map(|push| f64::from(push) * SENSITIVITY);
                }
            }
        }
    }

    /// Adds the contact forces of touching agents, in mpe2's order of pairs.
    fn collide(&mut self) {
        for a in 0..self.n_agents() {
            for b in a + 1..self.n_agents() {
                let apart = between(self.positions[a], self.positions[b]);
                let distance = length(apart);
                let gap = (distance - CONTACT_DISTANCE) / CONTACT_MARGIN;
                if gap > OUT_OF_REACH {
                    continue;
                }
                let depth = softplus(-gap) * CONTACT_MARGIN;
                for (axis, apart) in apart.into_iter().enumerate() {
                    let push = CONTACT_FORCE * apart / distance * depth;
                    self.forces[a][axis] += push;
                    self.forces[b][axis] -= push;
                }
            }
        }
    }

    /// Moves the agents: positions first, by the old velocities.
    fn move_on(&mut self) {
        let moving = self.positions.iter_mut().zip(&mut self.velocities);
        for ((position, velocity), force) in moving.zip(&self.forces) {
            for axis in 0..2 {
                position[axis] += velocity[axis] * STEP;
                velocity[axis] = velocity[axis] * (1.0 - DAMPING) + force[axis] * STEP;
            }
        }
    }

    /// Writes each agent's reward for the present positions.
    fn pay(&self, rewards: &mut [f64]) {
        let mut shared = 0.0;
        for &landmark in &self.landmarks {
            let distances =
                self.positions.iter().map(|&position| length(between(position, landmark)));
            shared -= distances.fold(f64::INFINITY, f64::min);
        }
        shared *= 1.0 - self.local_ratio;
        for (agent, reward) in rewards.iter_mut().enumerate() {
            let mut own = 0.0;
            for (other, &position) in self.positions.iter().enumerate() {
                let touches = length(between(position, self.positions[agent])) < CONTACT_DISTANCE;
                if other != agent && touches {
                    own -= 1.0;
                }
            }
            *reward = shared + own * self.local_ratio;
        }
    }
}

impl TeamEnv for SimpleSpread {
    type Obs = f32;

    fn spec(&self) -> TeamSpec {
        let n_agents = self.n_agents();
        let obs_dim = 2 * (2 + n_agents + 2 * (n_agents - 1));
        let everywhere = |dim| (vec![f64::NEG_INFINITY; dim], vec![f64::INFINITY; dim]);
        let (obs_low, obs_high) = everywhere(obs_dim);
        let (state_low, state_high) = everywhere(n_agents * obs_dim);
        let (mut physics_low, mut physics_high) = everywhere(6 * n_agents);
        physics_low[4 * n_agents..].fill(-1.0);
        physics_high[4 * n_agents..].fill(1.0);
        TeamSpec {
            id: Self::ID.to_owned(),
            group: "agent".to_owned(),
            agents: (0..n_agents).map(|i| format!("agent_{i}")).collect(),
            obs_low,
            obs_high,
            action_space: if self.continuous_actions {
                ActionSpace::Continuous { low: vec![0.0; N_MOVES], high: vec![1.0; N_MOVES] }
            } else {
                ActionSpace::Discrete { n: 5 }
            },
            state_low,
            state_high,
            physics_low,
            physics_high,
            max_episode_steps: self.max_cycles,
        }
    }

    fn reset(&mut self, rng: &mut Pcg64) {
        for place in self.positions.iter_mut().chain(&mut self.landmarks) {
            *place = [rng.uniform(-1.0, 1.0), rng.uniform(-1.0, 1.0)];
        }
        self.velocities.fill([0.0; 2]);
    }

    fn step(&mut self, actions: Actions<'_>, rewards: &mut [f64], _rng: &mut Pcg64) -> bool {
        self.act(actions);
        self.collide();
        self.move_on();
        self.pay(rewards);
        false
    }

    fn observe(&self, obs: &mut [f32]) {
        let n_agents = self.n_agents();
        for (agent, row) in obs.chunks_exact_mut(obs.len() / n_agents).enumerate() {
            let here = self.positions[agent];
            let own = [self.velocities[agent], here];
            let landmarks = self.landmarks.iter().map(|&place| between(place, here));
            let others = self.positions.iter().enumerate().filter(|&(other, _)| other != agent);
            let others = others.map(|(_, &place)| between(place, here));
            let seen = own.into_iter().chain(landmarks).chain(others);
            let (pairs, _) = row.as_chunks_mut::<2>();
            let (visible, silent) = pairs.split_at_mut(2 + n_agents + n_agents - 1);
            for (pair, vector) in visible.iter_mut().zip(seen) {
                *pair = vector.map(single);
            }
            silent.fill([0.0; 2]);
        }
    }

    fn observe_state(&self, state: &mut [f32]) {
        self.observe(state);
    }

    fn save(&self, physics: &mut [f64]) {
        let parts = self.positions.iter().chain(&self.velocities).chain(&self.landmarks);
        for (slot, part) in physics.as_chunks_mut::<2>().0.iter_mut().zip(parts) {
            *slot = *part;
        }
    }

    fn load(&mut self, physics: &[f64]) {
        let (positions, velocities) = (self.positions.iter_mut(), self.velocities.iter_mut());
        let parts = positions.chain(velocities).chain(&mut self.landmarks);
        for (part, saved) in parts.zip(physics.as_chunks::<2>().0) {
            *part = *saved;
        }
    }
}

/// The vector from `b` to `a`.
fn between(a: Plane, b: Plane) -> Plane {
    [a[0] - b[0], a[1] - b[1]]
}

fn length([x, y]: Plane) -> f64 {
    (x * x + y * y).sqrt()
}

/// `numpy.logaddexp(0, x)`, log(1 + exp(x)).
fn softplus(x: f64) -> f64 {
    if x == 0.0 {
        std::f64::consts::LN_2
    } else if x < 0.0 {
        x.exp().ln_1p()
    } else {
        x + (-x).exp().ln_1p()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "observations are single precision")]
fn single(component: f64) -> f32 {
    component as f32
}
