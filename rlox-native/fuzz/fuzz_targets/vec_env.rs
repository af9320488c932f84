//! Any states and actions of vector envs: no panic, and refused ones change nothing.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rlox_kernels::env::{
    ActionSpace, Actions, StepBuffers, VecEnvState, VectorEnv, make_vec, native_env_ids,
};

#[derive(Debug, Arbitrary)]
struct Input {
    env: u8,
    n: u8,
    calls: Vec<Call>,
}

#[derive(Debug, Arbitrary)]
enum Call {
    Reset {
        seed: u64,
    },
    /// Actions, mostly one per env and of the right kind.
    Step {
        actions: Vec<(u8, f32)>,
        other_kind: bool,
        too_long: bool,
    },
    /// The envs' own state with changed parts.
    Restore {
        physics: Vec<(u8, f64)>,
        elapsed: Vec<(u8, u32)>,
        words: Vec<(u8, [u64; 4])>,
        too_long: bool,
        started: bool,
    },
}

fuzz_target!(|input: Input| {
    let ids = native_env_ids();
    let id = ids[usize::from(input.env) % ids.len()];
    let n = usize::from(input.n % 5);
    let Ok(mut envs) = make_vec(id, n) else { return };
    let seeds: Vec<u64> = (0..n as u64).collect();
    envs.seed_all(&seeds).unwrap();
    for call in input.calls {
        match call {
            Call::Reset { seed } => {
                envs.seed_all(&vec![seed; n]).unwrap();
                envs.reset_all((&mut vec![0.0_f32; n * envs.spec().obs_dim()]).into()).unwrap();
            }
            Call::Step { actions, other_kind, too_long } => {
                step(&mut *envs, &actions, other_kind, too_long);
            }
            Call::Restore { physics, elapsed, words, too_long, started } => {
                let before = envs.state();
                let mut state = VecEnvState { started, ..before.clone() };
                set(&mut state.physics, &physics);
                set(&mut state.elapsed, &elapsed);
                set(&mut state.rng, &words);
                if too_long {
                    state.elapsed.push(0);
                }
                let restored = envs.set_state(&state).is_ok();
                assert!(!restored || !too_long);
                let after = envs.state();
                // A flag in the physics may be any number but is exported as 0 or 1.
                let other =
                    |state: &VecEnvState| (state.elapsed.clone(), state.rng.clone(), state.started);
                assert!(!restored || other(&after) == other(&state));
                assert!(restored || after == before);
            }
        }
        let state = envs.state();
        assert!(state.elapsed.iter().all(|&elapsed| elapsed < envs.spec().max_episode_steps));
        envs.set_state(&state).unwrap();
    }
});

fn step(envs: &mut dyn VectorEnv, given: &[(u8, f32)], other_kind: bool, too_long: bool) {
    let (n, spec, before) = (envs.n_envs(), envs.spec().clone(), envs.state());
    let all = |k: usize| given.get(k).copied().unwrap_or_default();
    let width = match &spec.action_space {
        ActionSpace::Discrete { .. } => 1,
        ActionSpace::Continuous { low, .. } => low.len(),
    };
    let rows = n + usize::from(too_long);
    let integers: Vec<i64> = (0..rows).map(|k| i64::from(all(k).0)).collect();
    let reals: Vec<f32> = (0..rows * width).map(|k| all(k).1).collect();
    let discrete = matches!(spec.action_space, ActionSpace::Discrete { .. }) != other_kind;
    let actions = if discrete { Actions::Discrete(&integers) } else { Actions::Continuous(&reals) };
    let (mut obs, mut final_obs) =
        (vec![f32::NAN; n * spec.obs_dim()], vec![f32::NAN; n * spec.obs_dim()]);
    let (mut rewards, mut terminated, mut truncated) =
        (vec![f64::NAN; n], vec![true; n], vec![true; n]);
    let mut out = StepBuffers {
        obs: (&mut obs).into(),
        rewards: &mut rewards,
        terminated: &mut terminated,
        truncated: &mut truncated,
        final_obs: (&mut final_obs).into(),
    };
    if envs.step_all(actions, &mut out).is_ok() {
        assert!(before.started && !other_kind && !too_long);
        let ends = terminated.iter().zip(&truncated).map(|(a, b)| *a || *b);
        let state = envs.state();
        assert!(ends.zip(&state.elapsed).all(|(end, &elapsed)| end == (elapsed == 0)));
    } else {
        assert_eq!(envs.state(), before);
        assert!(obs.iter().chain(&final_obs).all(|x| x.is_nan()));
        assert!(rewards.iter().all(|x| x.is_nan()) && terminated.iter().all(|&x| x));
    }
}

/// Changes numbers of a state at given places.
fn set<T: Copy>(numbers: &mut [T], changes: &[(u8, T)]) {
    for &(place, number) in changes {
        let place = usize::from(place) % numbers.len();
        numbers[place] = number;
    }
}
