//! The learner against the loss it minimises, implemented again without blocks or vectors.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::mlp;
use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::rng::Pcg64;
use rlox_learner::{
    ActionBuffer, ActionRequest, ActionRows, ActorCritic, Batch, Head, Learner, Learnt, Loss,
    Objective, Optimizer, Plan, Real, StepRule,
};

/// A random rollout with random parameters.
struct Case {
    /// Start of the value network's part in an observation, if it has its own.
    apart: Option<usize>,
    shape: ActorCritic,
    hidden: Vec<usize>,
    parameters: Vec<f64>,
    obs: Vec<f64>,
    discrete: Vec<i64>,
    continuous: Vec<f64>,
    log_probs: Vec<f64>,
    values: Vec<f64>,
    advantages: Vec<f64>,
    returns: Vec<f64>,
}

/// The widths of the critic, which differ from the policy's.
fn reversed(hidden: &[usize]) -> Vec<usize> {
    hidden.iter().rev().copied().collect()
}

impl Case {
    fn new(obs_dim: usize, hidden: &[usize], head: Head, rows: usize, seed: u64) -> Self {
        // ReLU with deviations that depend on the observation, else tanh
        let scaled = matches!(head, Head::ScaledGaussian(_));
        let shape = ActorCritic::new(obs_dim, [hidden, &reversed(hidden)], head).unwrap();
        let shape = if scaled { shape.rectified() } else { shape };
        Self::of(shape, None, hidden, rows, seed)
    }

    /// A policy of several choices at once.
    fn choosing(
        obs_dim: usize,
        hidden: &[usize],
        choices: &[usize],
        rows: usize,
        seed: u64,
    ) -> Self {
        let head = Head::Categorical(choices.iter().sum());
        let shape = ActorCritic::new(obs_dim, [hidden, &reversed(hidden)], head);
        let shape = shape.unwrap().with_choices(choices).unwrap();
        Self::of(shape, None, hidden, rows, seed)
    }

    /// The value network's input follows the policy's.
    fn apart(seen: [usize; 2], hidden: &[usize], head: Head, rows: usize, seed: u64) -> Self {
        let shape = ActorCritic::apart(seen, [hidden, &reversed(hidden)], head).unwrap();
        Self::of(shape, Some(seen[0]), hidden, rows, seed)
    }

    fn of(
        shape: ActorCritic,
        apart: Option<usize>,
        hidden: &[usize],
        rows: usize,
        seed: u64,
    ) -> Self {
        let (obs_dim, head) = (shape.obs_dim(), shape.head());
        let mut rng = Pcg64::from_seed(seed);
        let mut numbers = |n: usize, scale: f64| -> Vec<f64> {
            (0..n).map(|_| rng.uniform(-scale, scale)).collect()
        };
        let (n_discrete, n_continuous) = match head {
            Head::Categorical(_) => (rows * shape.choices().len(), 0),
            Head::Gaussian(width) | Head::ScaledGaussian(width) => (0, rows * width),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small")]
        let action = |(x, &n): (f64, &usize)| (f64::midpoint(x, 1.0) * n as f64) as i64;
        let sizes = shape.choices().iter().cycle();
        Self {
            parameters: numbers(shape.n_parameters(), 0.5),
            obs: numbers(rows * obs_dim, 2.0),
            discrete: numbers(n_discrete, 1.0).into_iter().zip(sizes).map(action).collect(),
            continuous: numbers(n_continuous, 2.0),
            log_probs: numbers(rows, 0.5).into_iter().map(|x| x - 1.0).collect(),
            values: numbers(rows, 1.0),
            advantages: numbers(rows, 2.0),
            returns: numbers(rows, 2.0),
            hidden: hidden.to_vec(),
            apart,
            shape,
        }
    }

    fn rows(&self) -> usize {
        self.log_probs.len()
    }

    fn batch(&self) -> Batch<'_, f64> {
        Batch {
            obs: &self.obs,
            actions: match self.shape.head() {
                Head::Categorical(_) => ActionRows::Discrete(&self.discrete),
                _ => ActionRows::Continuous(&self.continuous),
            },
            masks: None,
            log_probs: &self.log_probs,
            values: &self.values,
            advantages: &self.advantages,
            returns: &self.returns,
            sequences: None,
        }
    }

