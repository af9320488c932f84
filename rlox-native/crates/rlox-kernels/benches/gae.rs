//! Times of the three layouts at the sizes of on-policy training.

use criterion::{Criterion, criterion_group, criterion_main};
use rlox_kernels::gae::{
    Discount, EnvMajor, Estimates, Float, TimeMajor, gae_env_major, gae_time_major,
};
use std::hint::black_box;

/// `(n_envs, n_steps)`.
const SIZES: [(usize, usize); 4] = [(1, 2048), (8, 128), (64, 2048), (256, 2048)];

fn bench<F: Float>(c: &mut Criterion, dtype: &str) {
    for (n_envs, n_steps) in SIZES {
        let len = n_envs * n_steps;
        let values = vec![F::from_f64(0.5); len];
        let ends: Vec<u8> = (0..len).map(|i| u8::from(i % 191 == 0)).collect();
        let (mut advantages, mut returns) = (values.clone(), values.clone());
        let discount = Discount::new(0.99, 0.95).unwrap_or_else(|_| unreachable!());
        let mut output = Estimates { advantages: &mut advantages, returns: &mut returns };

        let input = EnvMajor {
            rewards: &values,
            values: &values,
            dones: &ends,
            last_values: &values[..n_envs],
        };
        c.bench_function(&format!("gae_env_major/{dtype}/{n_envs}x{n_steps}"), |b| {
            b.iter(|| gae_env_major(black_box(&input), n_steps, discount, &mut output));
        });

        let input = TimeMajor {
            rewards: &values,
            values: &values,
            terminated: &ends,
            truncated: &ends,
            final_values: &values,
            last_values: &values[..n_envs],
        };
        c.bench_function(&format!("gae_time_major/{dtype}/{n_envs}x{n_steps}"), |b| {
            b.iter(|| gae_time_major(black_box(&input), discount, &mut output));
        });
    }
}

fn gae(c: &mut Criterion) {
    bench::<f32>(c, "f32");
    bench::<f64>(c, "f64");
}

criterion_group!(benches, gae);
criterion_main!(benches);
