//! The offline dataset against its own arrays.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, OfflineDataset, Stream, Trajectories, Transitions, Values,
    ValuesMut,
};

const LAYOUT: Layout = Layout {
    capacity: 0,
    obs: Field { dtype: DType::F64, len: 1 },
    action: Field { dtype: DType::I64, len: 1 },
    n_step: NStep::ONE,
    frames: 0,
};

/// Transition k has observation k, next observation k + 1, action k and reward k.
fn dataset(lengths: &[usize], normalize: bool) -> Result<OfflineDataset, KernelError> {
    let n: usize = lengths.iter().sum();
    let numbers = |offset: u32| (0_u32..).take(n).map(move |k| f64::from(k + offset));
    let (obs, next_obs): (Vec<f64>, Vec<f64>) = (numbers(0).collect(), numbers(1).collect());
    let actions: Vec<i64> = (0..).take(n).collect();
    let rewards: Vec<f32> = (0_u16..).take(n).map(f32::from).collect();
    let mut truncated = vec![false; n];
    let mut end = 0;
    for length in lengths {
        end += length;
        truncated[end - 1] = true;
    }
    let rows = Transitions {
        obs: Values::F64(&obs),
        actions: Values::I64(&actions),
        rewards: &rewards,
        terminated: &vec![false; n],
        truncated: &truncated,
        next_obs: Some(Values::F64(&next_obs)),
    };
    OfflineDataset::new(LAYOUT, &rows, normalize, Stream::from_seed(0))
}

#[test]
fn normalised_numbers_have_mean_0() {
    let data = dataset(&[2, 3], true).unwrap();
    let normalizer = data.normalizer().unwrap();
    assert_eq!(normalizer.mean, [2.0]);
    assert_eq!(normalizer.scale, [2.0_f64.sqrt() + 1e-3]);
    assert_eq!(data.returns(), [1.0, 9.0]);
    assert_eq!(data.lengths().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_recording_without_an_end_is_refused() {
    let rows = Transitions {
        obs: Values::F64(&[0.0]),
        actions: Values::I64(&[0]),
        rewards: &[0.0],
        terminated: &[false],
        truncated: &[false],
        next_obs: None,
    };
    let refused = OfflineDataset::new(LAYOUT, &rows, false, Stream::from_seed(0)).unwrap_err();
    assert_eq!(refused, KernelError::NoEpisodeEnd { last: 0 });
    let none = Transitions { rewards: &[], ..rows };
    assert!(OfflineDataset::new(LAYOUT, &none, false, Stream::from_seed(0)).is_err());
}

proptest! {
    #[test]
    fn pieces_go_on_step_by_step_to_the_end_of_their_episode(
        lengths in prop::collection::vec(1_usize..9, 1..6),
        n in 1_usize..10,
        seq_len in 1_usize..12,
        seed in any::<u64>(),
    ) {
        let mut data = dataset(&lengths, false).unwrap();
        let rows = n * seq_len;
        let (mut obs, mut actions) = (vec![f64::NAN; rows], vec![i64::MIN; rows]);
        let (mut rewards, mut to_go) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
        let (mut terminated, mut truncated) = (vec![true; rows], vec![true; rows]);
        let (mut timesteps, mut mask) = (vec![i64::MIN; rows], vec![true; rows]);
        let mut out = Trajectories {
            batch: Batch {
                obs: ValuesMut::F64(&mut obs),
                next_obs: None,
                actions: ValuesMut::I64(&mut actions),
                rewards: &mut rewards,
                terminated: &mut terminated,
                truncated: &mut truncated,
                discounts: None,
            },
            returns_to_go: &mut to_go,
            timesteps: &mut timesteps,
            mask: &mut mask,
        };
        prop_assert!(data.sample_trajectories(Some(seed), rows + 1, &mut out).is_err());
        data.sample_trajectories(Some(seed), seq_len, &mut out).unwrap();
        for row in 0..rows {
            let within = row % seq_len;
            if !mask[row] {
                prop_assert!(within > 0 && (truncated[row - 1] || !mask[row - 1]));
                prop_assert_eq!((obs[row], actions[row], rewards[row]), (0.0, 0, 0.0));
                prop_assert_eq!((to_go[row], timesteps[row], truncated[row]), (0.0, 0, false));
                continue;
            }
            let k = usize::try_from(actions[row]).unwrap();
            prop_assert!(within == 0 || actions[row] == actions[row - 1] + 1);
            prop_assert_eq!(obs[row], f64::from(rewards[row]));
            let ends = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) });
            let end = ends.clone().find(|&end| end > k).unwrap();
            let begin = ends.take_while(|&end| end <= k).last().unwrap_or(0);
            prop_assert_eq!(usize::try_from(timesteps[row]).unwrap(), k - begin);
            prop_assert_eq!(truncated[row], k + 1 == end);
            let sum: usize = (k..end).sum();
            prop_assert_eq!(to_go[row], f32::from(u16::try_from(sum).unwrap()));
        }
    }
}
