//! Time of one gradient step: the sizes of PPO on classic control, and wider networks.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rlox_kernels::rng::Pcg64;
use rlox_learner::{
    ActionRows, ActorCritic, Batch, Head, Learner, Learnt, Loss, Objective, Optimizer, Plan,
    StepRule,
};

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "small numbers, and a benchmark that fails fails"
)]
fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    let mut rng = Pcg64::from_seed(0);
    for (rows, width) in [(256, 64), (256, 256), (2048, 64)] {
        let shape = ActorCritic::new(4, &[width, width], Head::Categorical(2)).unwrap();
        let n = shape.n_parameters();
        let mut numbers =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.uniform(-0.2, 0.2) as f32).collect() };
        let (mut parameters, mut first, mut second) = (numbers(n), vec![0.0; n], vec![0.0; n]);
        let (obs, log_probs, values) = (numbers(rows * 4), numbers(rows), numbers(rows));
        let (advantages, returns) = (numbers(rows), numbers(rows));
        let actions: Vec<i64> = (0..rows as i64).map(|i| i % 2).collect();
        let order: Vec<i64> = (0..rows as i64).collect();
        let batch = Batch {
            obs: &obs,
            actions: ActionRows::Discrete(&actions),
            masks: None,
            log_probs: &log_probs,
            values: &values,
            advantages: &advantages,
            returns: &returns,
            sequences: None,
        };
        let plan = Plan {
            order: &order,
            epoch_rows: rows,
            batch_size: rows,
            loss: Loss {
                objective: Objective::Clipped {
                    clip_eps: 0.2,
                    dual_clip: None,
                    vf_clip_eps: None,
                    vf_bound: None,
                },
                vf_coef: 0.5,
                ent_coef: 0.01,
                normalize_advantages: true,
            },
            target_kl: None,
        };
        let mut learner = Learner::new(shape);
        let optimizer = Optimizer::Adam { betas: [0.9, 0.999], eps: 1e-5 };
        let rule = StepRule { optimizer, learning_rate: 1e-9, max_grad_norm: Some(0.5) };
        // Multiply-adds of both networks: forward and twice backward, less the inputs' gradient.
        let macs = 2 * (3 * width * width + 2 * 4 * width) + 3 * 3 * width;
        group.throughput(Throughput::Elements(2 * (rows * macs) as u64));
        group.bench_function(format!("{rows}x{width}x{width}"), |b| {
            b.iter(|| {
                let (first, second) = (&mut first[..], &mut second[..]);
                let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule };
                black_box(learner.update(learnt, batch, plan).unwrap())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, update);
criterion_main!(benches);
