//! Errors of the off-policy learners; Python compares their results with torch's autograd.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ops::Range;

use rlox_kernels::KernelError;
use rlox_learner::off_policy::{
    Actor, ContinuousLearner, ElementLoss, ImplicitLearner, ImplicitLosses, ImplicitParts,
    PolicyStep, QLearner, QNetwork, QStep, Transitions, ValueStep,
};
use rlox_learner::{Learnt, Optimizer, Real, StepRule};

const RULE: StepRule = StepRule {
    optimizer: Optimizer::Adam { betas: [0.9, 0.999], eps: 1e-8 },
    learning_rate: 1e-3,
    max_grad_norm: None,
};

fn batch(values: &[f32], rows: usize, obs_dim: usize) -> Transitions<'_> {
    Transitions {
        obs: &values[..rows * obs_dim],
        next_obs: &values[..rows * obs_dim],
        rewards: &values[..rows],
        discounts: &values[..rows],
        weights: None,
    }
}

/// Steps a network with 4 inputs and 2 actions; the result, and whether parameters changed.
fn step_values(rows: usize, obs_dim: usize, actions: &[i64]) -> (Result<f64, KernelError>, bool) {
    let shape = QNetwork::plain(4, &[8], 2, false).unwrap();
    let mut parameters = vec![0.1; shape.n_parameters()];
    let before = parameters.clone();
    let (mut first, mut second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule: RULE };
    let values = [0.5; 64];
    let mut errors = vec![0.0; actions.len()];
    let step = QStep { target: &before, double: true, loss: ElementLoss::Huber };
    let batch = batch(&values, rows, obs_dim);
    let terms = QLearner::new(shape).step(learnt, batch, actions, step, &mut errors);
    (terms.map(|terms| terms.loss), parameters != before)
}

#[test]
fn a_step_moves_the_parameters() {
    let (loss, moved) = step_values(3, 4, &[0, 1, 1]);
    assert!(loss.unwrap() > 0.0);
    assert!(moved);
}

#[test]
fn what_does_not_fit_is_refused_before_any_change() {
    let action = KernelError::Action { index: Some(2), n_actions: 2, value: 2 };
    assert_eq!(step_values(3, 4, &[0, 1, 2]), (Err(action), false));
    let action = KernelError::Action { index: Some(0), n_actions: 2, value: -1 };
    assert_eq!(step_values(1, 4, &[-1]), (Err(action), false));
    for (rows, obs_dim, actions) in [(3, 3, 3), (3, 4, 2), (0, 4, 0)] {
        let (result, moved) = step_values(rows, obs_dim, &vec![0; actions]);
        assert!(result.is_err() && !moved, "{rows} {obs_dim} {actions}");
    }
}

#[test]
fn sizes_out_of_range_are_refused() {
    assert!(QNetwork::plain(4, &[0], 2, false).is_err());
    assert!(QNetwork::dueling(4, 1 << 15, 2, false).is_err());
    let actor = Actor::SquashedGaussian { log_std_bounds: [-20.0, 2.0] };
    assert!(ContinuousLearner::new(3, 0, [&[8]; 2], actor, 2, false).is_err());
    assert!(ContinuousLearner::new(3, 1, [&[8]; 2], actor, 0, false).is_err());
}

#[test]
fn a_gaussian_policy_needs_noise_and_a_deterministic_one_does_not() {
    for (actor, fine) in [
        (Actor::Deterministic, true),
        (Actor::SquashedGaussian { log_std_bounds: [-20.0, 2.0] }, false),
    ] {
        let mut learner = ContinuousLearner::new(3, 1, [&[8]; 2], actor, 2, false).unwrap();
        let policy = vec![0.1; learner.n_policy_parameters()];
        let mut critics = vec![0.1; learner.n_critic_parameters()];
        let target = critics.clone();
        let (mut first, mut second) = (vec![0.0; critics.len()], vec![0.0; critics.len()]);
        let (first, second) = (&mut first[..], &mut second[..]);
        let learnt = Learnt { parameters: &mut critics, first, second, step: 0, rule: RULE };
        let (values, mut errors) = ([0.5; 16], [0.0; 10]);
        let (target, policy, noise) = (&target[..], &policy[..], &[][..]);
        let step = ValueStep { target, policy, noise, alpha: 0.1, scale: 0.5, penalty_weight: 0.0 };
        let (batch, actions) = (batch(&values, 5, 3), &values[..5]);
        let result = learner.step_values(learnt, batch, actions, step, &mut errors);
        assert_eq!(result.is_ok(), fine);
        assert_eq!(critics != target, fine);
        // Critics with equal parameters have equal errors.
        assert_eq!(errors[..5], errors[5..]);
    }
}

