//! Multi-agent envs: physics of `simple_spread`, one or many copies, states, refusals.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::env::{
    ActionSpace, Actions, ObsType, OptionValue, SimpleSpread, TeamEnv, TeamSpec, TeamStepBuffers,
    TeamVecEnv, TeamVectorEnv, TeamView, make_team_vec, native_team_env_ids,
};
use rlox_kernels::rng::Pcg64;

const ID: &str = SimpleSpread::ID;

fn options(n_agents: i64, local_ratio: f64) -> Vec<(String, OptionValue)> {
    vec![
        ("N".to_owned(), OptionValue::Integer(n_agents)),
        ("local_ratio".to_owned(), OptionValue::Real(local_ratio)),
    ]
}

/// Output of a step.
#[derive(Debug, Clone, PartialEq)]
struct Written {
    obs: Vec<f32>,
    state: Vec<f32>,
    rewards: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    final_obs: Vec<f32>,
    final_state: Vec<f32>,
    ended: Vec<bool>,
}

impl Written {
    /// Buffers full of values that a step must overwrite.
    fn new(envs: &dyn TeamVectorEnv) -> Self {
        let (n, spec) = (envs.n_envs(), envs.spec());
        let rows = n * spec.n_agents();
        let (obs, state) = (rows * spec.obs_dim(), n * spec.state_dim());
        Self {
            obs: vec![f32::NAN; obs],
            state: vec![f32::NAN; state],
            rewards: vec![f64::NAN; rows],
            terminated: vec![true; rows],
            truncated: vec![true; rows],
            final_obs: vec![f32::NAN; obs],
            final_state: vec![f32::NAN; state],
            ended: vec![true; n],
        }
    }

    fn buffers(&mut self) -> TeamStepBuffers<'_> {
        let Self { obs, state, rewards, terminated, truncated, final_obs, final_state, ended } =
            self;
        TeamStepBuffers {
            next: TeamView { obs: obs.into(), state: state.into() },
            rewards,
            terminated,
            truncated,
            last: TeamView { obs: final_obs.into(), state: final_state.into() },
            ended,
        }
    }

    fn reset(&mut self, envs: &mut dyn TeamVectorEnv) {
        let mut view = TeamView { obs: (&mut self.obs).into(), state: (&mut self.state).into() };
        envs.reset_all(&mut view).unwrap();
    }

    fn step(&mut self, envs: &mut dyn TeamVectorEnv, moves: &[i64]) {
        envs.step_all(Actions::Discrete(moves), &mut self.buffers()).unwrap();
    }
}

/// One env in the state `places`: agents, velocities and landmarks.
fn env_at(places: &[f64], local_ratio: f64) -> SimpleSpread {
    let n_agents = i64::try_from(places.len() / 6).unwrap();
    let mut env = SimpleSpread::new(&options(n_agents, local_ratio)).unwrap();
    env.load(places);
    env
}

fn saved(env: &SimpleSpread) -> Vec<f64> {
    let mut physics = vec![0.0; env.spec().physics_dim()];
    env.save(&mut physics);
    physics
}

/// Agents within [-1, 1]², with velocities of up to 2, and landmarks.
fn places() -> impl Strategy<Value = Vec<f64>> {
    (1_usize..=6).prop_flat_map(|n| {
        let part = |bound: f64| prop::collection::vec(-bound..bound, 2 * n);
        (part(1.0), part(2.0), part(1.0))
            .prop_map(|(at, moving, marks)| [at, moving, marks].concat())
    })
}

/// Agents close enough that all of them touch.
fn crowds() -> impl Strategy<Value = Vec<f64>> {
    places().prop_map(|places| {
        let n = places.len() / 3;
        places.iter().enumerate().map(|(i, x)| if i < n { x * 0.05 } else { *x }).collect()
    })
}

fn stepped(env: &mut SimpleSpread, moves: &[i64]) -> Vec<f64> {
    let mut rewards = vec![f64::NAN; moves.len()];
    let is_over = env.step(Actions::Discrete(moves), &mut rewards, &mut Pcg64::from_seed(0));
    assert!(!is_over);
    rewards
}

