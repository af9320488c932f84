//! Arguments that Python cannot pass, as the binding checks or makes them: errors, not panics.
//!
//! Results of kernels and buffers, and all errors that Python can cause, are tested from Python,
//! through the same code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use rlox_kernels::KernelError;
use rlox_kernels::divergence::batch_token_kl;
use rlox_kernels::gae::{Discount, EnvMajor, Estimates, gae_env_major, gae_time_major};
use rlox_kernels::groups::{Normalization, Scale, group_advantages};
use rlox_kernels::moments::{RunningMoments, standardize};
use rlox_kernels::replay::{
    Batch, DType, Field, Goals, Hindsight, HindsightReplay, Layout, NStep, OfflineDataset,
    PrioritizedReplay, Selection, Stream, Trajectories, Transitions, UniformReplay, Values,
    ValuesMut,
};
use rlox_kernels::returns::{discounted_returns, lambda_returns, n_step_returns};
use rlox_kernels::rollout::TimeMajor;
use rlox_kernels::vtrace::{Targets, Truncation, vtrace};

fn refused<T>(result: Result<T, KernelError>, argument: &str) {
    let Err(error) = result else { panic!("{argument} was taken") };
    assert!(error.to_string().starts_with(argument), "{error}");
}

const ROLLOUT: TimeMajor<'_, f64, bool> = TimeMajor {
    rewards: &[1.0; 3],
    values: &[1.0; 3],
    terminated: &[false; 3],
    truncated: &[false; 3],
    final_values: &[1.0; 3],
    last_values: &[1.0],
};

#[test]
fn results_have_the_size_of_the_input() {
    let half = Discount::new(0.5, 0.5).unwrap();
    let (mut two, mut three) = ([0.0; 2], [0.0; 3]);
    refused(discounted_returns(&ROLLOUT, 0.5, &mut two), "returns");
    refused(lambda_returns(&ROLLOUT, half, &mut two), "returns");
    refused(n_step_returns(&ROLLOUT, 0.5, 1, &mut two), "returns");
    let mut out = Estimates { advantages: &mut three, returns: &mut two };
    refused(gae_time_major(&ROLLOUT, half, &mut out), "returns");
    let flat = EnvMajor {
        rewards: ROLLOUT.rewards,
        values: ROLLOUT.values,
        dones: ROLLOUT.terminated,
        last_values: ROLLOUT.last_values,
    };
    let mut out = Estimates { advantages: &mut two, returns: &mut three };
    refused(gae_env_major(&flat, 3, half, &mut out), "advantages");
    let bars = Truncation { rho_bar: 1.0, c_bar: 1.0 };
    let mut out = Targets { vs: &mut three, pg_advantages: &mut two };
    refused(vtrace(&ROLLOUT, &[0.0; 3], 0.5, bars, &mut out), "pg_advantages");
    let how = Normalization { scale: Scale::Group, ddof: 0, eps: 0.0 };
    refused(group_advantages(&[1.0; 3], 3, how, &mut two), "advantages");
    refused(standardize(&[1.0; 3], 0, 0.0, &mut two), "standardized");
    refused(batch_token_kl(&[0.0; 3], &[0.0; 3], 1, &mut two), "kl");
}

#[test]
fn sizes_are_positive_and_rows_whole() {
    let mut returns = [0.0; 3];
    refused(n_step_returns(&ROLLOUT, 0.5, 0, &mut returns), "n ");
    let values = TimeMajor { values: &[1.0; 2], ..ROLLOUT };
    refused(discounted_returns(&values, 0.5, &mut returns), "values");
    let rows = TimeMajor { last_values: &[1.0; 2], ..ROLLOUT };
    refused(discounted_returns(&rows, 0.5, &mut returns), "rewards");
    let how = Normalization { scale: Scale::Group, ddof: 0, eps: 0.0 };
    refused(group_advantages(&[1.0], 0, how, &mut [0.0]), "group_size");
    refused(batch_token_kl::<f64>(&[], &[], 0, &mut []), "seq_len");
    refused(RunningMoments::new(2).update(&[1.0]), "batch");
    refused(RunningMoments::new(2).merge(&RunningMoments::new(3)), "other");
    refused(RunningMoments::from_parts(1, vec![0.0], vec![]), "squares");
}