#[test]
fn actions_come_row_by_row_whatever_the_number_of_rows() {
    const MANY: usize = 300; // more than a block
    let shape = QNetwork::plain(3, &[20], 4, false).unwrap();
    let parameters = numbers(shape.n_parameters(), 1);
    let obs = numbers(MANY * 3, 2);
    let mut learner = QLearner::new(shape);
    let mut actions = vec![-1; MANY];
    learner.act(&parameters, &obs, &mut actions).unwrap();
    assert!(actions.iter().any(|&action| action != actions[0]));
    let mut policy = ContinuousLearner::new(3, 2, [&[20]; 2], GAUSSIAN, 2, false).unwrap();
    let weights = numbers(policy.n_policy_parameters(), 3);
    let noise = numbers(MANY * 2, 4);
    let mut chosen = vec![9.0; MANY * 2];
    policy.act(&weights, &obs, &noise, &mut chosen).unwrap();
    for row in 0..MANY {
        let of_row = &obs[row * 3..][..3];
        let (mut action, mut both) = ([-1], [9.0; 2]);
        learner.act(&parameters, of_row, &mut action).unwrap();
        assert_eq!(action[0], actions[row], "{row}");
        policy.act(&weights, of_row, &noise[row * 2..][..2], &mut both).unwrap();
        // Sums of few rows have another order.
        let same = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(both.iter().zip(&chosen[row * 2..][..2]).all(same), "{row}");
    }
    assert!(learner.act(&parameters[1..], &obs, &mut actions).is_err());
    assert!(learner.act(&parameters, &obs[1..], &mut actions).is_err());
    assert!(policy.act(&weights, &obs, &[], &mut chosen).is_err());
    assert!(policy.act(&weights, &obs, &noise, &mut chosen[1..]).is_err());
    assert!(policy.act(&weights, &obs[1..], &noise, &mut chosen).is_err());
    assert!(policy.act(&weights[1..], &obs, &noise, &mut chosen).is_err());
}

/// The gradient of the mean loss of `rows` with 3 inputs, for a network of the given size.
fn value_gradients(hidden: &[usize], n_actions: u8, rows: Range<usize>) -> Vec<f32> {
    const ALL: usize = 300;
    let shape = QNetwork::plain(3, hidden, n_actions.into(), false).unwrap();
    let mut parameters = numbers(shape.n_parameters(), 1);
    let (obs, next_obs, rewards) = (numbers(3 * ALL, 2), numbers(3 * ALL, 3), numbers(ALL, 4));
    let actions: Vec<i64> =
        (0..).map(|row| row * row % 7 % i64::from(n_actions)).take(ALL).collect();
    let n_parameters = parameters.len();
    let (mut first, mut second) = (vec![0.0; n_parameters], vec![0.0; n_parameters]);
    let batch = Transitions {
        obs: &obs[3 * rows.start..3 * rows.end],
        next_obs: &next_obs[3 * rows.start..3 * rows.end],
        rewards: &rewards[rows.clone()],
        discounts: &vec![0.9; rows.len()],
        weights: None,
    };
    let mut learner = QLearner::new(shape);
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule: RULE };
    let target = numbers(n_parameters, 5);
    let step = QStep { target: &target, double: true, loss: ElementLoss::Huber };
    let mut errors = vec![0.0; rows.len()];
    learner.step(learnt, batch, &actions[rows], step, &mut errors).unwrap();
    learner.gradients()
}

#[test]
fn a_gradient_by_actions_is_the_mean_of_the_rows() {
    // Enough rows per action for gates, and single rows, which are too few for them.
    for (hidden, n_actions, rows) in
        [(vec![70, 70], 2, 0..200), (vec![20, 100], 3, 7..300), (vec![64, 65], 5, 0..256)]
    {
        let together = value_gradients(&hidden, n_actions, rows.clone());
        let mut mean = vec![0.0; together.len()];
        for row in rows.clone() {
            let alone = value_gradients(&hidden, n_actions, row..row + 1);
            mean.iter_mut().zip(alone).for_each(|(sum, g)| *sum += g);
        }
        let n = f32::from(u16::try_from(rows.len()).unwrap());
        for sum in &mut mean {
            *sum /= n;
        }
        let error = together.iter().zip(&mean).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-6, "{hidden:?} {error}");
        assert!(mean.iter().any(|g| g.abs() > 1e-3));
    }
}

const GAUSSIAN: Actor = Actor::SquashedGaussian { log_std_bounds: [-20.0, 2.0] };
const ROWS: usize = 70;

/// Pseudo-random numbers in [-0.5, 0.5).
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = rlox_kernels::rng::Pcg64::from_seed(seed);
    (0..n).map(|_| f32::of(rng.uniform(-0.5, 0.5))).collect()
}

/// Steps a policy of 3 observed numbers and 1 action once; returns its parameters and the loss.
fn step_policy(
    learner: &mut ContinuousLearner,
    policy: &[f32],
    critics: &[f32],
) -> (Vec<f32>, f64) {
    let mut policy = policy.to_vec();
    let (mut first, mut second) = (vec![0.0; policy.len()], vec![0.0; policy.len()]);
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut policy, first, second, step: 0, rule: RULE };
    let (obs, noise) = (numbers(3 * ROWS, 1), numbers(ROWS, 2));
    let step = PolicyStep { critics, obs: &obs, noise: &noise, alpha: 0.1, cloning: None };
    let terms = learner.step_policy(learnt, step).unwrap();
    (policy, terms.loss)
}