proptest! {
    /// Each push has an equal opposite one: the sum of all velocities shrinks like that of a single
    /// agent.
    #[test]
    fn contacts_keep_the_momentum(places in crowds()) {
        let n = places.len() / 6;
        let mut env = env_at(&places, 0.5);
        stepped(&mut env, &vec![0; n]);
        let after = saved(&env);
        for axis in 0..2 {
            let sum = |at: &[f64]| (0..n).map(|i| at[2 * n + 2 * i + axis]).sum::<f64>();
            let largest = after[2 * n..4 * n].iter().fold(1.0, |most: f64, v| most.max(v.abs()));
            prop_assert!((sum(&after) - 0.75 * sum(&places)).abs() < 1e-12 * largest);
        }
    }

    /// Two agents that touch are driven apart along the line between them.
    #[test]
    fn contacts_push_apart(x in 0.02_f64..0.29, angle in 0.0_f64..6.3) {
        let (sin, cos) = angle.sin_cos();
        let places = [x * cos, x * sin, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, -0.5, 0.5];
        let mut env = env_at(&places, 0.5);
        stepped(&mut env, &[0, 0]);
        let after = saved(&env);
        prop_assert!(after[4] * cos + after[5] * sin > 0.0);
        prop_assert!((after[4] * sin - after[5] * cos).abs() < 1e-9);
        prop_assert_eq!([after[4], after[5]], [-after[6], -after[7]]);
    }

    /// Agents that are far from each other move as if they were alone.
    #[test]
    fn far_agents_do_not_feel_each_other(gap in 1.1_f64..50.0, chosen in 0_i64..5) {
        let alone = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
        let both = [0.1, 0.2, 0.1 + gap, 0.2, 0.3, 0.4, 0.0, 0.0, 0.5, 0.6, 0.5, 0.6];
        let (mut one, mut two) = (env_at(&alone, 0.5), env_at(&both, 0.5));
        stepped(&mut one, &[chosen]);
        stepped(&mut two, &[chosen, 0]);
        let (one, two) = (saved(&one), saved(&two));
        prop_assert_eq!([one[0], one[1], one[2], one[3]], [two[0], two[1], two[4], two[5]]);
    }

    /// A mirrored world steps to the mirrored world, with the same rewards.
    #[test]
    fn mirrored_worlds_stay_mirrored(places in crowds(), moves in prop::collection::vec(0_i64..5, 6)) {
        let n = places.len() / 6;
        let mirrored: Vec<f64> = places.iter().map(|x| -x).collect();
        let opposite: Vec<i64> = moves[..n].iter().map(|m| [0, 2, 1, 4, 3][usize::try_from(*m).unwrap()]).collect();
        let (mut env, mut other) = (env_at(&places, 0.5), env_at(&mirrored, 0.5));
        let (paid, also) = (stepped(&mut env, &moves[..n]), stepped(&mut other, &opposite));
        prop_assert_eq!(paid, also);
        prop_assert!(saved(&env).iter().zip(saved(&other)).all(|(x, y)| *x == -y));
    }

    /// The shared part is the same for all and never positive; each contact costs both agents the same.
    #[test]
    fn pay_has_a_shared_and_an_own_part(places in places(), ratio in 0.0_f64..=1.0) {
        let n = places.len() / 6;
        let none = vec![0; n];
        let shared = stepped(&mut env_at(&places, 0.0), &none);
        let own = stepped(&mut env_at(&places, 1.0), &none);
        let mixed = stepped(&mut env_at(&places, ratio), &none);
        prop_assert!(shared.iter().all(|paid| *paid == shared[0] && *paid <= 0.0));
        prop_assert!(own.iter().all(|paid| paid.fract() == 0.0 && *paid <= 0.0));
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers of at most 6 agents")]
        let contacts = own.iter().sum::<f64>() as i64;
        prop_assert_eq!(contacts % 2, 0);
        for agent in 0..n {
            prop_assert_eq!(mixed[agent], shared[agent] * (1.0 - ratio) + own[agent] * ratio);
        }
    }

    /// A continuous action with a full share in one direction equals the discrete one.
    #[test]
    fn whole_shares_are_discrete_moves(places in places(), moves in prop::collection::vec(0_i64..5, 6)) {
        let n = places.len() / 6;
        let mut env = env_at(&places, 0.5);
        let given = [options(i64::try_from(n).unwrap(), 0.5), vec![("continuous_actions".to_owned(), OptionValue::Flag(true))]].concat();
        let mut other = SimpleSpread::new(&given).unwrap();
        other.load(&places);
        let mut shares = vec![0.0_f32; 5 * n];
        for (agent, chosen) in moves[..n].iter().enumerate() {
            shares[5 * agent + usize::try_from(*chosen).unwrap()] = 1.0;
        }
        let (mut paid, mut rng) = (vec![0.0; n], Pcg64::from_seed(0));
        other.step(Actions::Continuous(&shares), &mut paid, &mut rng);
        prop_assert_eq!(stepped(&mut env, &moves[..n]), paid);
        prop_assert_eq!(saved(&env), saved(&other));
    }

    /// One or many copies step to the same bits, and so does a restored state.
    #[test]
    fn copies_and_restored_states_are_equal(seed in 0_u64..1 << 60, n in 1_i64..7, steps in 0_usize..40) {
        let given = options(n, 0.5);
        let mut many = make_team_vec(ID, 3, &given).unwrap();
        many.seed_all(&[seed, seed + 1, seed + 2]).unwrap();
        let mut one = make_team_vec(ID, 1, &given).unwrap();
        one.seed_all(&[seed + 1]).unwrap();
        let (mut all, mut single) = (Written::new(&*many), Written::new(&*one));
        all.reset(&mut *many);
        single.reset(&mut *one);
        let mut rng = Pcg64::from_seed(seed);
        let rows = one.spec().n_agents();
        let mut moves = |len: usize| -> Vec<i64> {
            (0..len).map(|_| i64::try_from(rng.next_u64() % 5).unwrap()).collect()
        };
        for _ in 0..steps {
            let chosen = moves(3 * rows);
            all.step(&mut *many, &chosen);
            single.step(&mut *one, &chosen[rows..2 * rows]);
            let part = all.obs.len() / 3;
            prop_assert_eq!(&all.obs[part..2 * part], &*single.obs);
            prop_assert_eq!(&all.final_state[part..2 * part], &*single.final_state);
            prop_assert_eq!(&all.rewards[rows..2 * rows], &*single.rewards);
            prop_assert_eq!(all.ended[1], single.ended[0]);
        }
        let mut other = make_team_vec(ID, 3, &given).unwrap();
        other.set_state(&many.state()).unwrap();
        let mut same = Written::new(&*other);
        for _ in 0..30 {
            let chosen = moves(3 * rows);
            all.step(&mut *many, &chosen);
            same.step(&mut *other, &chosen);
            prop_assert_eq!(&all, &same);
        }
        prop_assert_eq!(many.state(), other.state());
    }
}

