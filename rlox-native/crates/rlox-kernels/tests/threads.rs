//! Kernels give the same bits on any number of threads.

use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use rlox_kernels::env::{Actions, ObsMut, ObsType, StepBuffers, make_vec, native_env_ids};
use rlox_kernels::gae::{Discount, EnvMajor, Estimates, TimeMajor, gae_env_major, gae_time_major};
use rlox_kernels::rng::Pcg64;
use rlox_kernels::threads::{LEAST_WORK, set_least_work, set_limit};

/// The settings are the process's.
static SETTINGS: Mutex<()> = Mutex::new(());

/// What `kernel` returns on 1, 2, 3 and 8 threads, with however little work.
fn on_threads<T>(kernel: impl Fn() -> T) -> Vec<T> {
    let _guard = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    set_least_work(0);
    let results = [1, 2, 3, 8].map(|threads| {
        set_limit(Some(threads)).expect("a possible number");
        kernel()
    });
    set_least_work(LEAST_WORK);
    results.into()
}

fn uniform(rng: &mut Pcg64, n: usize) -> Vec<f32> {
    #[expect(clippy::cast_precision_loss, reason = "any numbers will do")]
    let draw = |_| (rng.next_u64() >> 40) as f32 / 8_388_608.0 - 1.0;
    (0..n).map(draw).collect()
}

fn flags(rng: &mut Pcg64, n: usize) -> Vec<bool> {
    (0..n).map(|_| rng.next_u64().is_multiple_of(16)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn gae_in_both_layouts(n_envs in 1_usize..900, n_steps in 0_usize..40, seed: u64) {
        let (rng, n) = (&mut Pcg64::from_seed(seed), n_envs * n_steps);
        let [rewards, values, final_values] = [(); 3].map(|()| uniform(rng, n));
        let [terminated, truncated] = [(); 2].map(|()| flags(rng, n));
        let last_values = &uniform(rng, n_envs)[..];
        let (rewards, values) = (&rewards[..], &values[..]);
        let discount = Discount::new(0.99, 0.95).expect("factors in range");
        let results = on_threads(|| {
            let mut arrays = [(); 4].map(|()| vec![0.0; n]);
            let [advantages, returns, env_advantages, env_returns] = &mut arrays;
            let rollout = TimeMajor {
                rewards,
                values,
                terminated: &terminated,
                truncated: &truncated,
                final_values: &final_values,
                last_values,
            };
            let output = &mut Estimates { advantages, returns };
            gae_time_major(&rollout, discount, output).expect("lengths that fit");
            let trajectories = EnvMajor { rewards, values, dones: &terminated, last_values };
            let output = &mut Estimates { advantages: env_advantages, returns: env_returns };
            gae_env_major(&trajectories, n_steps, discount, output).expect("lengths that fit");
            arrays.map(|array| bits(&array))
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }

    #[test]
    fn steps_of_every_env(n_envs in 100_usize..700, env in 0..native_env_ids().len(), seed: u64) {
        let id = native_env_ids()[env];
        let results = on_threads(|| {
            let rng = &mut Pcg64::from_seed(seed);
            let mut envs = make_vec(id, n_envs).expect("a native env");
            let seeds: Vec<_> = (0..n_envs as u64).map(|env| seed.wrapping_add(env)).collect();
            envs.seed_all(&seeds).expect("a seed for each");
            let dim = envs.spec().obs_dim();
            assert_eq!(envs.obs_type(), ObsType::F32);
            let mut obs = vec![0.0_f32; n_envs * dim];
            let mut final_obs = obs.clone();
            envs.reset_all(ObsMut::from(&mut obs)).expect("room for all");
            let mut seen = bits(&obs);
            let [mut terminated, mut truncated] = [(); 2].map(|()| vec![false; n_envs]);
            let mut rewards = vec![0.0; n_envs];
            for _ in 0..30 {
                let continuous = uniform(rng, n_envs);
                let discrete: Vec<_> = continuous.iter().map(|&x| i64::from(x > 0.0)).collect();
                let is_continuous = id.contains("Continuous") || id.contains("Pendulum");
                let actions = if is_continuous {
                    Actions::Continuous(&continuous)
                } else {
                    Actions::Discrete(&discrete)
                };
                let mut out = StepBuffers {
                    obs: ObsMut::from(&mut obs),
                    rewards: &mut rewards,
                    terminated: &mut terminated,
                    truncated: &mut truncated,
                    final_obs: ObsMut::from(&mut final_obs),
                };
                envs.step_all(actions, &mut out).expect("actions of the space");
                seen.extend(bits(&obs));
                seen.extend(bits(&final_obs));
            }
            (seen, envs.state())
        });
        for result in &results {
            prop_assert!(result == &results[0]);
        }
    }
}
