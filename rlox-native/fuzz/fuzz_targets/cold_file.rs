//! Any damage to the file of a tiered buffer: refused, or its content is unchanged.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rlox_kernels::replay::{
    Batch, DType, Field, Layout, NStep, Stream, TieredReplay, Transitions, Values, ValuesMut,
};

const FIELD: Field = Field { dtype: DType::F32, len: 1 };
const LAYOUT: Layout =
    Layout { capacity: 9, obs: FIELD, action: FIELD, n_step: NStep::ONE, frames: 0 };

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("rlox-fuzz-{}", std::process::id())));

/// A file of nine transitions, each filled with one number.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let numbers: Vec<f32> = (0_u8..9).map(f32::from).collect();
    let mut buffer = open().unwrap();
    let rows = Transitions {
        obs: Values::of::<f32>(&numbers),
        actions: Values::of::<f32>(&numbers),
        rewards: &numbers,
        terminated: &[false; 9],
        truncated: &[false; 9],
        next_obs: Some(Values::of::<f32>(&numbers)),
    };
    buffer.push(&rows).unwrap();
    buffer.close().unwrap();
    std::fs::read(&*PATH).unwrap()
});

fn open() -> rlox_kernels::Result<TieredReplay> {
    TieredReplay::open(LAYOUT, 2, &PATH, true, Stream::from_seed(0))
}

// Places and values of changed bytes, and the length that the file is cut to.
fuzz_target!(|input: (Vec<(u16, u8)>, Option<u16>)| {
    let (changes, length) = input;
    let mut file = WHOLE.clone();
    for (place, byte) in changes {
        let place = usize::from(place) % file.len();
        file[place] = byte;
    }
    file.truncate(length.map_or(file.len(), usize::from));
    std::fs::write(&*PATH, file).unwrap();
    let Ok(mut buffer) = open() else { return };
    let mut arrays: [Vec<f32>; 4] = std::array::from_fn(|_| vec![f32::NAN; 16]);
    let [obs, next_obs, actions, rewards] = &mut arrays;
    let drawn = buffer.sample(
        None,
        &mut Batch {
            obs: ValuesMut::of::<f32>(obs),
            next_obs: Some(ValuesMut::of::<f32>(next_obs)),
            actions: ValuesMut::of::<f32>(actions),
            rewards,
            terminated: &mut [true; 16],
            truncated: &mut [true; 16],
            discounts: None,
        },
    );
    // An empty file opens as a new buffer.
    assert_eq!(drawn.is_ok(), !buffer.is_empty());
    if drawn.is_ok() {
        assert!(arrays.iter().all(|array| *array == arrays[0]));
        assert!(arrays[0].iter().all(|&number| (0.0..9.0).contains(&number)));
    }
});