#[test]
fn every_listed_env_can_be_made() {
    for id in native_team_env_ids() {
        let envs = make_team_vec(id, 2, &[]).unwrap();
        let spec = envs.spec();
        assert_eq!((spec.id.as_str(), envs.n_envs(), envs.obs_type()), (*id, 2, ObsType::F32));
        assert_eq!((spec.n_agents(), spec.obs_dim(), spec.state_dim()), (3, 18, 54));
    }
}

#[test]
fn episodes_are_cut_at_max_cycles_and_begin_again() {
    let given = vec![("max_cycles".to_owned(), OptionValue::Integer(4))];
    let mut envs = make_team_vec(ID, 2, &given).unwrap();
    let mut out = Written::new(&*envs);
    out.reset(&mut *envs);
    for step in 1..=9 {
        out.step(&mut *envs, &[1, 2, 3, 4, 0, 1]);
        let is_last = step % 4 == 0;
        assert_eq!(
            (out.ended.as_slice(), out.truncated.as_slice()),
            ([is_last; 2].as_slice(), [is_last; 6].as_slice())
        );
        assert!(!out.terminated.contains(&true));
        assert_eq!(out.obs == out.final_obs, !is_last);
        assert_eq!((&out.obs, &out.final_obs), (&out.state, &out.final_state));
    }
}

