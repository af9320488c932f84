//! Any calls on the in-memory buffers: no panic, and drawn transitions have been pushed.
//!
//! Transitions differ only in their rewards; observations are all 0.5.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rlox_kernels::replay::{
    Batch, DType, Field, Goals, Hindsight, HindsightReplay, Importance, Layout, NStep,
    PrioritizedReplay, PriorityState, Selection, Sequences, Stream, Transitions, UniformReplay,
    Values, ValuesMut,
};

#[derive(Debug, Arbitrary)]
struct Input {
    capacity: u8,
    obs: u8,
    n_envs: u8,
    n_step: u8,
    gamma: f64,
    goal: [u8; 4],
    frames: u8,
    calls: Vec<Call>,
}

#[derive(Debug, Arbitrary)]
enum Call {
    /// Rewards, one per transition, and whether ends and next observations are given too.
    Push {
        rewards: Vec<f32>,
        ends: u64,
        next_obs: bool,
        too_long: bool,
    },
    Sample {
        n: u8,
        seed: u64,
        next_obs: bool,
    },
    Sequences {
        n: u8,
        seq_len: u8,
        through: bool,
    },
    Update {
        indices: Vec<u64>,
        priorities: Vec<f64>,
    },
    /// A saved state with changed parts.
    Restore {
        position: Option<u16>,
        unknown: u64,
        words: Option<[u64; 6]>,
        scaled: Option<f64>,
        beta: f64,
    },
    Cut,
}

fuzz_target!(|input: Input| {
    let Input { capacity, obs, n_envs, n_step, gamma, goal, frames, calls } = input;
    let n_step = NStep { n_envs: n_envs.into(), n_step: n_step.into(), gamma };
    let field = |len| Field { dtype: DType::F32, len };
    let layout = Layout {
        capacity: capacity.into(),
        obs: field(obs.into()),
        action: field(1),
        n_step,
        frames: frames.into(),
    };
    let Ok(mut uniform) = UniformReplay::new(layout, Stream::from_seed(0)) else { return };
    let Ok(mut prioritized) = PrioritizedReplay::new(layout, 0.6, 0.4, Stream::from_seed(0)) else {
        return;
    };
    let [len, achieved, desired, selection] = goal.map(usize::from);
    let selection = [Selection::Future, Selection::Final, Selection::Episode][selection % 3];
    let goals = Goals { len, achieved, desired };
    let hindsight = Hindsight { goals, selection, n_sampled_goal: 4, threshold: Some(0.0) };
    let mut hindsight = HindsightReplay::new(layout, hindsight, Stream::from_seed(0)).ok();
    let obs = usize::from(obs);
    for call in calls {
        match call {
            Call::Push { rewards, ends, next_obs, too_long } => {
                let n = rewards.len() + usize::from(too_long);
                let values = vec![0.5; n * obs];
                let ends: Vec<bool> = (0..n).map(|k| ends >> (k % 64) & 1 == 1).collect();
                let rows = Transitions {
                    obs: Values::of::<f32>(&values),
                    actions: Values::of::<f32>(&rewards),
                    rewards: &rewards,
                    terminated: &ends,
                    truncated: &vec![false; n],
                    next_obs: next_obs.then_some(Values::of::<f32>(&values)),
                };
                let stored = uniform.push(&rows, ()).is_ok();
                assert_eq!(stored, prioritized.push(&rows, None).is_ok());
                if let Some(hindsight) = &mut hindsight {
                    assert_eq!(hindsight.push(&rows, ()).is_ok(), stored && (next_obs || n == 0));
                }
                assert!(!stored || (!too_long && rewards.iter().all(|reward| reward.is_finite())));
            }
            Call::Sample { n, seed, next_obs } => {
                let mut arrays = Arrays::new(n.into(), obs);
                let drawn = uniform.sample(Some(seed), &mut arrays.batch(next_obs), &mut ());
                arrays.check(drawn.is_ok(), next_obs);
                let (mut weights, mut indices) = (vec![0.0; n.into()], vec![0; n.into()]);
                let mut importance = Importance { weights: &mut weights, indices: &mut indices };
                let mut arrays = Arrays::new(n.into(), obs);
                let drawn =
                    prioritized.sample(Some(seed), &mut arrays.batch(next_obs), &mut importance);
                arrays.check(drawn.is_ok(), next_obs);
                if let Some(hindsight) = &mut hindsight {
                    let mut arrays = Arrays::new(n.into(), obs);
                    let mut relabelled = vec![false; n.into()];
                    let drawn =
                        hindsight.sample(Some(seed), &mut arrays.batch(next_obs), &mut relabelled);
                    arrays.check(drawn.is_ok(), next_obs);
                    assert!(drawn.is_err() || n == 0 || next_obs);
                }
                assert!(weights.iter().all(|weight| (0.0..=1.0).contains(weight)));
            }
            Call::Sequences { n, seq_len, through } => {
                let rows = usize::from(n) * usize::from(seq_len);
                let mut arrays = Arrays::new(rows, obs);
                let (mut is_first, mut mask) = (vec![true; rows], vec![false; rows]);
                let mut out = Sequences {
                    batch: arrays.batch(false),
                    is_first: &mut is_first,
                    mask: &mut mask,
                };
                let drawn = uniform.sample_sequences(None, seq_len.into(), through, &mut out);
                arrays.check(drawn.is_ok(), false);
                assert!(drawn.is_err() || !through || mask.iter().all(|&there| there));
            }
            Call::Update { indices, priorities } => {
                let _ = prioritized.update_priorities(&indices, &priorities);
            }
            Call::Restore { position, unknown, words, scaled, beta } => {
                let ring = prioritized.ring();
                let n = ring.len();
                let mut arrays = Arrays::new(n, obs);
                let mut known = vec![false; n];
                ring.export(&mut arrays.batch(true), &mut known).unwrap();
                let position = position.map_or(ring.position(), usize::from);
                for (k, known) in known.iter_mut().enumerate() {
                    *known &= unknown >> (k % 64) & 1 == 0;
                }
                let words = words.unwrap_or(prioritized.stream().to_words());
                let Ok(stream) = Stream::from_words(words) else { continue };
                let mut priorities = vec![0.0; n];
                prioritized.export_priorities(&mut priorities).unwrap();
                if let (Some(scaled), Some(first)) = (scaled, priorities.first_mut()) {
                    *first = scaled;
                }
                let state = PriorityState { scaled: &priorities, max_priority: 1.0, beta };
                let rows = arrays.transitions();
                let restored =
                    uniform.restore(&rows, &known, position, stream.clone(), &()).is_ok();
                let again =
                    prioritized.restore(&rows, &known, position, stream.clone(), &state).is_ok();
                assert!(restored || !again);
                if let Some(hindsight) = &mut hindsight {
                    let taken = hindsight.restore(&rows, &known, position, stream, &()).is_ok();
                    assert_eq!(taken, restored && known.iter().all(|&known| known));
                }
            }
            Call::Cut => {
                if let Some(hindsight) = &mut hindsight {
                    hindsight.truncate_episodes();
                }
            }
        }
    }
});

