//! Time of one step of a vector env, episode ends included.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rlox_kernels::env::{Actions, StepBuffers, make_vec, native_env_ids};
use rlox_kernels::rng::Pcg64;

fn step(c: &mut Criterion) {
    for id in native_env_ids() {
        let mut group = c.benchmark_group(format!("step_all/{id}"));
        for n_envs in [1, 8, 64, 256, 1024] {
            let Ok(mut env) = make_vec(id, n_envs) else { continue };
            let len = n_envs * env.spec().obs_dim();
            let (mut obs, mut final_obs) = (vec![0.0; len], vec![0.0; len]);
            let mut rewards = vec![0.0; n_envs];
            let (mut terminated, mut truncated) = (vec![false; n_envs], vec![false; n_envs]);
            let mut rng = Pcg64::from_seed(0);
            // Many different batches of actions: one repeated batch would be learnt by the branch predictor.
            let actions: Vec<Vec<i64>> = (0..256)
                .map(|_| (0..n_envs).map(|_| i64::from(rng.next_u64() >> 63 != 0)).collect())
                .collect();
            let mut batches = actions.iter().cycle();
            let mut out = StepBuffers {
                obs: &mut obs,
                rewards: &mut rewards,
                terminated: &mut terminated,
                truncated: &mut truncated,
                final_obs: &mut final_obs,
            };
            let _ = env.reset_all(out.obs);
            group.throughput(Throughput::Elements(n_envs as u64));
            group.bench_function(n_envs.to_string(), |b| {
                b.iter(|| {
                    env.step_all(Actions::Discrete(batches.next().map_or(&[], |v| v)), &mut out)
                });
            });
        }
    }
}

criterion_group!(benches, step);
criterion_main!(benches);
