//! Any recording and any draws from it: no panic, and draws are pieces of episodes.
//!
//! Observations and actions hold the transitions' numbers.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, OfflineDataset, Stream, Trajectories, Transitions, Values,
    ValuesMut,
};

#[derive(Debug, Arbitrary)]
struct Input {
    rewards: Vec<f32>,
    ends: u64,
    last: bool,
    next_obs: bool,
    too_long: bool,
    normalize: bool,
    draws: Vec<Draw>,
}

#[derive(Debug, Arbitrary)]
struct Draw {
    n: u8,
    seq_len: u8,
    seed: Option<u64>,
    next_obs: bool,
    too_long: bool,
}

const FIELD: Field = Field { dtype: DType::F32, len: 1 };
const LAYOUT: Layout =
    Layout { capacity: 1, obs: FIELD, action: FIELD, n_step: NStep::ONE, frames: 0 };

fuzz_target!(|input: Input| {
    let n = input.rewards.len();
    let numbers: Vec<f32> = (0..n + usize::from(input.too_long)).map(|k| k as f32).collect();
    let mut ends: Vec<bool> = (0..n).map(|k| input.ends >> (k % 64) & 1 == 1).collect();
    if let Some(last) = ends.last_mut() {
        *last |= input.last;
    }
    let rows = Transitions {
        obs: Values::of::<f32>(&numbers),
        actions: Values::of::<f32>(&numbers),
        rewards: &input.rewards,
        terminated: &ends,
        truncated: &vec![false; n],
        next_obs: input.next_obs.then_some(Values::of::<f32>(&numbers)),
    };
    let data = OfflineDataset::new(LAYOUT, &rows, input.normalize, Stream::from_seed(0));
    let Ok(mut data) = data else { return };
    assert!(!input.too_long && ends[n - 1] && input.rewards.iter().all(|x| x.is_finite()));
    assert_eq!(data.lengths().sum::<usize>(), n);
    assert_eq!(data.lengths().len(), data.returns().len());
    for draw in input.draws {
        transitions(&mut data, &draw);
        pieces(&mut data, &draw, &ends);
    }
});

fn transitions(data: &mut OfflineDataset, draw: &Draw) {
    let mut arrays = Arrays::new(draw.n.into(), draw.too_long);
    let drawn = data.sample(draw.seed, &mut arrays.batch(draw.next_obs)).is_ok();
    assert!(!drawn || !draw.too_long);
    assert!(drawn || arrays.is_untouched());
    assert!(!drawn || arrays.actions.iter().all(|x| x.is_finite()));
}

fn pieces(data: &mut OfflineDataset, draw: &Draw, ends: &[bool]) {
    let seq_len = usize::from(draw.seq_len);
    let mut arrays = Arrays::new(usize::from(draw.n) * seq_len, draw.too_long);
    let n = arrays.actions.len();
    let (mut returns_to_go, mut timesteps, mut mask) =
        (vec![f32::NAN; n], vec![-1; n], vec![true; n]);
    let mut out = Trajectories {
        batch: arrays.batch(draw.next_obs),
        returns_to_go: &mut returns_to_go,
        timesteps: &mut timesteps,
        mask: &mut mask,
    };
    if data.sample_trajectories(draw.seed, seq_len, &mut out).is_err() {
        assert!(arrays.is_untouched() && timesteps.iter().all(|&t| t == -1));
        return;
    }
    assert!(seq_len > 0 && !draw.too_long);
    for k in (0..n).filter(|k| k % seq_len > 0) {
        let (before, now) = (arrays.actions[k - 1], arrays.actions[k]);
        let goes_on = mask[k - 1] && !ends[before as usize];
        assert_eq!(mask[k], goes_on);
        assert_eq!(now, if goes_on { before + 1.0 } else { 0.0 });
        assert_eq!(timesteps[k], if goes_on { timesteps[k - 1] + 1 } else { 0 });
    }
}

/// The arrays of a batch, full of NaN.
struct Arrays {
    obs: Vec<f32>,
    next_obs: Vec<f32>,
    actions: Vec<f32>,
    rewards: Vec<f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
}

impl Arrays {
    fn new(n: usize, too_long: bool) -> Self {
        let [obs, next_obs, actions, rewards] = std::array::from_fn(|_| vec![f32::NAN; n]);
        let terminated = vec![true; n + usize::from(too_long)];
        Self { obs, next_obs, actions, rewards, terminated, truncated: vec![true; n] }
    }

    fn batch(&mut self, next_obs: bool) -> Batch<'_> {
        Batch {
            obs: ValuesMut::of::<f32>(&mut self.obs),
            next_obs: next_obs.then_some(ValuesMut::of::<f32>(&mut self.next_obs)),
            actions: ValuesMut::of::<f32>(&mut self.actions),
            rewards: &mut self.rewards,
            terminated: &mut self.terminated,
            truncated: &mut self.truncated,
            discounts: None,
        }
    }

    fn is_untouched(&self) -> bool {
        let numbers = self.obs.iter().chain(&self.actions).chain(&self.rewards);
        numbers.chain(&self.next_obs).all(|x| x.is_nan()) && self.terminated.iter().all(|&x| x)
    }
}