/// The arrays of a batch, full of NaN.
struct Arrays {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
    discounts: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Arrays {
    fn new(n: usize, obs: usize) -> Self {
        Self {
            obs: vec![f32::NAN; n * obs],
            next_obs: vec![f32::NAN; n * obs],
            actions: vec![f32::NAN; n],
            rewards: vec![f32::NAN; n],
            discounts: vec![0.0; n],
            terminated: vec![true; n],
            truncated: vec![true; n],
        }
    }

    fn batch(&mut self, next_obs: bool) -> Batch<'_> {
        Batch {
            obs: ValuesMut::of::<f32>(&mut self.obs),
            next_obs: next_obs.then_some(ValuesMut::of::<f32>(&mut self.next_obs)),
            actions: ValuesMut::of::<f32>(&mut self.actions),
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            discounts: Some(&mut self.discounts),
        }
    }

    fn transitions(&self) -> Transitions<'_> {
        Transitions {
            obs: Values::of::<f32>(&self.obs),
            actions: Values::of::<f32>(&self.actions),
            rewards: &self.rewards,
            terminated: &self.terminated,
            truncated: &self.truncated,
            next_obs: Some(Values::of::<f32>(&self.next_obs)),
        }
    }

    /// Checks that all was written, or nothing.
    fn check(&self, drawn: bool, next_obs: bool) {
        let observed = |values: &[f32]| values.iter().all(|&x| x == 0.5 || x == 0.0);
        if drawn {
            assert!(observed(&self.obs) && (!next_obs || observed(&self.next_obs)));
            assert!(self.actions.iter().all(|action| action.is_finite()));
            // Sums of rewards near the largest number may be infinite, and no NaN but of such.
            assert!(self.discounts.iter().all(|x| (0.0..=1.0).contains(x)));
        } else {
            assert!(self.obs.iter().all(|x| x.is_nan()));
        }
    }
}
