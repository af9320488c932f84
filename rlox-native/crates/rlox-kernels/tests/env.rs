//! Vector envs of native and foreign envs; Python compares them with gymnasium's, bit for bit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rlox_kernels::env::{
    ActionSpace, Actions, CartPole, Env, EnvSpec, Episode, MAX_ENVS, Outcome, StepBuffers, VecEnv,
    VectorEnv, make_vec, native_env_ids,
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
    fn new(envs: &dyn VectorEnv) -> Self {
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
            obs: (&mut self.obs).into(),
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            final_obs: (&mut self.final_obs).into(),
        }
    }
}

// One row of actions of the kind that the env takes.
enum Row {
    Discrete(Vec<i64>),
    Continuous(Vec<f32>),
}

impl Row {
    // Maps `unit` in [-1, 1] to discrete actions, or to continuous ones from half the lower bound
    // to 1.5 times the upper: clamped and free actions are both covered.
    fn of(spec: &EnvSpec, units: &[f32]) -> Self {
        match &spec.action_space {
            ActionSpace::Discrete { n } => {
                let widest = units.iter().map(|unit| if *unit > 0.0 { *n - 1 } else { 0 });
                Self::Discrete(widest.collect())
            }
            ActionSpace::Continuous { high, .. } => Self::Continuous(
                units
                    .iter()
                    .map(|unit| unit * high[0] * if *unit > 0.0 { 1.5 } else { 0.5 })
                    .collect(),
            ),
        }
    }

    fn actions(&self) -> Actions<'_> {
        match self {
            Self::Discrete(actions) => Actions::Discrete(actions),
            Self::Continuous(actions) => Actions::Continuous(actions),
        }
    }
}

proptest! {
    #[test]
    fn no_step_leaves_the_spaces(
        seeds in prop::collection::vec(any::<u64>(), 2),
        units in prop::collection::vec(-1.0_f32..=1.0, 2..600),
        scale in prop::sample::select(vec![1.0_f32, 1e-30, 1e30]),
    ) {
        for id in native_env_ids() {
            let mut envs = make_vec(id, 2).unwrap();
            let mut arrays = Arrays::new(&*envs);
            let spec = envs.spec().clone();
            envs.seed_all(&seeds).unwrap();
            envs.reset_all((&mut arrays.obs).into()).unwrap();
            for pair in units.chunks_exact(2) {
                let row = Row::of(&spec, &[pair[0] * scale, pair[1] * scale]);
                envs.step_all(row.actions(), &mut arrays.buffers()).unwrap();
                prop_assert!(arrays.rewards.iter().all(|reward| reward.is_finite()), "{id}");
                for obs in arrays.obs.chunks_exact(spec.obs_dim()) {
                    let bounds = spec.obs_low.iter().zip(&spec.obs_high);
                    let inside = obs.iter().zip(bounds).all(|(&x, (&low, &high))| (low..=high).contains(&f64::from(x)));
                    prop_assert!(inside, "{id}: {obs:?}");
                }
            }
            let state = envs.state();
            prop_assert_eq!(envs.set_state(&state), Ok(()));
        }
    }
}

#[test]
fn physics_that_no_episode_goes_on_from_are_refused() {
    for id in native_env_ids() {
        let mut envs = make_vec(id, 2).unwrap();
        let spec = envs.spec().clone();
        let before = envs.state();
        for (component, high) in spec.state_high.iter().enumerate() {
            let mut state = before.clone();
            state.physics[spec.state_dim() + component] = high.next_up();
            assert!(envs.set_state(&state).is_err(), "{id}");
            assert_eq!(envs.state(), before);
        }
    }
}

#[test]
fn an_episode_must_be_reset_before_and_after() {
    let mut episode = Episode::new(CartPole::default(), Pcg64::from_seed(0));
    let mut obs = [0.0; 4];
    assert_eq!(episode.step(0, &mut obs), Err(StateError::NotReset.into()));
    episode.reset(None, &mut obs);
    while !episode.step(0, &mut obs).unwrap().0.terminated {}
    assert_eq!(episode.step(0, &mut obs), Err(StateError::EpisodeOver.into()));
    episode.reset(None, &mut obs);
    assert!(episode.step(0, &mut obs).is_ok());
}

// A point moved by the action: an env as another crate would write it.
#[derive(Debug, Clone, Default)]
struct Drift {
    at: [f32; 2],
    /// Number of bounds without a component.
    excess: usize,
}

impl Env for Drift {
    type Action<'a> = [f32; 2];
    type Obs = f32;

