//! Drawing from a full buffer, next to a bare gather of the same rows at slots drawn before.

#![allow(missing_docs, reason = "criterion's macros")]
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, Stream, Transitions, UniformReplay, Values, ValuesMut,
};

const CAPACITY: usize = 100_000;

/// The arrays of `n` transitions, which a bare gather reads from and writes to as well.
struct Arrays {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Arrays {
    fn new(n: usize, obs: usize, action: usize) -> Self {
        Self {
            obs: vec![0.5; n * obs],
            next_obs: vec![0.5; n * obs],
            actions: vec![0.5; n * action],
            rewards: vec![0.5; n],
            terminated: vec![false; n],
            truncated: vec![false; n],
        }
    }

    fn gather(&mut self, from: &Self, slots: &[usize], obs: usize, action: usize) {
        for (row, &slot) in slots.iter().enumerate() {
            let (to, at) = (row * obs..(row + 1) * obs, slot * obs..(slot + 1) * obs);
            self.obs[to.clone()].copy_from_slice(&from.obs[at.clone()]);
            self.next_obs[to].copy_from_slice(&from.next_obs[at]);
            let (to, at) = (row * action..(row + 1) * action, slot * action..(slot + 1) * action);
            self.actions[to].copy_from_slice(&from.actions[at]);
            self.rewards[row] = from.rewards[slot];
            self.terminated[row] = from.terminated[slot];
            self.truncated[row] = from.truncated[slot];
        }
    }
}

fn sample(c: &mut Criterion) {
    for (name, obs, action) in [("CartPole", 4, 1), ("MuJoCo", 17, 6)] {
        let field = |len| Field { dtype: DType::F32, len };
        let (obs_field, action_field) = (field(obs), field(action));
        let layout = Layout {
            capacity: CAPACITY,
            obs: obs_field,
            action: action_field,
            n_step: NStep::ONE,
            frames: 0,
        };
        let mut buffer = UniformReplay::new(layout, Stream::from_seed(0)).unwrap();
        let from = Arrays::new(CAPACITY, obs, action);
        buffer
            .push(
                &Transitions {
                    obs: Values::of::<f32>(&from.obs),
                    actions: Values::of::<f32>(&from.actions),
                    rewards: &from.rewards,
                    terminated: &from.terminated,
                    truncated: &from.truncated,
                    next_obs: Some(Values::of::<f32>(&from.next_obs)),
                },
                (),
            )
            .unwrap();
        let mut group = c.benchmark_group(name);
        for n in [32, 256, 1024] {
            let mut to = Arrays::new(n, obs, action);
            group.bench_function(BenchmarkId::new("sample", n), |b| {
                b.iter(|| {
                    let mut batch = Batch {
                        obs: ValuesMut::of::<f32>(&mut to.obs),
                        next_obs: Some(ValuesMut::of::<f32>(&mut to.next_obs)),
                        actions: ValuesMut::of::<f32>(&mut to.actions),
                        rewards: &mut to.rewards,
                        terminated: &mut to.terminated,
                        truncated: &mut to.truncated,
                        discounts: None,
                    };
                    buffer.sample(None, black_box(&mut batch), &mut ()).unwrap();
                });
            });
            // As many slots as are drawn in a while, so that the cache knows none of them.
            let mut rng = rlox_kernels::rng::Pcg64::from_seed(0);
            #[expect(clippy::cast_possible_truncation, reason = "less than the capacity")]
            let slots: Vec<usize> =
                (0..n * 500).map(|_| (rng.next_u64() % CAPACITY as u64) as usize).collect();
            let mut turns = slots.chunks_exact(n).cycle();
            group.bench_function(BenchmarkId::new("bare gather", n), |b| {
                b.iter(|| {
                    to.gather(black_box(&from), turns.next().unwrap_or_default(), obs, action);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, sample);
criterion_main!(benches);
