//! Gradient steps give the same bits on any number of threads.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Mutex, PoisonError};

use rlox_kernels::rng::Pcg64;
use rlox_kernels::threads::{LEAST_WORK, set_least_work, set_limit};
use rlox_learner::off_policy::{
    Actor, ContinuousLearner, ElementLoss, ImplicitLearner, ImplicitLosses, ImplicitParts,
    PolicyStep, QLearner, QNetwork, QStep, Transitions, ValueStep,
};
use rlox_learner::{
    ActionRows, ActorCritic, Batch, Head, Learner, Learnt, Loss, Objective, Optimizer, Plan,
    Sequences, StepRule,
};

const RULE: StepRule = StepRule {
    optimizer: Optimizer::Adam { betas: [0.9, 0.999], eps: 1e-8 },
    learning_rate: 1e-2,
    max_grad_norm: Some(0.5),
};

/// The settings belong to the process.
static SETTINGS: Mutex<()> = Mutex::new(());

/// Checks that `steps` returns the same on 1, 2, 3 and 8 threads, even with little work.
fn check(steps: impl Fn() -> Vec<f32>) {
    let _guard = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    set_least_work(0);
    let results = [1, 2, 3, 8].map(|threads| {
        set_limit(Some(threads)).unwrap();
        steps().into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    set_least_work(LEAST_WORK);
    assert!(results.iter().all(|result| *result == results[0]));
}

#[expect(clippy::cast_possible_truncation, reason = "any numbers will do")]
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Pcg64::from_seed(seed);
    (0..n).map(|_| rng.uniform(-0.5, 0.5) as f32).collect()
}

/// Minibatches of 300 and 100 rows, in several blocks, the last not full; without a memory and with
/// one of various sizes.
#[test]
fn updates_of_an_actor_critic() {
    const ROWS: usize = 400;
    const LENGTH: usize = 20;
    let heads = [Head::Categorical(3), Head::Gaussian(2)];
    for (head, units) in heads.into_iter().flat_map(|head| [(head, None), (head, Some(70))]) {
        check(|| {
            let hidden = [70, 37];
            let shape = match units {
                None => ActorCritic::new(5, [&hidden; 2], head).unwrap(),
                Some(units) => ActorCritic::recurrent(5, units, [&hidden; 2], head).unwrap(),
            };
            let states = numbers(shape.state_size() * ROWS / LENGTH, 7);
            let starts: Vec<u8> = (0..ROWS).map(|row| u8::from(row % 13 == 0)).collect();
            let sequences = units.map(|_| {
                let (length, starts, states) = (LENGTH, &starts[..], &states[..]);
                Sequences { length, starts, states }
            });
            let n = shape.n_parameters();
            let mut parameters = numbers(n, 0);
            let (mut first, mut second) = (vec![0.0; n], vec![0.0; n]);
            let (first, second) = (&mut first[..], &mut second[..]);
            let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule: RULE };
            let [log_probs, values, advantages, returns] = [1, 2, 3, 4].map(|k| numbers(ROWS, k));
            let (obs, components) = (numbers(5 * ROWS, 5), numbers(2 * ROWS, 6));
            let indices: Vec<_> = (0..3).cycle().take(ROWS).collect();
            let actions = match head {
                Head::Categorical(_) => ActionRows::Discrete(&indices),
                _ => ActionRows::Continuous(&components),
            };
            let batch = Batch {
                obs: &obs,
                actions,
                masks: None,
                log_probs: &log_probs,
                values: &values,
                advantages: &advantages,
                returns: &returns,
                sequences,
            };
            let steps = if units.is_some() { LENGTH } else { 1 };
            let n = i64::try_from(ROWS / steps).unwrap();
            let order: Vec<_> = (0..n).rev().chain(0..n).collect();
            let objective = Objective::Clipped {
                clip_eps: 0.2,
                dual_clip: None,
                vf_clip_eps: None,
                vf_bound: None,
            };
            let plan = Plan {
                order: &order,
                epoch_rows: ROWS / steps,
                batch_size: 300 / steps,
                loss: Loss { objective, vf_coef: 0.5, ent_coef: 0.01, normalize_advantages: true },
                target_kl: None,
            };
            Learner::new(shape).update(learnt, batch, plan).unwrap();
            parameters
        });
    }
}

/// Random transitions of three observed numbers.
struct Drawn {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    rewards: Vec<f32>,
    discounts: Vec<f32>,
}

impl Drawn {
    fn new(rows: usize, seed: u64) -> Self {
        Self {
            obs: numbers(3 * rows, seed),
            next_obs: numbers(3 * rows, seed + 1),
            rewards: numbers(rows, seed + 2),
            discounts: vec![0.99; rows],
        }
    }

    fn batch(&self) -> Transitions<'_> {
        let Self { obs, next_obs, rewards, discounts } = self;
        Transitions { obs, next_obs, rewards, discounts, weights: None }
    }
}