    /// The loss of the rows `order`, directly from its definition.
    fn loss(&self, parameters: &[f64], order: &[i64], loss: Loss) -> f64 {
        let order: Vec<usize> = order.iter().map(|&row| usize::try_from(row).unwrap()).collect();
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let n = order.len() as f64;
        let mean = order.iter().map(|&r| self.advantages[r]).sum::<f64>() / n;
        let variance = order.iter().map(|&r| (self.advantages[r] - mean).powi(2)).sum::<f64>();
        let deviation = (variance / (n - 1.0)).sqrt() + 1e-8;
        let mut total = 0.0;
        for &r in &order {
            let obs = &self.obs[r * self.shape.obs_dim()..][..self.shape.obs_dim()];
            let advantage = if loss.normalize_advantages {
                (self.advantages[r] - mean) / deviation
            } else {
                self.advantages[r]
            };
            let (log_prob, entropy, value) = self.evaluate(parameters, obs, r);
            let mut error = (value - self.returns[r]).powi(2);
            let objective = match loss.objective {
                Objective::PolicyGradient => advantage * log_prob,
                Objective::Clipped { clip_eps, dual_clip, vf_clip_eps, vf_bound } => {
                    let ratio = (log_prob - self.log_probs[r]).exp();
                    let clipped = ratio.clamp(1.0 - clip_eps, 1.0 + clip_eps);
                    if let Some(bound) = vf_bound {
                        let distance = error.sqrt();
                        let huber = if distance < 1.0 { 0.5 * error } else { distance - 0.5 };
                        error = huber.min(bound);
                    } else if let Some(range) = vf_clip_eps {
                        let held = self.values[r] + (value - self.values[r]).clamp(-range, range);
                        error = error.max((held - self.returns[r]).powi(2));
                    }
                    let smaller = (advantage * ratio).min(advantage * clipped);
                    match dual_clip {
                        Some(bound) if advantage < 0.0 => smaller.max(bound * advantage),
                        _ => smaller,
                    }
                }
            };
            total += -objective + loss.vf_coef * error - loss.ent_coef * entropy;
        }
        total / n
    }

    /// ln π(a|s), H and V of row `r`.
    fn evaluate(&self, parameters: &[f64], obs: &[f64], r: usize) -> (f64, f64, f64) {
        let width = self.shape.head().width();
        let deviations = if let Head::Gaussian(_) = self.shape.head() { width } else { 0 };
        let (log_std, networks) = parameters.split_at(deviations);
        let scaled = matches!(self.shape.head(), Head::ScaledGaussian(_));
        let n_outputs = if scaled { 2 * width } else { width };
        let activation = if scaled { |x: f64| x.max(0.0) } else { f64::tanh };
        let (seen, judged) = self.apart.map_or((obs, obs), |at| obs.split_at(at));
        let (outputs, rest) = mlp(networks, seen, &self.hidden, n_outputs, activation);
        let (value, rest) = mlp(rest, judged, &reversed(&self.hidden), 1, activation);
        assert!(rest.is_empty());
        if let Head::Categorical(_) = self.shape.head() {
            let choices = self.shape.choices();
            let actions = &self.discrete[r * choices.len()..];
            let (mut rest, mut log_prob, mut entropy) = (&outputs[..], 0.0, 0.0);
            for (&n, &action) in choices.iter().zip(actions) {
                let (logits, others) = rest.split_at(n);
                let sum: f64 = logits.iter().map(|z| z.exp()).sum();
                let log_probs: Vec<f64> = logits.iter().map(|z| z - sum.ln()).collect();
                entropy -= log_probs.iter().map(|p| p * p.exp()).sum::<f64>();
                log_prob += log_probs[usize::try_from(action).unwrap()];
                rest = others;
            }
            return (log_prob, entropy, value[0]);
        }
        let tau = std::f64::consts::TAU;
        let mut log_prob = 0.0;
        let mut entropy = 0.0;
        let scales: Vec<f64> = outputs[width..].iter().map(|x| x.tanh()).collect();
        let log_std = if scaled { &scales[..] } else { log_std };
        for (i, (mean, log_std)) in outputs.iter().zip(log_std).enumerate() {
            let z = (self.continuous[r * width + i] - mean) / log_std.exp();
            log_prob += -0.5 * z * z - log_std - 0.5 * tau.ln();
            entropy += log_std + 0.5 * (tau * std::f64::consts::E).ln();
        }
        (log_prob, entropy, value[0])
    }
}

