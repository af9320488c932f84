//! Hindsight replay against lists of episodes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::replay::{
    Batch, DType, Field, Goals, Hindsight, HindsightReplay, Layout, NStep, Selection, Stream,
    Transitions, Values, ValuesMut,
};

/// Observations are (desired goal, achieved goal).
const HINDSIGHT: Hindsight = Hindsight {
    goals: Goals { len: 1, achieved: 1, desired: 0 },
    selection: Selection::Future,
    n_sampled_goal: 4,
    threshold: Some(0.0),
};

fn layout(capacity: usize, n_envs: usize) -> Layout {
    Layout {
        capacity,
        obs: Field { dtype: DType::F32, len: 2 },
        action: Field { dtype: DType::F32, len: 1 },
        n_step: NStep { n_envs, n_step: 1, gamma: 1.0 },
        frames: 0,
    }
}

fn buffer(capacity: usize, n_envs: usize, hindsight: Hindsight) -> HindsightReplay {
    HindsightReplay::new(layout(capacity, n_envs), hindsight, Stream::from_seed(0)).unwrap()
}

/// Stores the steps `first..first + ends.len()`; step k has the action k, leads to the achieved goal
/// k + 0.5, and has the desired goal -1.
fn push(buffer: &mut HindsightReplay, first: usize, ends: &[bool]) -> Result<(), KernelError> {
    let steps = (first..first + ends.len()).map(|k| k as f32);
    let actions: Vec<f32> = steps.clone().collect();
    let obs: Vec<f32> = steps.clone().flat_map(|k| [-1.0, k - 0.5]).collect();
    let next_obs: Vec<f32> = steps.flat_map(|k| [-1.0, k + 0.5]).collect();
    buffer.push(
        &Transitions {
            obs: Values::F32(&obs),
            actions: Values::F32(&actions),
            rewards: &vec![7.0; ends.len()],
            terminated: &vec![false; ends.len()],
            truncated: ends,
            next_obs: Some(Values::F32(&next_obs)),
        },
        (),
    )
}

/// What is drawn: action, desired goal before and after the step, reward, and whether it has another
/// goal than it was pushed with.
fn draw(buffer: &mut HindsightReplay, n: usize) -> Vec<(f32, f32, f32, f32, bool)> {
    let (mut obs, mut next_obs) = (vec![f32::NAN; 2 * n], vec![f32::NAN; 2 * n]);
    let (mut actions, mut rewards) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    let (mut terminated, mut truncated) = (vec![true; n], vec![true; n]);
    let mut relabelled = vec![false; n];
    let mut batch = Batch {
        obs: ValuesMut::F32(&mut obs),
        next_obs: Some(ValuesMut::F32(&mut next_obs)),
        actions: ValuesMut::F32(&mut actions),
        rewards: &mut rewards,
        terminated: &mut terminated,
        truncated: &mut truncated,
        discounts: None,
    };
    buffer.sample(None, &mut batch, &mut relabelled).unwrap();
    let row = |k| (actions[k], obs[2 * k], next_obs[2 * k], rewards[k], relabelled[k]);
    (0..n).map(row).collect()
}

