//! CartPole against gymnasium's numbers, and vector envs of this and of a foreign kind of env.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use rlox_kernels::env::{
    ActionSpace, Actions, CartPole, Env, EnvSpec, Episode, MAX_ENVS, Outcome, StepBuffers, VecEnv,
    VectorEnv,
};
use rlox_kernels::error::{KernelError, StateError};
use rlox_kernels::gae::Float;
use rlox_kernels::rng::Pcg64;

// Arrays for one step of `n` envs.
struct Arrays {
    obs: Vec<f32>,
    rewards: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    final_obs: Vec<f32>,
}

impl Arrays {
    fn new(envs: &impl VectorEnv) -> Self {
        let (n, len) = (envs.n_envs(), envs.n_envs() * envs.spec().obs_dim());
        Self {
            obs: vec![0.0; len],
            rewards: vec![0.0; n],
            terminated: vec![false; n],
            truncated: vec![false; n],
            final_obs: vec![0.0; len],
        }
    }

    fn buffers(&mut self) -> StepBuffers<'_> {
        StepBuffers {
            obs: &mut self.obs,
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            final_obs: &mut self.final_obs,
        }
    }
}

fn physics(env: &impl Env) -> [f64; 4] {
    let mut state = [0.0; 4];
    env.save(&mut state);
    state
}

// gymnasium 1.4.0, `reset(seed=42)`, then the eight actions over and over: the episode terminates
// at step 15. Compared to a tolerance, since another libm may round sine and cosine otherwise; the
// Python tests compare bits with the gymnasium of the same machine.
#[test]
fn cartpole_follows_gymnasium() {
    let mut rng = Pcg64::from_seed(42);
    let mut env = CartPole::default();
    env.reset(&mut rng);
    let first = [
        0x3f9c_0d97_eba2_bd40,
        0xbf79_090f_63c0_b010,
        0x3fa2_5c36_f3af_c536,
        0x3f94_35e2_6c08_cd04,
    ];
    assert_eq!(physics(&env), first.map(f64::from_bits));

    let actions = [1, 0, 1, 1, 1, 0, 1, 1];
    let mut steps = 0;
    while !env.step(actions[steps % 8], &mut rng).terminated {
        steps += 1;
    }
    assert_eq!(steps + 1, 15);
    let last = [
        0x3fcb_b6b5_e590_5aa4,
        0x3ff5_d6d0_19a3_836d,
        0xbfce_cbb7_1db6_c480,
        0xc001_9284_9325_6ac0,
    ]
    .map(f64::from_bits);
    for (got, expected) in physics(&env).into_iter().zip(last) {
        assert!((got - expected).abs() < 1e-12, "got {got}, expected {expected}");
    }

    // The second episode goes on with the stream of the first.
    env.reset(&mut rng);
    let second = [
        0xbfa4_c732_dbc2_7c1a,
        0x3fa8_5a13_c91a_f4aa,
        0x3f9a_bd9e_dfe4_f0e8,
        0x3f9d_4b01_0e49_783c,
    ];
    assert_eq!(physics(&env), second.map(f64::from_bits));
}

#[test]
fn an_episode_must_be_reset_before_and_after() {
    let mut episode = Episode::<CartPole>::new(Pcg64::from_seed(0));
    let mut obs = [0.0; 4];
    assert_eq!(episode.step(0, &mut obs), Err(StateError::NotReset.into()));
    episode.reset(None, &mut obs);
    while !episode.step(0, &mut obs).unwrap().0.terminated {}
    assert_eq!(episode.step(0, &mut obs), Err(StateError::EpisodeOver.into()));
    episode.reset(None, &mut obs);
    assert!(episode.step(0, &mut obs).is_ok());
}

// A point that the action moves; an env as another crate would write it.
#[derive(Debug, Clone, Default)]
struct Drift {
    at: [f32; 2],
}

impl Env for Drift {
    const SPEC: EnvSpec = EnvSpec {
        id: "Drift-v0",
        obs_low: &[f32::NEG_INFINITY; 2],
        obs_high: &[f32::INFINITY; 2],
        action_space: ActionSpace::Continuous { low: &[-1.0; 2], high: &[1.0; 2] },
        max_episode_steps: 2,
        state_dim: 2,
    };

    type Action = [f32; 2];

    fn reset(&mut self, _rng: &mut Pcg64) {
        self.at = [0.0; 2];
    }

    fn step(&mut self, action: [f32; 2], _rng: &mut Pcg64) -> Outcome {
        self.at = [self.at[0] + action[0], self.at[1] + action[1]];
        Outcome { reward: f64::from(self.at[0]), terminated: self.at[1] > 1.0 }
    }

