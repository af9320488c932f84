//! Policies with a memory against another implementation of an LSTM, step by step.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::mlp;
use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::rng::Pcg64;
use rlox_learner::{
    ActionBuffer, ActionRequest, ActionRows, ActorCritic, Batch, Head, Learner, Learnt, Loss,
    Objective, Optimizer, Plan, Sequences, StepRule,
};

/// A random rollout with random parameters.
struct Case {
    shape: ActorCritic,
    units: usize,
    hidden: Vec<usize>,
    length: usize,
    parameters: Vec<f64>,
    obs: Vec<f64>,
    starts: Vec<u8>,
    states: Vec<f64>,
    discrete: Vec<i64>,
    continuous: Vec<f64>,
    advantages: Vec<f64>,
    returns: Vec<f64>,
}

impl Case {
    fn new(
        [obs_dim, units]: [usize; 2],
        hidden: &[usize],
        head: Head,
        [length, count]: [usize; 2],
        seed: u64,
    ) -> Self {
        let shape = ActorCritic::recurrent(obs_dim, units, [hidden; 2], head).unwrap();
        let rows = length * count;
        let mut rng = Pcg64::from_seed(seed);
        let mut numbers = |n: usize, scale: f64| -> Vec<f64> {
            (0..n).map(|_| rng.uniform(-scale, scale)).collect()
        };
        let (width, discrete) = (head.width(), matches!(head, Head::Categorical(_)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small")]
        let action = |x: f64| (f64::midpoint(x, 1.0) * width as f64) as i64;
        Self {
            units,
            hidden: hidden.to_vec(),
            length,
            parameters: numbers(shape.n_parameters(), 0.6),
            obs: numbers(rows * obs_dim, 2.0),
            starts: numbers(rows, 1.0).into_iter().map(|x| u8::from(x > 0.7)).collect(),
            states: numbers(count * shape.state_size(), 1.0),
            discrete: numbers(if discrete { rows } else { 0 }, 1.0)
                .into_iter()
                .map(action)
                .collect(),
            continuous: numbers(if discrete { 0 } else { rows * width }, 2.0),
            advantages: numbers(rows, 2.0),
            returns: numbers(rows, 2.0),
            shape,
        }
    }

    fn rows(&self) -> usize {
        self.starts.len()
    }

    fn batch(&self) -> Batch<'_, f64> {
        let Self { length, starts, states, .. } = self;
        Batch {
            obs: &self.obs,
            actions: match self.shape.head() {
                Head::Categorical(_) => ActionRows::Discrete(&self.discrete),
                _ => ActionRows::Continuous(&self.continuous),
            },
            masks: None,
            log_probs: &self.advantages,
            values: &self.returns,
            advantages: &self.advantages,
            returns: &self.returns,
            sequences: Some(Sequences { length: *length, starts, states }),
        }
    }

    /// The outputs of both networks at every row.
    fn outputs(&self, parameters: &[f64]) -> Vec<[Vec<f64>; 2]> {
        let (count, obs_dim) = (self.rows() / self.length, self.shape.obs_dim());
        let width = self.shape.head().width();
        let deviations = if let Head::Gaussian(_) = self.shape.head() { width } else { 0 };
        let own = 4 * self.units * (obs_dim + self.units + 2);
        let (memories, networks) = parameters[deviations..].split_at(2 * own);
        let mut states = self.states.clone();
        (0..self.rows())
            .map(|row| {
                let state = &mut states[(row % count) * 4 * self.units..][..4 * self.units];
                if self.starts[row] != 0 {
                    state.fill(0.0);
                }
                let obs = &self.obs[row * obs_dim..][..obs_dim];
                for (memory, state) in memories.chunks(own).zip(state.chunks_mut(2 * self.units)) {
                    step(memory, obs, state);
                }
                let (seen, judged) = (&state[..self.units], &state[2 * self.units..][..self.units]);
                let (outputs, rest) = mlp(networks, seen, &self.hidden, width, f64::tanh);
                let (values, rest) = mlp(rest, judged, &self.hidden, 1, f64::tanh);
                assert!(rest.is_empty());
                [outputs, values]
            })
            .collect()
    }

    /// ln π and H of the action of a row.
    fn evaluate(&self, parameters: &[f64], outputs: &[f64], row: usize) -> (f64, f64) {
        if let Head::Categorical(_) = self.shape.head() {
            let sum: f64 = outputs.iter().map(|z| z.exp()).sum();
            let log_probs: Vec<f64> = outputs.iter().map(|z| z - sum.ln()).collect();
            let entropy = -log_probs.iter().map(|p| p * p.exp()).sum::<f64>();
            return (log_probs[usize::try_from(self.discrete[row]).unwrap()], entropy);
        }
        let tau = std::f64::consts::TAU;
        let actions = &self.continuous[row * outputs.len()..];
        let terms = outputs.iter().zip(actions).zip(parameters).map(|((mean, action), log_std)| {
            let z = (action - mean) / log_std.exp();
            (-0.5 * z * z - log_std - 0.5 * tau.ln(), log_std + 0.5 * (tau.ln() + 1.0))
        });
        terms.fold((0.0, 0.0), |(p, h), (q, i)| (p + q, h + i))
    }

    /// The mean of -A ln π + c (V - G)² - d H.
    fn loss(&self, parameters: &[f64]) -> f64 {
        let terms =
            self.outputs(parameters).into_iter().enumerate().map(|(row, [outputs, value])| {
                let (log_prob, entropy) = self.evaluate(parameters, &outputs, row);
                -self.advantages[row] * log_prob
                    + LOSS.vf_coef * (value[0] - self.returns[row]).powi(2)
                    - LOSS.ent_coef * entropy
            });
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let rows = self.rows() as f64;
        terms.sum::<f64>() / rows
    }
}

/// Updates `state`, the hidden and the cell state, by an observation; `memory` holds the parameters
/// of `torch.nn.LSTM`.
fn step(memory: &[f64], obs: &[f64], state: &mut [f64]) {
    let units = state.len() / 2;
    let (of_inputs, rest) = memory.split_at(4 * units * obs.len());
    let (of_hidden, biases) = rest.split_at(4 * units * units);
    let (hidden, cells) = state.split_at_mut(units);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let gates: Vec<f64> = (0..4 * units)
        .map(|gate| {
            dot(&of_inputs[gate * obs.len()..][..obs.len()], obs)
                + dot(&of_hidden[gate * units..][..units], hidden)
                + biases[gate]
                + biases[4 * units + gate]
        })
        .collect();
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    for k in 0..units {
        let [input, forget, cell, output] = [0, 1, 2, 3].map(|gate| gates[gate * units + k]);
        cells[k] = logistic(forget) * cells[k] + logistic(input) * cell.tanh();
        hidden[k] = logistic(output) * cells[k].tanh();
    }
}

const LOSS: Loss = Loss {
    objective: Objective::PolicyGradient,
    vf_coef: 0.7,
    ent_coef: 0.2,
    normalize_advantages: false,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Central differences of the loss, along random directions; some cases have several blocks of rows.
    #[test]
    fn gradients_are_the_loss_differentiated(
        obs_dim in 1..6_usize,
        units in prop_oneof![1..21_usize, Just(64)],
        hidden in prop::collection::vec(1..21_usize, 0..3),
        head in prop_oneof![(1..6_usize).prop_map(Head::Categorical), (1..4_usize).prop_map(Head::Gaussian)],
        length in 1..30_usize,
        count in 1..20_usize,
        seed in any::<u64>(),
    ) {
        let case = Case::new([obs_dim, units], &hidden, head, [length, count], seed);
        let order: Vec<i64> = (0..).take(count).collect();
        let gradient = update(&case, case.batch(), &order).unwrap();
        let mut rng = Pcg64::from_seed(seed);
        for _ in 0..4 {
            let direction: Vec<f64> = gradient.iter().map(|_| rng.uniform(-1.0, 1.0)).collect();
            let along = |step: f64| {
                let pairs = case.parameters.iter().zip(&direction);
                case.loss(&pairs.map(|(p, d)| p + step * d).collect::<Vec<_>>())
            };
            let analytic: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let scale = 1.0 + gradient.iter().map(|g| g.abs()).sum::<f64>();
            let numeric = (along(1e-5) - along(-1e-5)) / 2e-5;
            prop_assert!((numeric - analytic).abs() < 1e-6 * scale, "{numeric} {analytic}");
        }
    }
}

fn update(case: &Case, batch: Batch<'_, f64>, order: &[i64]) -> Result<Vec<f64>, KernelError> {
    let mut learner = Learner::new(case.shape.clone());
    let mut parameters = case.parameters.clone();
    let (mut first, mut second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
    let optimizer = Optimizer::Adam { betas: [0.9, 0.999], eps: 1e-5 };
    let rule = StepRule { optimizer, learning_rate: 1e-3, max_grad_norm: None };
    let (epoch_rows, batch_size) = (order.len(), order.len());
    let plan = Plan { order, epoch_rows, batch_size, loss: LOSS, target_kl: None };
    let (first, second) = (&mut first[..], &mut second[..]);
    let learnt = Learnt { parameters: &mut parameters, first, second, step: 0, rule };
    learner.update(learnt, batch, plan)?;
    Ok(learner.gradients())
}

/// In any order, and weighted by each one's frequency.
#[test]
fn minibatches_are_of_sequences() {
    let case = Case::new([3, 9], &[8], Head::Gaussian(2), [7, 4], 1);
    let update = |order: &[i64]| update(&case, case.batch(), order);
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(&update(&[0, 1, 2, 3]).unwrap(), &update(&[2, 0, 3, 1]).unwrap()));
    let [one, three] = [&[1][..], &[3]].map(|order| update(order).unwrap());
    let means: Vec<f64> = one.iter().zip(&three).map(|(a, b)| f64::midpoint(*a, *b)).collect();
    assert!(close(&means, &update(&[3, 1]).unwrap()));
    assert!(!close(&one, &three));
    let index = KernelError::Index { name: "order", place: 1, value: 4, len: 4 };
    assert_eq!(update(&[0, 4]), Err(index));
}

#[test]
fn what_is_no_sequence_is_refused() {
    let case = Case::new([3, 9], &[8], Head::Gaussian(2), [6, 2], 1);
    let refused = |sequences: Option<Sequences<'_, f64>>| {
        let batch = Batch { sequences, ..case.batch() };
        update(&case, batch, &[0]).unwrap_err().to_string()
    };
    let sequences = case.batch().sequences.unwrap();
    for length in [0, 5] {
        let error = refused(Some(Sequences { length, ..sequences }));
        assert!(error.starts_with("sequence_length, a divisor"), "{error}");
    }
    let error = refused(None);
    assert!(error.starts_with("initial_state must have"), "{error}");
    let error = refused(Some(Sequences { starts: &case.starts[1..], ..sequences }));
    assert!(error.starts_with("episode_starts must have"), "{error}");
}

