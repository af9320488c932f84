//! Files that are written here, honest and hostile.

use proptest::prelude::*;
use rlox_policy::{Array, Error, Given, Leaves, Memory, Policy, Team};
use safetensors::tensor::{Dtype, TensorView, serialize};
use sha2::{Digest, Sha256};

const HEADER: &str = r#"{"format_version": 2, "policy": {"algorithm": "own",
 "observation_space": {"kind": "multi_binary", "shape": [2]},
 "action_space": {"kind": "discrete", "n": 2, "start": 5},
 "preprocessing": {"frame_stack": 2, "moments": {}}, "takes_masks": true,
 "network": {"layer": "chain", "layers": [{"layer": "flatten", "divide_by": 1.0},
  {"layer": "linear", "weight": {"$tensor": "w"}, "bias": {"$tensor": "b"}},
  {"layer": "activation", "function": "tanh"},
  {"layer": "mode", "parts": [{"kind": "choices", "sizes": [2]}], "plain": true}]}}}"#;

/// A policy file with a header: the weights sum the older frame, and the newer one.
fn file(header: &str) -> Vec<u8> {
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    // frames of two numbers side by side: the older two, then the newer two
    let weight = bytes(&[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let bias = bytes(&[0.0, 0.25]);
    let view = |shape, data| TensorView::new(Dtype::F32, shape, data).expect("a tensor");
    let tensors = [("w", view(vec![2, 4], &weight)), ("b", view(vec![2], &bias))];
    let mark = "rlox-sha256:";
    let texts =
        [("rlox_policy", header.to_owned()), ("digest", format!("{mark}{}", "0".repeat(64)))];
    let texts = texts.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
    let mut content = serialize(tensors, Some(texts)).expect("a file");
    let digits = format!("{:x}", Sha256::digest(&content));
    let placeholder = format!("{mark}{}", "0".repeat(64));
    let at = content.windows(placeholder.len()).position(|w| w == placeholder.as_bytes());
    let from = at.expect("a placeholder") + mark.len();
    content[from..from + 64].copy_from_slice(digits.as_bytes());
    content
}

fn seen(numbers: [f64; 2]) -> Leaves {
    Leaves::from([(String::new(), Array::new(vec![1, 2], numbers.to_vec()).expect("an array"))])
}

#[test]
fn frames_masks_and_starts_decide() {
    let policy = Policy::from_bytes(&file(HEADER)).expect("a policy");
    let mut memory = Memory::default();
    let mut act = |numbers, given| {
        policy.predict(&seen(numbers), &mut memory, given).expect("an action")[""].data()[0]
    };
    let nothing = Given::default();
    assert_eq!(act([1.0, 1.0], nothing), 6.0); // both frames are equal, the bias decides
    assert_eq!(act([0.0, 0.0], nothing), 5.0); // the older frame is larger
    assert_eq!(act([1.0, 1.0], nothing), 6.0);
    let begins = Given { episode_start: Some(&[true]), ..nothing };
    assert_eq!(act([0.0, 0.0], begins), 6.0); // the older frame is forgotten
    let masked = Given { action_masks: Some(&[true, false]), ..nothing };
    assert_eq!(act([1.0, 1.0], masked), 5.0);
}

#[test]
fn mistakes_are_errors() {
    let content = file(HEADER);
    let policy = Policy::from_bytes(&content).expect("a policy");
    let mut memory = Memory::default();
    let forbidden = Given { action_masks: Some(&[false, false]), ..Given::default() };
    let error = policy.predict(&seen([0.0, 0.0]), &mut memory, forbidden).expect_err("a mask");
    assert!(error.to_string().contains("forbids every choice of column 0"), "{error}");
    let error = policy.predict(&Leaves::new(), &mut memory, Given::default()).expect_err("no leaf");
    assert!(matches!(error, Error::Argument(_)), "{error}");
    assert!(matches!(Team::from_bytes(&content), Err(Error::OtherKind(_))));
    assert!(matches!(Policy::open("/none.rlox"), Err(Error::Unreadable { .. })));
    let newer = HEADER.replace("\"format_version\": 2", "\"format_version\": 3");
    assert!(matches!(Policy::from_bytes(&file(&newer)), Err(Error::TooNew { .. })));
}

#[test]
fn every_changed_byte_is_detected() {
    let content = file(HEADER);
    for at in 0..content.len() {
        let mut changed = content.clone();
        changed[at] ^= 1;
        assert!(Policy::from_bytes(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn what_asks_for_more_than_the_file_holds_is_refused() {
    let deep = "{\"layer\": \"chain\", \"layers\": [".repeat(5000) + &"]}".repeat(5000);
    let flat = r#"{"layer": "flatten", "divide_by": 1.0}"#;
    let doubled = format!("{{\"layer\": \"beside\", \"layers\": [{flat}, {flat}]}}, ").repeat(60);
    let changes = [
        ("\"shape\": [2]", "\"shape\": [1000000000000]".to_owned()),
        ("\"shape\": [2]", "\"shape\": [4294967296, 4294967296]".to_owned()),
        ("\"frame_stack\": 2", "\"frame_stack\": 1000000000000".to_owned()),
        (flat, r#"{"layer": "one_hot", "first": 0, "size": 1000000000000}"#.to_owned()),
        (flat, r#"{"layer": "pad", "sides": [1000000000, 1, 1, 1]}"#.to_owned()),
        (flat, deep),
        (flat, format!("{doubled}{flat}")),
        (flat, r#"{"layer": "__import__"}"#.to_owned()),
    ];
    for (old, new) in changes {
        assert!(HEADER.contains(old), "{old}");
        let error = Policy::from_bytes(&file(&HEADER.replace(old, &new))).expect_err(old);
        assert!(matches!(error, Error::Damaged(_)), "{error}");
    }
}

proptest! {
    /// Headers of any small change act or are errors.
    #[test]
    fn no_header_panics(at in 0..HEADER.len(), new in "[0-9a-z\\[\\]{}\",.:-]{0,3}", cut in 0_usize..8) {
        let end = (at + cut).min(HEADER.len());
        let header = format!("{}{new}{}", &HEADER[..at], &HEADER[end..]);
        let _ = Policy::from_bytes(&file(&header));
    }

    /// Layers of any kind and order act or are errors.
    #[test]
    fn no_layers_panic(picks in prop::collection::vec(0_usize..15, 0..6), n in 0_usize..5) {
        let kinds = [
            r#"{"layer": "image", "channels_first": false, "divide_by": 2}"#,
            r#"{"layer": "pad", "sides": [N, 0, 1, N]}"#,
            r#"{"layer": "max_pool", "size": N}"#,
            r#"{"layer": "atoms", "count": N}"#,
            r#"{"layer": "mean"}"#,
            r#"{"layer": "first_half"}"#,
            r#"{"layer": "rms_norm", "weight": {"$tensor": "b"}, "eps": 0.1, "axis": -N}"#,
            r#"{"layer": "expected", "support": {"$tensor": "b"}}"#,
            r#"{"layer": "most_probable", "sizes": [N, 2]}"#,
            r#"{"layer": "one_hot", "first": N, "size": 7}"#,
            r#"{"layer": "affine", "scale": {"$tensor": "w"}, "shift": N}"#,
            r#"{"layer": "of_agent", "number": N}"#,
            r#"{"layer": "beside", "layers": [{"layer": "mean"}, {"layer": "first_half"}]}"#,
            r#"{"layer": "dueling", "value": {"layer": "mean"}, "advantage": {"layer": "mean"}, "atoms": N}"#,
            r#"{"layer": "join", "leaves": [["a", {"layer": "mean"}]]}"#,
        ];
        let flat = r#"{"layer": "flatten", "divide_by": 1.0}"#;
        let layers: Vec<&str> = picks.iter().map(|i| kinds[*i]).chain([flat]).collect();
        let new = layers.join(", ").replace('N', &n.to_string());
        let _ = Policy::from_bytes(&file(&HEADER.replace(flat, &new)));
        let shaped = HEADER.replace("[2]},", "[2, 1, 3]},");
        let _ = Policy::from_bytes(&file(&shaped.replace(flat, &new)));
    }
}