    fn observe(&self, obs: &mut [f32]) {
        obs.copy_from_slice(&self.at);
    }

    fn save(&self, state: &mut [f64]) {
        state.copy_from_slice(&self.at.map(f64::from));
    }

    fn load(&mut self, state: &[f64]) {
        self.at = [f32::from_f64(state[0]), f32::from_f64(state[1])];
    }
}

#[test]
fn a_foreign_continuous_env_makes_a_vector_env() {
    let mut envs = VecEnv::<Drift>::new(2).unwrap();
    let mut arrays = Arrays::new(&envs);
    envs.reset_all(&mut arrays.obs).unwrap();
    let actions = [1.0, 0.5, 2.0, 1.5];
    envs.step_all(Actions::Continuous(&actions), &mut arrays.buffers()).unwrap();
    assert_eq!(arrays.rewards, [1.0, 2.0]);
    assert_eq!(arrays.terminated, [false, true]);
    assert_eq!(arrays.truncated, [false, false]);
    assert_eq!(arrays.final_obs, [1.0, 0.5, 2.0, 1.5]);
    assert_eq!(arrays.obs, [1.0, 0.5, 0.0, 0.0]);

    let actions = [1.0, 0.5, 2.0, 0.5];
    envs.step_all(Actions::Continuous(&actions), &mut arrays.buffers()).unwrap();
    assert_eq!(arrays.terminated, [false, false]);
    assert_eq!(arrays.truncated, [true, false]);
    assert_eq!(arrays.obs, [0.0, 0.0, 2.0, 0.5]);
}

#[test]
fn a_refused_step_moves_no_env() {
    let mut envs = VecEnv::<CartPole>::new(2).unwrap();
    let mut arrays = Arrays::new(&envs);
    let error = envs.step_all(Actions::Discrete(&[0, 1]), &mut arrays.buffers()).unwrap_err();
    assert_eq!(error, StateError::BatchNotReset.into());
    envs.reset_all(&mut arrays.obs).unwrap();
    let before = envs.state();
    for actions in [&[0, 2][..], &[0], &[0, 0, 0]] {
        assert!(envs.step_all(Actions::Discrete(actions), &mut arrays.buffers()).is_err());
    }
    assert!(envs.step_all(Actions::Continuous(&[0.0; 2]), &mut arrays.buffers()).is_err());
    arrays.rewards.pop();
    assert!(envs.step_all(Actions::Discrete(&[0, 1]), &mut arrays.buffers()).is_err());
    assert_eq!(envs.state(), before);
}

#[test]
fn a_restored_state_goes_on_with_the_same_bits() {
    let mut envs = VecEnv::<CartPole>::new(3).unwrap();
    let mut other = VecEnv::<CartPole>::new(3).unwrap();
    let (mut a, mut b) = (Arrays::new(&envs), Arrays::new(&envs));
    envs.reset_all(&mut a.obs).unwrap();
    other.set_state(&envs.state()).unwrap();
    for step in 0..100 {
        let actions = [step % 2, 1, 0];
        envs.step_all(Actions::Discrete(&actions), &mut a.buffers()).unwrap();
        other.step_all(Actions::Discrete(&actions), &mut b.buffers()).unwrap();
        assert_eq!((&a.obs, &a.final_obs), (&b.obs, &b.final_obs));
    }
    assert_eq!(envs.state(), other.state());
}

#[test]
fn an_impossible_state_is_refused_whole() {
    let mut envs = VecEnv::<CartPole>::new(2).unwrap();
    let before = envs.state();
    let broken: [fn(&mut rlox_kernels::env::VecEnvState); 6] = [
        |state| state.physics.truncate(7),
        |state| state.physics[5] = f64::NAN,
        |state| state.elapsed[0] = 500,
        |state| state.elapsed.truncate(1),
        |state| state.rng[1][3] = 2,
        |state| state.rng.truncate(1),
    ];
    for break_it in broken {
        let mut state = before.clone();
        state.started = true;
        break_it(&mut state);
        assert!(envs.set_state(&state).is_err());
        assert_eq!(envs.state(), before);
    }
}

#[test]
fn impossible_numbers_of_envs_are_refused() {
    for n in [0, MAX_ENVS + 1, usize::MAX] {
        let error = VecEnv::<CartPole>::new(n).err().unwrap();
        assert!(matches!(error, KernelError::Range { name: "n", .. }));
    }
}