#[test]
fn a_wrong_action_names_agent_and_env_and_moves_nothing() {
    let mut envs = make_team_vec(ID, 2, &[]).unwrap();
    let mut out = Written::new(&*envs);
    out.reset(&mut *envs);
    let before = envs.state();
    let mut refused = |actions: Actions<'_>| {
        envs.step_all(actions, &mut Written::new(&*make_team_vec(ID, 2, &[]).unwrap()).buffers())
            .unwrap_err()
            .to_string()
    };
    let text = "the action of agent 'agent_2' in env 1 must lie in [0, 4], got 5";
    assert_eq!(refused(Actions::Discrete(&[0, 0, 0, 0, 0, 5])), text);
    let text = "actions must have length 6 like n_envs * n_agents, got 5";
    assert_eq!(refused(Actions::Discrete(&[0; 5])), text);
    let text = "mpe2/simple_spread_v3 takes discrete actions, got continuous";
    assert_eq!(refused(Actions::Continuous(&[0.0; 30])), text);
    assert_eq!(envs.state(), before);
}

#[test]
fn a_share_outside_the_bounds_or_nan_is_refused() {
    let given = vec![("continuous_actions".to_owned(), OptionValue::Flag(true))];
    let mut envs = make_team_vec(ID, 1, &given).unwrap();
    let mut out = Written::new(&*envs);
    out.reset(&mut *envs);
    for wrong in [1.5, -0.1, f32::NAN] {
        let mut shares = [0.5; 15];
        shares[7] = wrong;
        let error = envs.step_all(Actions::Continuous(&shares), &mut out.buffers()).unwrap_err();
        assert!(
            matches!(error, KernelError::AgentAction { ref agent, env: 0, .. } if agent == "agent_1")
        );
    }
}

#[test]
fn a_step_before_the_reset_is_refused() {
    let mut envs = make_team_vec(ID, 1, &[]).unwrap();
    let mut out = Written::new(&*envs);
    let error = envs.step_all(Actions::Discrete(&[0; 3]), &mut out.buffers()).unwrap_err();
    assert!(matches!(error, KernelError::State(_)));
}

#[test]
fn unknown_ids_options_and_numbers_are_refused() {
    let text = |id: &str, given: &[(String, OptionValue)]| {
        make_team_vec(id, 1, given).err().unwrap().to_string()
    };
    assert!(text("mpe2/simple_spread_v2", &[]).contains("did you mean 'mpe2/simple_spread_v3'?"));
    let given = vec![("max_cycle".to_owned(), OptionValue::Integer(3))];
    assert!(text(ID, &given).contains("no option 'max_cycle', did you mean 'max_cycles'?"));
    assert!(text(ID, &options(0, 0.5)).contains("N must be an integer in [1, 1024], got 0"));
    assert!(text(ID, &options(3, 1.5)).contains("local_ratio must lie in [0, 1], got 1.5"));
    assert!(matches!(make_team_vec(ID, 0, &[]), Err(KernelError::Range { name: "n", .. })));
}

/// An env with sizes set at run time, double precision and no critic state.
struct Counter {
    agents: usize,
    count: f64,
}

impl TeamEnv for Counter {
    type Obs = f64;

