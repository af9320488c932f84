//! Time of one step of a vector env, episode ends included.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rlox_kernels::env::{ActionSpace, Actions, EnvSpec, StepBuffers, make_vec, native_env_ids};
use rlox_kernels::rng::Pcg64;

/// One action for each env, uniformly from the action space.
enum Batch {
    Discrete(Vec<i64>),
    Continuous(Vec<f32>),
}

impl Batch {
    #[expect(clippy::cast_possible_truncation, reason = "a random number of either type will do")]
    fn random(spec: &EnvSpec, n_envs: usize, rng: &mut Pcg64) -> Self {
        match &spec.action_space {
            ActionSpace::Discrete { n } => Self::Discrete(
                (0..n_envs).map(|_| (rng.next_u64() >> 1).cast_signed() % *n).collect(),
            ),
            ActionSpace::Continuous { low, high } => {
                let bounds = low.iter().zip(high).cycle().take(n_envs * low.len());
                let draw = |(&low, &high): (&f32, &f32)| {
                    rng.uniform(f64::from(low), f64::from(high)) as f32
                };
                Self::Continuous(bounds.map(draw).collect())
            }
        }
    }

    fn actions(&self) -> Actions<'_> {
        match self {
            Self::Discrete(actions) => Actions::Discrete(actions),
            Self::Continuous(actions) => Actions::Continuous(actions),
        }
    }
}

fn step(c: &mut Criterion) {
    for id in native_env_ids() {
        let mut group = c.benchmark_group(format!("step_all/{id}"));
        for n_envs in [1, 8, 64, 256, 1024] {
            let Ok(mut env) = make_vec(id, n_envs) else { continue };
            let len = n_envs * env.spec().obs_dim();
            let (mut obs, mut final_obs) = (vec![0.0_f32; len], vec![0.0_f32; len]);
            let mut rewards = vec![0.0; n_envs];
            let (mut terminated, mut truncated) = (vec![false; n_envs], vec![false; n_envs]);
            let mut rng = Pcg64::from_seed(0);
            // Many different batches of actions: one repeated batch would be learnt by the branch predictor.
            let batches: Vec<Batch> =
                (0..256).map(|_| Batch::random(env.spec(), n_envs, &mut rng)).collect();
            let mut batches = batches.iter().map(Batch::actions).cycle();
            let _ = env.reset_all((&mut obs).into());
            let mut out = StepBuffers {
                obs: (&mut obs).into(),
                rewards: &mut rewards,
                terminated: &mut terminated,
                truncated: &mut truncated,
                final_obs: (&mut final_obs).into(),
            };
            group.throughput(Throughput::Elements(n_envs as u64));
            group.bench_function(n_envs.to_string(), |b| {
                b.iter(|| batches.next().map(|actions| env.step_all(actions, &mut out)));
            });
        }
    }
}

criterion_group!(benches, step);
criterion_main!(benches);