const RULE: StepRule = StepRule {
    optimizer: Optimizer::Adam { betas: [0.9, 0.999], eps: 1e-5 },
    learning_rate: 1e-3,
    max_grad_norm: Some(1e9),
};

fn plan<'a>(order: &'a [i64], loss: Loss) -> Plan<'a> {
    Plan { order, epoch_rows: order.len(), batch_size: order.len(), loss, target_kl: None }
}

/// The gradient that an update computes.
fn gradients(case: &Case, plan: Plan<'_>) -> Vec<f64> {
    let mut learner = Learner::new(case.shape.clone());
    let mut parameters = case.parameters.clone();
    let (mut first, mut second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule: RULE };
    learner.update(learnt, case.batch(), plan).unwrap();
    learner.gradients()
}

fn head() -> impl Strategy<Value = Head> {
    prop_oneof![
        (1..6_usize).prop_map(Head::Categorical),
        (1..4_usize).prop_map(Head::Gaussian),
        (1..4_usize).prop_map(Head::ScaledGaussian),
    ]
}

fn loss() -> impl Strategy<Value = Loss> {
    let bound = || prop_oneof![Just(None), (1.5..3.0).prop_map(Some)];
    let range = || prop_oneof![Just(None), (0.1..1.0).prop_map(Some)];
    let clipped = (0.05..0.4, bound(), range(), range()).prop_map(
        |(clip_eps, dual_clip, vf_clip_eps, vf_bound)| Objective::Clipped {
            clip_eps,
            dual_clip,
            vf_clip_eps,
            vf_bound,
        },
    );
    let objective = prop_oneof![clipped, Just(Objective::PolicyGradient)];
    (objective, 0.0..2.0, 0.0..0.5, any::<bool>()).prop_map(
        |(objective, vf_coef, ent_coef, normalize_advantages)| Loss {
            objective,
            vf_coef,
            ent_coef,
            normalize_advantages,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Central differences of the loss, along random directions as well as single parameters.
    #[test]
    fn gradients_are_the_loss_differentiated(
        obs_dim in 1..6_usize,
        critic_dim in prop::option::of(1..9_usize),
        choices in prop::option::of(prop::collection::vec(1..5_usize, 1..5)),
        hidden in prop::collection::vec(1..21_usize, 0..4),
        head in head(),
        loss in loss(),
        rows in 2..150_usize,
        seed in any::<u64>(),
    ) {
        let case = match (critic_dim, head, choices) {
            (None, Head::Categorical(_), Some(choices)) => {
                Case::choosing(obs_dim, &hidden, &choices, rows, seed)
            }
            (Some(critic_dim), Head::Categorical(_) | Head::Gaussian(_), _) => {
                Case::apart([obs_dim, critic_dim], &hidden, head, rows, seed)
            }
            _ => Case::new(obs_dim, &hidden, head, rows, seed),
        };
        let order: Vec<i64> = (0..rows).rev().map(|row| i64::try_from(row).unwrap()).collect();
        let gradient = gradients(&case, plan(&order, loss));
        let mut rng = Pcg64::from_seed(seed);
        for _ in 0..8 {
            let direction: Vec<f64> =
                gradient.iter().map(|_| rng.uniform(-1.0, 1.0)).collect();
            let along = |step: f64| {
                let moved: Vec<f64> =
                    case.parameters.iter().zip(&direction).map(|(p, d)| p + step * d).collect();
                case.loss(&moved, &order, loss)
            };
            let analytic: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let scale = 1.0 + gradient.iter().map(|g| g.abs()).sum::<f64>();
            // a long step may cross a kink of a ReLU or of a bound that a short one does not
            let numeric = [1e-6, 1e-7, 1e-8].map(|step| (along(step) - along(-step)) / (2.0 * step));
            let agrees = |numeric: &f64| (numeric - analytic).abs() < 2e-6 * scale;
            prop_assert!(numeric.iter().any(agrees), "{numeric:?} {analytic}");
        }
    }
}

fn clipped() -> Loss {
    Loss {
        objective: Objective::Clipped {
            clip_eps: 0.2,
            dual_clip: None,
            vf_clip_eps: None,
            vf_bound: None,
        },
        vf_coef: 0.5,
        ent_coef: 0.01,
        normalize_advantages: true,
    }
}

/// The parameters after an update of `case` in single precision over `epochs` epochs.
fn updated<F: Real>(case: &Case, epochs: usize, batch_size: usize) -> Vec<f64> {
    let convert = |values: &[f64]| -> Vec<F> { values.iter().map(|&x| F::of(x)).collect() };
    let rows = case.rows();
    let order: Vec<i64> =
        (0..epochs * rows).map(|i| i64::try_from((i * 7) % rows).unwrap()).collect();
    let (obs, log_probs, values) =
        (convert(&case.obs), convert(&case.log_probs), convert(&case.values));
    let (advantages, returns) = (convert(&case.advantages), convert(&case.returns));
    let components = convert(&case.continuous);
    let batch = Batch {
        obs: &obs,
        actions: match case.shape.head() {
            Head::Categorical(_) => ActionRows::Discrete(&case.discrete),
            _ => ActionRows::Continuous(&components),
        },
        masks: None,
        log_probs: &log_probs,
        values: &values,
        advantages: &advantages,
        returns: &returns,
        sequences: None,
    };
    let mut learner = Learner::<F>::new(case.shape.clone());
    let mut parameters = convert(&case.parameters);
    let (mut first, mut second) =
        (convert(&vec![0.0; parameters.len()]), convert(&vec![0.0; parameters.len()]));
    let rule = StepRule { max_grad_norm: Some(0.5), ..RULE };
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule };
    let plan = Plan { epoch_rows: rows, batch_size, ..plan(&order, clipped()) };
    let progress = learner.update(learnt, batch, plan).unwrap();
    assert_eq!(progress.steps, epochs * rows.div_ceil(batch_size));
    parameters.into_iter().map(Real::widen).collect()
}

#[test]
fn single_precision_follows_double_precision() {
    for head in [Head::Categorical(3), Head::Gaussian(2), Head::ScaledGaussian(2)] {
        let case = Case::new(5, &[64, 64], head, 300, 1);
        let (single, double) = (updated::<f32>(&case, 2, 100), updated::<f64>(&case, 2, 100));
        let error = single.iter().zip(&double).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-5, "{error}");
    }
}