    fn spec(&self) -> TeamSpec {
        TeamSpec {
            id: "Counter-v0".to_owned(),
            group: "counter".to_owned(),
            agents: (0..self.agents).map(|i| format!("counter_{i}")).collect(),
            obs_low: vec![0.0],
            obs_high: vec![9.0],
            action_space: ActionSpace::Discrete { n: 2 },
            state_low: vec![],
            state_high: vec![],
            physics_low: vec![0.0],
            physics_high: vec![9.0],
            max_episode_steps: 9,
        }
    }

    fn reset(&mut self, _: &mut Pcg64) {
        self.count = 0.0;
    }

    fn step(&mut self, actions: Actions<'_>, rewards: &mut [f64], _: &mut Pcg64) -> bool {
        let Actions::Discrete(chosen) = actions else { return true };
        rewards.fill(0.1);
        if chosen.iter().all(|action| *action == 1) {
            self.count += 1.0;
        }
        self.count >= 2.0
    }

    fn observe(&self, obs: &mut [f64]) {
        obs.fill(self.count);
    }

    fn observe_state(&self, state: &mut [f64]) {
        assert!(state.is_empty());
    }

    fn save(&self, physics: &mut [f64]) {
        physics[0] = self.count;
    }

    fn load(&mut self, physics: &[f64]) {
        self.count = physics[0];
    }
}

#[test]
fn an_env_of_ones_own_is_stepped_in_double_precision() {
    let mut envs = TeamVecEnv::new(2, || Ok(Counter { agents: 2, count: 0.0 })).unwrap();
    assert_eq!(envs.obs_type(), ObsType::F64);
    let (mut obs, mut state) = ([9.0_f64; 4], [0.0_f64; 0]);
    envs.reset_all(&mut TeamView { obs: (&mut obs).into(), state: (&mut state).into() }).unwrap();
    assert_eq!(obs, [0.0; 4]);
    let (mut final_obs, mut none) = ([9.0_f64; 4], [0.0_f64; 0]);
    let (mut rewards, mut flags, mut ended) = ([0.0; 4], [[false; 4]; 2], [false; 2]);
    for step in 1..=2 {
        let [terminated, truncated] = &mut flags;
        let mut out = TeamStepBuffers {
            next: TeamView { obs: (&mut obs).into(), state: (&mut state).into() },
            rewards: &mut rewards,
            terminated,
            truncated,
            last: TeamView { obs: (&mut final_obs).into(), state: (&mut none).into() },
            ended: &mut ended,
        };
        envs.step_all(Actions::Discrete(&[1, 1, 1, 0]), &mut out).unwrap();
        assert_eq!(final_obs, [f64::from(step), f64::from(step), 0.0, 0.0]);
    }
    assert_eq!((ended, obs), ([true, false], [0.0; 4]));
    assert_eq!(flags, [[true, true, false, false], [false; 4]]);
    let mut single = [0.0_f32; 4];
    let error = envs
        .reset_all(&mut TeamView { obs: (&mut single).into(), state: (&mut state).into() })
        .unwrap_err();
    assert!(matches!(error, KernelError::DType { name: "obs", .. }));
}

#[test]
fn states_that_no_env_is_in_are_refused() {
    let mut envs = make_team_vec(ID, 2, &[]).unwrap();
    let good = envs.state();
    let mut wrong = good.clone();
    wrong.physics[12] = 1.5; // a landmark
    assert!(matches!(envs.set_state(&wrong), Err(KernelError::Range { name: "physics", .. })));
    wrong = good.clone();
    wrong.elapsed[1] = 25;
    assert!(matches!(envs.set_state(&wrong), Err(KernelError::Corrupt { name: "elapsed", .. })));
    wrong = good.clone();
    wrong.physics.pop();
    assert!(matches!(envs.set_state(&wrong), Err(KernelError::Shape { .. })));
    assert_eq!(envs.state(), good);
}

#[test]
fn a_spec_without_agents_is_refused() {
    let error = TeamVecEnv::new(1, || Ok(Counter { agents: 0, count: 0.0 })).err().unwrap();
    assert_eq!(error.to_string(), "cannot make the env 'Counter-v0': it must have an agent");
}
