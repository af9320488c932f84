//! Buffers that store each frame once against buffers that store observations whole.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, Stream, Transitions, UniformReplay, Values, ValuesMut,
};

const STACK: usize = 3;

fn layout(capacity: usize, n_envs: usize, frames: usize) -> Layout {
    Layout {
        capacity,
        // Two numbers a frame.
        obs: Field { dtype: DType::I32, len: 2 * STACK },
        action: Field { dtype: DType::F32, len: 1 },
        n_step: NStep { n_envs, n_step: 1, gamma: 1.0 },
        frames,
    }
}

/// Stacks of numbered frames, as from an env with a frame stack: the first frame fills a stack.
struct Stacks {
    frames: i32,
    stack: [i32; STACK],
}

impl Stacks {
    fn next(&mut self) -> [i32; STACK] {
        self.frames += 1;
        self.stack.rotate_left(1);
        self.stack[STACK - 1] = self.frames;
        self.stack
    }

    fn reset(&mut self) {
        self.frames += 1;
        self.stack = [self.frames; STACK];
    }
}

fn pixels(stacks: &[[i32; STACK]]) -> Vec<i32> {
    stacks.iter().flatten().flat_map(|&frame| [frame, -frame]).collect()
}

/// Content of a buffer, by slot: observations and next observations.
fn contents(buffer: &UniformReplay) -> (Vec<i32>, Vec<i32>) {
    let n = buffer.ring().len();
    let (mut obs, mut next_obs) = (vec![7; 2 * STACK * n], vec![7; 2 * STACK * n]);
    let mut actions = vec![0.0_f32; n];
    let mut batch = Batch {
        obs: ValuesMut::of::<i32>(&mut obs),
        next_obs: Some(ValuesMut::of::<i32>(&mut next_obs)),
        actions: ValuesMut::of(&mut actions),
        rewards: &mut vec![0.0; n],
        terminated: &mut vec![false; n],
        truncated: &mut vec![false; n],
        discounts: None,
    };
    buffer.ring().export(&mut batch, &mut vec![false; n]).unwrap();
    (obs, next_obs)
}

fn push(buffer: &mut UniformReplay, obs: &[i32], next_obs: &[i32]) {
    let n = obs.len() / (2 * STACK);
    let actions = vec![0.0_f32; n];
    let rows = Transitions {
        obs: Values::of::<i32>(obs),
        actions: Values::of(&actions),
        rewards: &vec![0.0; n],
        terminated: &vec![false; n],
        truncated: &vec![false; n],
        next_obs: Some(Values::of::<i32>(next_obs)),
    };
    buffer.push(&rows, ()).unwrap();
}

proptest! {
    /// Episodes of varying length; a ring that wraps around; a buffer filled again.
    #[test]
    fn every_frame_of_a_stack_is_stored_once(
        capacity in 1_usize..20,
        n_envs in 1_usize..4,
        steps in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.2), 3), 1..30),
        at_once in 1_usize..6,
    ) {
        let n_envs = n_envs.min(capacity);
        let new = |frames| {
            UniformReplay::new(layout(capacity, n_envs, frames), Stream::from_seed(0)).unwrap()
        };
        let (mut shared, mut whole) = (new(STACK), new(0));
        let mut envs: Vec<Stacks> =
            (0..3).take(n_envs).map(|env| Stacks { frames: env << 20, stack: [0; STACK] }).collect();
        envs.iter_mut().for_each(Stacks::reset);
        let mut stored = VecDeque::new();
        for group in steps.chunks(at_once) {
            let (mut obs, mut next_obs) = (Vec::new(), Vec::new());
            for ends in group {
                for (env, end) in envs.iter_mut().zip(ends) {
                    let before = env.stack;
                    obs.push(before);
                    next_obs.push(env.next());
                    stored.push_back([before, env.stack]);
                    if *end {
                        env.reset();
                    }
                }
            }
            push(&mut shared, &pixels(&obs), &pixels(&next_obs));
            push(&mut whole, &pixels(&obs), &pixels(&next_obs));
            stored.drain(..stored.len().saturating_sub(capacity));
            prop_assert_eq!(contents(&shared), contents(&whole));
            let distinct: HashSet<i32> = stored.iter().flatten().flatten().copied().collect();
            prop_assert_eq!(shared.ring().n_frames(), distinct.len());
        }
        let (obs, next_obs) = contents(&whole);
        let n = whole.ring().len();
        let actions = vec![0.0_f32; n];
        let rows = Transitions {
            obs: Values::of::<i32>(&obs),
            actions: Values::of(&actions),
            rewards: &vec![0.0; n],
            terminated: &vec![false; n],
            truncated: &vec![false; n],
            next_obs: Some(Values::of::<i32>(&next_obs)),
        };
        let position = whole.ring().position();
        shared.restore(&rows, &vec![true; n], position, Stream::from_seed(0), &()).unwrap();
        prop_assert_eq!(contents(&shared), (obs, next_obs));
    }

    /// Few frames in any order, so that they reappear in unexpected places.
    #[test]
    fn nothing_is_lost_where_observations_are_no_stacks(
        capacity in 1_usize..6,
        rows in prop::collection::vec(prop::array::uniform2(prop::array::uniform3(0..4)), 1..30),
    ) {
        let new = |frames| {
            UniformReplay::new(layout(capacity, 1, frames), Stream::from_seed(0)).unwrap()
        };
        let (mut shared, mut whole) = (new(STACK), new(0));
        for [obs, next_obs] in rows {
            push(&mut shared, &pixels(&[obs]), &pixels(&[next_obs]));
            push(&mut whole, &pixels(&[obs]), &pixels(&[next_obs]));
            prop_assert_eq!(contents(&shared), contents(&whole));
            prop_assert!(shared.ring().n_frames() <= 2 * STACK * shared.ring().len());
        }
    }
}

#[test]
fn observations_that_are_not_whole_frames_are_refused() {
    let layout = layout(4, 1, 4);
    let error = UniformReplay::new(layout, Stream::from_seed(0)).unwrap_err();
    assert!(matches!(error, KernelError::Shape { name: "obs_dim", .. }), "{error}");
}

// A stack of four frames of 84 x 84 bytes: each transition adds 7056 bytes of frame, and 64 bytes
// of frame numbers, reward and flags.
#[test]
fn a_transition_takes_the_memory_of_a_frame() {
    let layout = Layout {
        capacity: 1_000_000,
        obs: Field { dtype: DType::U8, len: 4 * 84 * 84 },
        action: Field { dtype: DType::I64, len: 1 },
        n_step: NStep::ONE,
        frames: 4,
    };
    assert_eq!(layout.memory_bytes().unwrap(), 1_000_000 * (84 * 84 + 64));
    let whole = Layout { frames: 0, ..layout };
    assert_eq!(whole.memory_bytes().unwrap(), 1_000_000 * 56_480);
}