proptest! {
    /// Every drawn goal is one that the transition may get, and all of those are drawn: with 400
    /// draws and at most 12 x 12 pairs the few that are missing are found by an exact count in Python.
    #[test]
    fn goals_are_those_of_the_episode(
        capacity in 1_usize..13,
        n_envs in 1_usize..4,
        selection in prop::sample::select(vec![Selection::Future, Selection::Final, Selection::Episode]),
        pushes in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.25), 3), 1..20),
        at_once in 1_usize..4,
    ) {
        let n_envs = n_envs.min(capacity);
        let mut buffer = buffer(capacity, n_envs, Hindsight { selection, ..HINDSIGHT });
        let mut episodes = vec![0; n_envs];
        let mut steps = Vec::new();
        for group in pushes.chunks(at_once) {
            let ends: Vec<bool> = group.iter().flat_map(|row| row[..n_envs].to_vec()).collect();
            push(&mut buffer, steps.len(), &ends).unwrap();
            for (k, end) in ends.iter().enumerate() {
                let env = k % n_envs;
                steps.push((env, episodes[env]));
                episodes[env] += u32::from(*end);
            }
        }
        let oldest = steps.len().saturating_sub(capacity);
        for (action, before, after, reward, relabelled) in draw(&mut buffer, 50) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a step")]
            let step = action as usize;
            prop_assert!((oldest..steps.len()).contains(&step));
            prop_assert_eq!(before, after);
            if !relabelled {
                prop_assert_eq!((before, reward), (-1.0, 7.0));
                continue;
            }
            let episode: Vec<usize> =
                (oldest..steps.len()).filter(|&k| steps[k] == steps[step]).collect();
            let goals: Vec<f32> = match selection {
                Selection::Future => episode.iter().filter(|k| **k >= step).copied().collect(),
                Selection::Final => episode[episode.len() - 1..].to_vec(),
                Selection::Episode => episode,
            }.iter().map(|&k| k as f32 + 0.5).collect();
            prop_assert!(goals.contains(&before), "{} is none of {:?}", before, goals);
            prop_assert_eq!(reward, if before == action + 0.5 { 0.0 } else { -1.0 });
        }
    }
}

#[test]
fn impossible_goals_are_refused() {
    let refused = |goals| {
        let hindsight = Hindsight { goals, ..HINDSIGHT };
        HindsightReplay::new(layout(4, 1), hindsight, Stream::from_seed(0)).err().unwrap()
    };
    let goals = HINDSIGHT.goals;
    for (goals, name) in [
        (Goals { len: 0, ..goals }, "goal_dim"),
        (Goals { len: 3, ..goals }, "goal_dim"),
        (Goals { achieved: 2, ..goals }, "achieved_goal"),
        (Goals { desired: usize::MAX, ..goals }, "desired_goal"),
    ] {
        let error = refused(goals);
        assert!(matches!(error, KernelError::Range { name: got, .. } if got == name), "{error}");
    }
    let error = refused(Goals { desired: 1, ..goals });
    assert_eq!(error, KernelError::GoalsOverlap { achieved: 1, desired: 1, len: 1 });
}

#[test]
fn transitions_without_their_end_are_refused() {
    let mut buffer = buffer(4, 1, HINDSIGHT);
    let rows = Transitions {
        obs: Values::F32(&[0.0; 2]),
        actions: Values::F32(&[0.0]),
        rewards: &[0.0],
        terminated: &[false],
        truncated: &[false],
        next_obs: None,
    };
    let error = buffer.push(&rows, ()).unwrap_err();
    assert!(matches!(error, KernelError::Shape { name: "next_obs", .. }), "{error}");
    assert!(buffer.ring().is_empty());
}

// Two steps, a cut, and two steps: no goal crosses it, and the cut step counts as truncated.
#[test]
fn a_cut_ends_the_episodes_that_go_on() {
    let mut buffer = buffer(8, 2, Hindsight { selection: Selection::Final, ..HINDSIGHT });
    push(&mut buffer, 0, &[false, false, false, true]).unwrap();
    buffer.truncate_episodes();
    push(&mut buffer, 4, &[false, false]).unwrap();
    let mut goals: Vec<_> = draw(&mut buffer, 500).iter().map(|row| (row.0, row.1)).collect();
    goals.retain(|(_, goal)| *goal != -1.0);
    goals.sort_by(|a, b| a.partial_cmp(b).unwrap());
    goals.dedup();
    assert_eq!(goals, [(0.0, 2.5), (1.0, 3.5), (2.0, 2.5), (3.0, 3.5), (4.0, 4.5), (5.0, 5.5)]);
}