/// Three critics, with and without a gated layer.
#[test]
fn steps_of_critics_and_policy() {
    const ROWS: usize = 270;
    for (hidden, actor) in [
        ([70, 70], Actor::SquashedGaussian { log_std_bounds: [-20.0, 2.0] }),
        ([40, 30], Actor::Deterministic),
    ] {
        check(|| {
            let mut learner = ContinuousLearner::new(3, 2, [&hidden; 2], actor, 3, false).unwrap();
            let mut policy = numbers(learner.n_policy_parameters(), 1);
            let mut critics = numbers(learner.n_critic_parameters(), 2);
            let mut target = numbers(critics.len(), 3);
            let drawn = Drawn::new(ROWS, 4);
            let (actions, noise) = (numbers(2 * ROWS, 7), numbers(2 * ROWS, 8));
            let mut errors = vec![0.0; 3 * ROWS];
            for _ in 0..3 {
                let (mut first, mut second) = (vec![0.0; critics.len()], vec![0.0; critics.len()]);
                let (first, second) = (&mut first[..], &mut second[..]);
                let learnt =
                    Learnt { parameters: &mut critics, first, second, step: 0, rule: RULE };
                let (alpha, scale, penalty_weight) = (0.1, 0.5, 0.0);
                let noise = &noise[..];
                let step = ValueStep {
                    target: &target,
                    policy: &policy,
                    noise,
                    alpha,
                    scale,
                    penalty_weight,
                };
                learner.step_values(learnt, drawn.batch(), &actions, step, &mut errors).unwrap();
                let (mut first, mut second) = (vec![0.0; policy.len()], vec![0.0; policy.len()]);
                let (first, second) = (&mut first[..], &mut second[..]);
                let learnt = Learnt { parameters: &mut policy, first, second, step: 0, rule: RULE };
                let alpha = if actor == Actor::Deterministic { 0.0 } else { 0.1 };
                let (critics, obs) = (&critics[..], &drawn.obs[..]);
                let step = PolicyStep { critics, obs, noise, alpha, cloning: None };
                learner.step_policy(learnt, step).unwrap();
                learner.follow(&mut target, critics, 0.3, ROWS).unwrap();
            }
            [policy, critics, target, errors].concat()
        });
    }
}

/// With and without the two streams of a dueling network, which run in parallel.
#[test]
fn steps_of_action_values() {
    const ROWS: usize = 270;
    let shapes = [QNetwork::plain(3, &[70, 70], 2, false), QNetwork::dueling(3, 70, 2, false)];
    for shape in shapes.map(Result::unwrap) {
        check(|| {
            let mut parameters = numbers(shape.n_parameters(), 1);
            let target = numbers(parameters.len(), 2);
            let (mut first, mut second) = (target.clone(), vec![0.0; target.len()]);
            let drawn = Drawn::new(ROWS, 3);
            let actions: Vec<_> = (0..2).cycle().take(ROWS).collect();
            let mut errors = vec![0.0; ROWS];
            let mut learner = QLearner::new(shape.clone());
            for step in 0..3 {
                let (parameters, first, second) = (&mut parameters, &mut first, &mut second);
                let learnt = Learnt { parameters, first, second, step, rule: RULE };
                let step = QStep { target: &target, double: true, loss: ElementLoss::Huber };
                learner.step(learnt, drawn.batch(), &actions, step, &mut errors).unwrap();
            }
            [parameters, errors].concat()
        });
    }
}

/// A state value, a policy with deviations as parameters, and three critics.
#[test]
fn steps_of_implicit_q_learning() {
    const ROWS: usize = 270;
    check(|| {
        let mut learner =
            ImplicitLearner::new(3, 2, [&[70, 70]; 2], 3, [-5.0, 2.0], false).unwrap();
        let [n_value, n_policy, n_critics] = learner.n_parameters();
        let target = numbers(n_critics, 1);
        let mut parts: Vec<_> = [n_value, n_policy, n_critics]
            .into_iter()
            .zip(2..)
            .map(|(n, seed)| [numbers(n, seed), vec![0.0; n], vec![0.0; n]])
            .collect();
        let drawn = Drawn::new(ROWS, 5);
        let actions = numbers(2 * ROWS, 8);
        for step in 0..3 {
            let mut learnt = parts.iter_mut().map(|[parameters, first, second]| Learnt {
                parameters,
                first,
                second,
                step,
                rule: RULE,
            });
            let mut next = || learnt.next().unwrap();
            let parts = ImplicitParts { value: next(), policy: next(), critics: next() };
            let losses = ImplicitLosses { expectile: 0.7, temperature: 3.0, max_weight: 100.0 };
            learner.step(parts, &target, drawn.batch(), &actions, losses).unwrap();
        }
        parts.concat().concat()
    });
}
