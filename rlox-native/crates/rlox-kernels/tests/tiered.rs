//! The file of a buffer: damage at any byte that is read.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use rlox_kernels::KernelError;
use rlox_kernels::replay::{
    DType, Field, Layout, NStep, Stream, TieredReplay, Transitions, Values,
};

#[test]
fn damage_is_an_error() {
    let name = format!("rlox-{}-damage", std::process::id());
    let path = std::env::temp_dir().join(name);
    let field = Field { dtype: DType::F32, len: 1 };
    let n_step = NStep::ONE;
    let layout = Layout { capacity: 9, obs: field, action: field, n_step, frames: 0 };
    let open = || TieredReplay::open(layout, 2, &path, true, Stream::from_seed(0));
    let mut buffer = open().unwrap();
    let numbers = Values::of::<f32>(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let rows = Transitions {
        obs: numbers,
        actions: numbers,
        rewards: &[0.0; 9],
        terminated: &[false; 9],
        truncated: &[false; 9],
        next_obs: Some(numbers),
    };
    buffer.push(&rows).unwrap();
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