    const OBS_DIM: Option<usize> = Some(2);

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: "Drift-v0".to_owned(),
            obs_low: vec![f64::NEG_INFINITY; 2 + self.excess],
            obs_high: vec![f64::INFINITY; 2 + self.excess],
            action_space: ActionSpace::Continuous { low: vec![-1.0; 2], high: vec![1.0; 2] },
            max_episode_steps: 2,
            state_low: vec![f64::NEG_INFINITY; 2],
            state_high: vec![f64::INFINITY; 2],
        }
    }

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
    let mut envs = VecEnv::new(2, || Ok(Drift::default())).unwrap();
    let mut arrays = Arrays::new(&envs);
    envs.reset_all((&mut arrays.obs).into()).unwrap();
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
    let mut envs = VecEnv::new(2, || Ok(CartPole::default())).unwrap();
    let mut arrays = Arrays::new(&envs);
    let error = envs.step_all(Actions::Discrete(&[0, 1]), &mut arrays.buffers()).unwrap_err();
    assert_eq!(error, StateError::BatchNotReset.into());
    envs.reset_all((&mut arrays.obs).into()).unwrap();
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
fn impossible_numbers_of_envs_are_refused() {
    for n in [0, MAX_ENVS + 1, usize::MAX] {
        let error = VecEnv::new(n, || Ok(CartPole::default())).err().unwrap();
        assert!(matches!(error, KernelError::Range { name: "n", .. }));
    }
}

// A point in double precision with a number of components set at run time.
struct Space(Vec<f64>);

impl Space {
    fn new(n: usize) -> Result<Self, KernelError> {
        if n < 4 {
            return Ok(Self(vec![0.0; n]));
        }
        let reason = format!("n must be less than 4, got {n}");
        Err(KernelError::Env { env_id: "Space-v0".to_owned(), reason })
    }
}

impl Env for Space {
    type Action<'a> = &'a [f32];
    type Obs = f64;

    fn spec(&self) -> EnvSpec {
        let bounds = |sign: f64| vec![sign * f64::INFINITY; self.0.len()];
        let n = self.0.len();
        EnvSpec {
            id: "Space-v0".to_owned(),
            obs_low: bounds(-1.0),
            obs_high: bounds(1.0),
            action_space: ActionSpace::Continuous { low: vec![-1.0; n], high: vec![1.0; n] },
            max_episode_steps: 3,
            state_low: bounds(-1.0),
            state_high: bounds(1.0),
        }
    }

    fn reset(&mut self, _rng: &mut Pcg64) {
        self.0.fill(0.0);
    }

    fn step(&mut self, action: &[f32], _rng: &mut Pcg64) -> Outcome {
        for (at, &by) in self.0.iter_mut().zip(action) {
            *at += f64::from(by) + 1e-12;
        }
        Outcome { reward: self.0[0], terminated: false }
    }

    fn observe(&self, obs: &mut [f64]) {
        obs.copy_from_slice(&self.0);
    }

    fn save(&self, state: &mut [f64]) {
        state.copy_from_slice(&self.0);
    }

    fn load(&mut self, state: &[f64]) {
        self.0.copy_from_slice(state);
    }
}

#[test]
fn sizes_and_precision_may_come_at_run_time() {
    let mut envs = VecEnv::new(2, || Space::new(3)).unwrap();
    let (mut obs, mut final_obs) = (vec![1.0; 6], vec![1.0; 6]);
    envs.reset_all((&mut obs).into()).unwrap();
    assert_eq!(obs, [0.0; 6]);
    let actions = [0.5_f32, 0.25, 0.0, -1.0, -2.0, -3.0];
    let mut out = StepBuffers {
        obs: (&mut obs).into(),
        rewards: &mut [0.0; 2],
        terminated: &mut [false; 2],
        truncated: &mut [false; 2],
        final_obs: (&mut final_obs).into(),
    };
    envs.step_all(Actions::Continuous(&actions), &mut out).unwrap();
    let expected = actions.map(|by| f64::from(by) + 1e-12);
    assert_eq!((&obs[..], &final_obs[..]), (&expected[..], &expected[..]));
    let error = envs.reset_all((&mut [0.0_f32; 6]).into()).unwrap_err();
    assert_eq!(error, KernelError::DType { name: "obs", expected: "float64", got: "float32" });
}

#[test]
fn an_env_that_cannot_be_made_says_why() {
    let error = VecEnv::new(2, || Space::new(5)).err().unwrap();
    let text = "cannot make the env 'Space-v0': n must be less than 4, got 5";
    assert_eq!(error.to_string(), text);
    let error = VecEnv::new(2, || Space::new(0)).err().unwrap();
    assert!(matches!(error, KernelError::Env { .. }), "{error}");
    let error = VecEnv::new(2, || Ok(Drift { excess: 1, ..Drift::default() })).err().unwrap();
    assert!(error.to_string().contains("obs_low must have OBS_DIM elements"), "{error}");
}