const fn layout(capacity: usize, obs_len: usize) -> Layout {
    Layout {
        capacity,
        obs: Field { dtype: DType::F32, len: obs_len },
        action: Field { dtype: DType::I64, len: 1 },
        n_step: NStep::ONE,
        frames: 0,
    }
}

const HINDSIGHT: Hindsight = Hindsight {
    goals: Goals { len: 1, achieved: 1, desired: 0 },
    selection: Selection::Future,
    n_sampled_goal: 4,
    threshold: None,
};

#[test]
fn impossible_layouts_are_refused() {
    let stream = || Stream::from_seed(0);
    for (capacity, obs_len, argument) in [
        (0, 1, "capacity"),
        (1, 0, "obs_dim"),
        (usize::MAX, 1, "not enough memory"),
        (1, usize::MAX, "not enough memory"),
        (1 << 40, 1 << 20, "not enough memory"),
        (1 << 55, 4, "not enough memory"),
    ] {
        let layout = layout(capacity, obs_len);
        refused(UniformReplay::new(layout, stream()), argument);
        refused(PrioritizedReplay::new(layout, 0.6, 0.4, stream()), argument);
    }
    let goals = Goals { len: 0, ..HINDSIGHT.goals };
    let hindsight = Hindsight { goals, ..HINDSIGHT };
    refused(HindsightReplay::new(layout(4, 2), hindsight, stream()), "goal_dim");
}

#[test]
fn wrong_rows_are_refused_and_store_nothing() {
    let mut buffer = UniformReplay::new(layout(4, 2), Stream::from_seed(0)).unwrap();
    let rows = Transitions {
        obs: Values::of::<f32>(&[0.0; 4]),
        actions: Values::of::<i64>(&[0; 2]),
        rewards: &[0.0; 2],
        terminated: &[false; 2],
        truncated: &[false; 2],
        next_obs: Some(Values::of::<f32>(&[0.0; 4])),
    };
    for (rows, argument) in [
        (Transitions { obs: Values::of::<f32>(&[0.0; 3]), ..rows }, "obs"),
        (Transitions { obs: Values::of::<f64>(&[0.0; 4]), ..rows }, "obs"),
        (Transitions { actions: Values::of::<i32>(&[0; 2]), ..rows }, "actions"),
        (Transitions { actions: Values::of::<i64>(&[0; 3]), ..rows }, "actions"),
        (Transitions { rewards: &[0.0; 3], ..rows }, "terminated"),
        (Transitions { terminated: &[false; 3], ..rows }, "terminated"),
        (Transitions { truncated: &[false; 1], ..rows }, "truncated"),
        (Transitions { next_obs: Some(Values::of::<f32>(&[0.0; 2])), ..rows }, "next_obs"),
    ] {
        refused(buffer.push(&rows, ()), argument);
        assert!(buffer.ring().is_empty());
    }
    buffer.push(&rows, ()).unwrap();
    assert_eq!(buffer.ring().len(), 2);
    let stream = Stream::from_seed(0);
    let mut buffer = HindsightReplay::new(layout(4, 2), HINDSIGHT, stream).unwrap();
    refused(buffer.push(&Transitions { next_obs: None, ..rows }, ()), "next_obs");
}

#[test]
fn pieces_of_trajectories_fill_their_arrays() {
    let rows = Transitions {
        obs: Values::of::<f32>(&[0.0; 2]),
        actions: Values::of::<i64>(&[0; 2]),
        rewards: &[0.0; 2],
        terminated: &[false, true],
        truncated: &[false; 2],
        next_obs: None,
    };
    let mut data = OfflineDataset::new(layout(0, 1), &rows, false, Stream::from_seed(0)).unwrap();
    let (mut obs, mut actions) = ([0.0_f32; 2], [0_i64; 2]);
    let mut out = Trajectories {
        batch: Batch {
            obs: ValuesMut::of(&mut obs),
            next_obs: None,
            actions: ValuesMut::of(&mut actions),
            rewards: &mut [0.0; 2],
            terminated: &mut [false; 2],
            truncated: &mut [false; 2],
            discounts: None,
        },
        returns_to_go: &mut [0.0; 2],
        timesteps: &mut [0; 2],
        mask: &mut [false; 2],
    };
    assert!(data.sample_trajectories(None, 3, &mut out).is_err());
    let none = Transitions { rewards: &[], terminated: &[], truncated: &[], ..rows };
    assert!(OfflineDataset::new(layout(0, 1), &none, false, Stream::from_seed(0)).is_err());
}