#[test]
fn a_gradient_alone_is_that_of_an_update() {
    for head in [Head::Categorical(3), Head::ScaledGaussian(2)] {
        let case = Case::new(5, &[64, 64], head, 300, 1);
        let order: Vec<i64> = (0..300).collect();
        let mut learner = Learner::new(case.shape.clone());
        let terms = learner.differentiate(&case.parameters, case.batch(), clipped()).unwrap();
        assert!(terms.entropy != 0.0);
        assert_eq!(learner.gradients(), gradients(&case, plan(&order, clipped())));
    }
}

#[test]
fn the_approximate_kl_ends_an_update_before_its_step() {
    let case = Case::new(3, &[8], Head::Categorical(2), 64, 2);
    let order: Vec<i64> = (0..64).chain(0..64).collect();
    let mut learner = Learner::new(case.shape.clone());
    let mut parameters = case.parameters.clone();
    let (mut first, mut second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 3, rule: RULE };
    let plan =
        Plan { epoch_rows: 64, batch_size: 32, target_kl: Some(1e-9), ..plan(&order, clipped()) };
    let progress = learner.update(learnt, case.batch(), plan).unwrap();
    assert_eq!(progress.steps, 0);
    assert!(progress.terms.approx_kl > 1e-9);
    assert_eq!(parameters, case.parameters);
}