/// Step by step in single precision: values and probabilities of the most probable actions.
#[test]
#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
fn acting_remembers_as_learning_does() {
    let (length, count) = (5, 300); // more than a block of rows
    let mut case = Case::new([3, 20], &[8], Head::Categorical(3), [length, count], 2);
    case.starts.fill(0);
    let outputs = case.outputs(&case.parameters);
    let single = |numbers: &[f64]| -> Vec<f32> { numbers.iter().map(|&x| x as f32).collect() };
    let (parameters, obs, mut states) =
        (single(&case.parameters), single(&case.obs), single(&case.states));
    let mut learner = Learner::<f32>::new(case.shape.clone());
    for (t, obs) in obs.chunks(3 * count).enumerate() {
        learner.remember(&parameters, obs, &mut states).unwrap();
        let (mut values, mut log_probs) = (vec![0.0; count], vec![0.0; count]);
        let mut actions = vec![0; count];
        learner.values(&parameters, &states, &mut values).unwrap();
        let mut request = ActionRequest {
            obs: &states,
            masks: None,
            actions: ActionBuffer::Discrete(&mut actions),
            log_probs: &mut log_probs,
        };
        learner.act(&parameters, None, &mut request).unwrap();
        for (j, [logits, value]) in outputs[t * count..][..count].iter().enumerate() {
            assert!((f64::from(values[j]) - value[0]).abs() < 1e-5);
            let sum: f64 = logits.iter().map(|z| z.exp()).sum();
            let chosen = logits[usize::try_from(actions[j]).unwrap()];
            assert!(logits.iter().all(|&z| z <= chosen + 1e-5));
            assert!((f64::from(log_probs[j]) - (chosen - sum.ln())).abs() < 1e-5);
        }
    }
    let size = case.shape.state_size();
    let error = learner.remember(&parameters, &obs[..6], &mut states[..size]).unwrap_err();
    assert!(error.to_string().starts_with("state must have"), "{error}");
}