#[test]
fn a_policy_learns_only_from_the_smallest_value() {
    let new = |n_critics| {
        ContinuousLearner::new(3, 1, [&[20, 20]; 2], GAUSSIAN, n_critics, false).unwrap()
    };
    let (mut one, mut two) = (new(1), new(2));
    let policy = numbers(one.n_policy_parameters(), 3);
    let critic = numbers(one.n_critic_parameters(), 4);
    // The same critic twice, layer by layer, except for the last bias, which is at the end.
    let sizes = [4 * 20, 20 * 20, 20, 20, 20, 1];
    let mut rest = critic.as_slice();
    let mut both = Vec::new();
    for size in sizes {
        let part;
        (part, rest) = rest.split_at(size);
        both.extend_from_slice(part);
        both.extend_from_slice(part);
    }
    let alone = step_policy(&mut one, &policy, &critic);
    for larger in [1, 2] {
        let mut critics = both.clone();
        let last = critics.len() - larger;
        critics[last] += 100.0;
        assert_eq!(step_policy(&mut two, &policy, &critics), alone);
    }
    // If both are equal, each gets half of the gradient.
    let (shared, _) = step_policy(&mut two, &policy, &both);
    assert!(shared.iter().zip(&alone.0).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn what_a_learner_did_before_does_not_matter() {
    let new = || ContinuousLearner::new(3, 1, [&[20, 20]; 2], GAUSSIAN, 2, false).unwrap();
    let mut used = new();
    let mut policy = numbers(used.n_policy_parameters(), 3);
    let mut critics = numbers(used.n_critic_parameters(), 4);
    // Changes one weight after the other, in each layer, and restores it.
    for at in [0, 3 * 20 + 20 + 399, policy.len() - 3] {
        for value in [policy[at] + 0.1, policy[at]] {
            policy[at] = value;
            let again = step_policy(&mut used, &policy, &critics);
            assert_eq!(again, step_policy(&mut new(), &policy, &critics), "policy {at}");
        }
    }
    for at in [0, 2 * 80 + 799, 2 * 80 + 800] {
        critics[at] += 0.1;
        let again = step_policy(&mut used, &policy, &critics);
        assert_eq!(again, step_policy(&mut new(), &policy, &critics), "critics {at}");
    }
}

#[test]
fn a_critic_that_is_no_number_is_not_hidden_by_another() {
    let mut learner = ContinuousLearner::new(3, 1, [&[20]; 2], GAUSSIAN, 2, false).unwrap();
    let policy = numbers(learner.n_policy_parameters(), 3);
    for lost in [1, 2] {
        let mut critics = numbers(learner.n_critic_parameters(), 4);
        let last = critics.len() - lost;
        critics[last] = f32::NAN;
        let (_, loss) = step_policy(&mut learner, &policy, &critics);
        assert!(loss.is_nan(), "critic {lost}");
    }
}

#[test]
fn implicit_q_learning_refuses_what_does_not_fit() {
    assert!(ImplicitLearner::new(3, 1, [&[0]; 2], 2, [-5.0, 2.0], false).is_err());
    let fine = ImplicitLosses { expectile: 0.7, temperature: 3.0, max_weight: 100.0 };
    let with = |change: fn(&mut ImplicitLosses)| {
        let mut losses = fine;
        change(&mut losses);
        losses
    };
    for (losses, rows, n_actions, is_fine) in [
        (fine, 70, 70, true),
        (fine, 70, 69, false),
        (fine, 0, 0, false),
        (with(|losses| losses.expectile = 1.5), 70, 70, false),
        (with(|losses| losses.temperature = f64::NAN), 70, 70, false),
        (with(|losses| losses.max_weight = -1.0), 70, 70, false),
    ] {
        let mut learner =
            ImplicitLearner::new(3, 1, [&[20, 20]; 2], 2, [-5.0, 2.0], false).unwrap();
        let mut parameters = learner.n_parameters().map(|n| numbers(n, 1));
        let before = parameters.clone();
        let mut first = parameters.clone().map(|values| vec![0.0; values.len()]);
        let mut second = first.clone();
        let target = parameters[2].clone();
        let mut parts = parameters.iter_mut().zip(&mut first).zip(&mut second).map(
            |((parameters, first), second)| Learnt {
                parameters,
                first,
                second,
                step: 0,
                rule: RULE,
            },
        );
        let mut next = || parts.next().unwrap();
        let parts = ImplicitParts { value: next(), policy: next(), critics: next() };
        let values = numbers(300, 2);
        let batch = batch(&values, rows, 3);
        let result = learner.step(parts, &target, batch, &values[..n_actions], losses);
        assert_eq!(result.is_ok(), is_fine);
        for (parameters, before) in parameters.iter().zip(&before) {
            assert_eq!(parameters != before, is_fine);
        }
    }
}
