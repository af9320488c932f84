//! The buffer over a file against one in memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::error::StateError;
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, Stream, TieredReplay, Transitions, UniformReplay, Values,
    ValuesMut,
};

const fn layout(capacity: usize) -> Layout {
    let field = Field { dtype: DType::F32, len: 1 };
    Layout { capacity, obs: field, action: field, n_step: NStep::ONE, frames: 0 }
}

/// A path that no other test has.
fn path(name: &str) -> PathBuf {
    let name = format!("rlox-{}-{name}-{:?}", std::process::id(), std::thread::current().id());
    std::env::temp_dir().join(name)
}

fn with_rows<R>(first: u16, n: u16, push: impl FnOnce(&Transitions<'_>) -> R) -> R {
    let numbers: Vec<f32> = (first..first + n).map(f32::from).collect();
    let flags = vec![false; numbers.len()];
    push(&Transitions {
        obs: Values::F32(&numbers),
        actions: Values::F32(&numbers),
        rewards: &numbers,
        terminated: &flags,
        truncated: &flags,
        next_obs: Some(Values::F32(&numbers)),
    })
}

/// The numbers of `n` transitions that `draw` draws.
fn drawn(n: usize, draw: impl FnOnce(&mut Batch<'_>) -> Result<(), KernelError>) -> Vec<f32> {
    let (mut obs, mut next_obs) = (vec![f32::NAN; n], vec![f32::NAN; n]);
    let (mut actions, mut rewards) = (obs.clone(), obs.clone());
    draw(&mut Batch {
        obs: ValuesMut::F32(&mut obs),
        next_obs: Some(ValuesMut::F32(&mut next_obs)),
        actions: ValuesMut::F32(&mut actions),
        rewards: &mut rewards,
        terminated: &mut vec![true; n],
        truncated: &mut vec![true; n],
        discounts: None,
    })
    .unwrap();
    assert_eq!([&obs, &next_obs, &actions], [&rewards; 3]);
    rewards
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn draws_are_those_of_a_buffer_in_memory(
        hot in 1_usize..6,
        cold in 0_usize..9,
        pushes in prop::collection::vec(1_u16..15, 1..8),
        keep in any::<bool>(),
    ) {
        let (path, capacity) = (path("draws"), hot + cold);
        let mut model = UniformReplay::new(layout(capacity), Stream::from_seed(0)).unwrap();
        let open = || TieredReplay::open(layout(capacity), hot, &path, keep, Stream::from_seed(0));
        let mut buffer = open().unwrap();
        let mut count = 0;
        for n in pushes {
            with_rows(count, n, |rows| buffer.push(rows)).unwrap();
            with_rows(count, n, |rows| model.push(rows, ())).unwrap();
            count += n;
            if keep && n % 3 == 0 {
                buffer.close().unwrap();
                buffer = open().unwrap();
            }
            prop_assert_eq!(buffer.len(), model.ring().len());
            let expected = drawn(9, |batch| model.sample(None, batch, &mut ()));
            prop_assert_eq!(drawn(9, |batch| buffer.sample(None, batch)), expected);
        }
        buffer.close().unwrap();
        prop_assert_eq!(path.exists(), keep);
        let closed = with_rows(0, 1, |rows| buffer.push(rows)).unwrap_err();
        prop_assert_eq!(closed, StateError::Closed.into());
        let _ = std::fs::remove_file(path);
    }
}

#[test]
fn damage_is_an_error() {
    let path = path("damage");
    let open = || TieredReplay::open(layout(9), 2, &path, true, Stream::from_seed(0));
    let mut buffer = open().unwrap();
    with_rows(0, 9, |rows| buffer.push(rows)).unwrap();
    buffer.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    // Every part that is read: the header, the commits, and the slots.
    for place in (0..84).chain(4096..4164).chain(3 * 4096..whole.len()).step_by(5) {
        let mut damaged = whole.clone();
        damaged[place] ^= 16;
        std::fs::write(&path, damaged).unwrap();
        let refused = matches!(open(), Err(KernelError::File { .. }));
        assert!(refused, "byte {place}");
    }
    // Neither commit may be missing.
    for (cut, zeroed) in [(4146, 0..0), (whole.len(), 4096..8192), (whole.len(), 8192..12288)] {
        let mut damaged = whole.clone();
        damaged[zeroed].fill(0);
        damaged.truncate(cut);
        std::fs::write(&path, damaged).unwrap();
        assert!(matches!(open(), Err(KernelError::File { .. })), "cut at {cut}");
    }
    std::fs::write(&path, whole).unwrap();
    assert_eq!(open().unwrap().len(), 9);
    std::fs::remove_file(path).unwrap();
}