#[test]
fn rows_and_actions_that_do_not_exist_are_refused() {
    let mut case = Case::new(3, &[8], Head::Categorical(2), 4, 2);
    let update = |case: &Case, order: &[i64]| {
        let mut parameters = case.parameters.clone();
        let (mut first, mut second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
        let (first, second) = (&mut first[..], &mut second[..]);
        let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule: RULE };
        Learner::new(case.shape.clone())
            .update(learnt, case.batch(), plan(order, clipped()))
            .map(|_| ())
    };
    let index = |place, value| KernelError::Index { name: "order", place, value, len: 4 };
    assert_eq!(update(&case, &[0, 4]), Err(index(1, 4)));
    assert_eq!(update(&case, &[-1, 0]), Err(index(0, -1)));
    assert!(matches!(update(&case, &[]), Err(KernelError::Range { name: "epoch_rows", .. })));
    case.discrete[3] = 2;
    let action = KernelError::Action { index: Some(3), n_actions: 2, value: 2 };
    assert_eq!(update(&case, &[0, 1]), Err(action));
}

#[test]
fn one_choice_is_a_categorical_policy() {
    let plain = Case::new(3, &[8], Head::Categorical(4), 64, 2);
    let one = Case::choosing(3, &[8], &[4], 64, 2);
    let order: Vec<i64> = (0..64).collect();
    assert_eq!(
        gradients(&plain, plan(&order, clipped())),
        gradients(&one, plan(&order, clipped()))
    );
}

#[test]
fn each_choice_has_its_own_actions() {
    let mut case = Case::choosing(3, &[8], &[2, 3], 4, 2);
    case.discrete[4] = 2; // the first choice of the third row, which has two actions
    let mut learner = Learner::new(case.shape.clone());
    let error = learner.differentiate(&case.parameters, case.batch(), clipped()).unwrap_err();
    let expected = KernelError::Action { index: Some(4), n_actions: 2, value: 2 };
    assert_eq!(error, expected);
    let shape = ActorCritic::new(3, [&[8]; 2], Head::Categorical(5)).unwrap();
    assert!(matches!(shape.clone().with_choices(&[2, 2]), Err(KernelError::Shape { .. })));
    assert!(matches!(shape.with_choices(&[5, 0]), Err(KernelError::Range { .. })));
}

#[test]
fn impossible_actions_of_a_choice_are_never_drawn() {
    let case = Case::choosing(3, &[8], &[2, 3], 50, 2);
    let narrow = |values: &[f64]| -> Vec<f32> { values.iter().map(|&x| f32::of(x)).collect() };
    let (parameters, obs) = (narrow(&case.parameters), narrow(&case.obs));
    let masks: Vec<u8> = [0, 1, 1, 0, 1].repeat(50);
    let (mut actions, mut log_probs) = (vec![0; 100], vec![0.0; 50]);
    let mut learner = Learner::new(case.shape.clone());
    let mut request = ActionRequest {
        obs: &obs,
        masks: Some(&masks),
        actions: ActionBuffer::Discrete(&mut actions),
        log_probs: &mut log_probs,
    };
    let mut rng = Pcg64::from_seed(1);
    learner.act(&parameters, Some(&mut rng), &mut request).unwrap();
    let (seconds, _) = actions.as_chunks::<2>();
    assert!(seconds.iter().all(|&[first, second]| first == 1 && second != 1));
    assert!(seconds.iter().any(|&[_, second]| second == 0));
    assert!(seconds.iter().any(|&[_, second]| second == 2));
    assert!(log_probs.iter().all(|&log_prob| log_prob < 0.0));
}
