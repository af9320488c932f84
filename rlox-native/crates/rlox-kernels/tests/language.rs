//! Groups, divergences, packing and moments: what holds for any input.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "small sizes")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::divergence::{batch_token_kl_schulman, token_kl, token_kl_schulman};
use rlox_kernels::groups::{Normalization, Scale, group_advantages};
use rlox_kernels::moments::{RunningMoments, standardize};
use rlox_kernels::packing::pack;

const POPULATION: Normalization = Normalization { scale: Scale::Group, ddof: 0, eps: 0.0 };

// Deviations 0.4, -0.2, 0.2, -0.4: variance 0.1, so ±0.4/√0.1 = ±√1.6 and ±√0.4.
#[test]
fn group_advantages_by_hand() {
    let mut advantages = [0.0; 4];
    group_advantages(&[0.9, 0.3, 0.7, 0.1], 4, POPULATION, &mut advantages).unwrap();
    let expected = [1.6_f64.sqrt(), -0.4_f64.sqrt(), 0.4_f64.sqrt(), -1.6_f64.sqrt()];
    for (got, expected) in advantages.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-14);
    }
}

#[test]
fn a_group_needs_members_and_freedom() {
    let mut advantages = [1.0; 2];
    let error = group_advantages(&[1.0, 2.0], 0, POPULATION, &mut advantages).unwrap_err();
    assert!(matches!(error, KernelError::Range { name: "group_size", .. }));
    let none_left = Normalization { ddof: 2, ..POPULATION };
    let error = group_advantages(&[1.0, 2.0], 2, none_left, &mut advantages).unwrap_err();
    assert!(matches!(error, KernelError::Range { name: "ddof", .. }));
    group_advantages(&[1.0, 2.0], 1, Normalization { ddof: 1, ..POPULATION }, &mut advantages)
        .unwrap();
    assert_eq!(advantages, [0.0; 2]);
}

// 0.5 ln(0.5/0.9) + 0.5 ln(0.5/0.1) = 0.510826.
#[test]
fn divergences_by_hand() {
    let (p, q) = ([0.5_f64.ln(); 2], [0.9_f64.ln(), 0.1_f64.ln()]);
    assert!((token_kl(&p, &q).unwrap() - 0.510_825_623_765_990_7).abs() < 1e-15);
    // e - 1 - 1 for r = 1.
    let k3 = token_kl_schulman(&[-1.0], &[0.0]).unwrap();
    assert!((k3 - (std::f64::consts::E - 2.0)).abs() < 1e-15);
    assert_eq!(token_kl(&[f64::NEG_INFINITY], &[-1.0]), Ok(0.0));
}

#[test]
fn an_incomplete_sequence_is_refused() {
    let error = batch_token_kl_schulman(&[0.0; 3], &[0.0; 3], 2, &mut [0.0]).unwrap_err();
    assert!(matches!(error, KernelError::Parts { name: "log_p", size: 2, got: 3, .. }));
    let error = batch_token_kl_schulman::<f64>(&[], &[], 0, &mut []).unwrap_err();
    assert!(matches!(error, KernelError::Range { name: "seq_len", .. }));
}

#[test]
fn a_stream_refuses_what_is_not_finite_whole() {
    let mut moments = RunningMoments::new(2);
    moments.update(&[1.0, 2.0]).unwrap();
    let before = moments.clone();
    let error = moments.update(&[1.0, 2.0, f64::NAN, 1.0]).unwrap_err();
    assert_eq!(error, KernelError::NonFinite { name: "batch", index: 2 });
    assert!(moments.update(&[1.0]).is_err());
    assert!(moments.merge(&RunningMoments::new(3)).is_err());
    assert_eq!(moments, before);
    assert!(RunningMoments::from_parts(1, vec![0.0], vec![-1.0]).is_err());
}

// First fit decreasing, with a scan over the rows in place of the tree.
fn naive_pack(lengths: &[usize], max_len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by(|&a, &b| lengths[b].cmp(&lengths[a]).then(a.cmp(&b)));
    let (mut used, mut rows): (Vec<usize>, Vec<usize>) = (Vec::new(), vec![0; lengths.len()]);
    for sequence in order {
        let row = used.iter().position(|u| u + lengths[sequence] <= max_len).unwrap_or(used.len());
        if row == used.len() {
            used.push(0);
        }
        used[row] += lengths[sequence];
        rows[sequence] = row;
    }
    rows
}

proptest! {
    #[test]
    fn packing_is_first_fit_decreasing(lengths in prop::collection::vec(1_usize..10, 0..60)) {
        let packing = pack(&lengths, 12).unwrap();
        let expected = naive_pack(&lengths, 12);
        prop_assert_eq!(packing.n_rows, expected.iter().max().map_or(0, |last| last + 1));
        for (&sequence, &row) in packing.order.iter().zip(&packing.rows) {
            prop_assert_eq!(expected[sequence], row);
        }
        let mut order = packing.order.clone();
        order.sort_unstable();
        prop_assert_eq!(order, (0..lengths.len()).collect::<Vec<_>>());
    }

    #[test]
    fn rows_hold_what_the_packing_says(lengths in prop::collection::vec(1_usize..10, 0..40)) {
        let packing = pack(&lengths, 11).unwrap();
        let token = |sequence: usize, position: usize| (100 * sequence + position) as i64;
        let rows = packing.lay_out(-1, token).unwrap();
        let mut taken: Vec<i64> = rows.packed.iter().copied().filter(|&t| t >= 0).collect();
        taken.sort_unstable();
        let mut expected: Vec<i64> = (0..lengths.len())
            .flat_map(|sequence| (0..lengths[sequence]).map(move |at| token(sequence, at)))
            .collect();
        expected.sort_unstable();
        prop_assert_eq!(taken, expected);
        for ((&token, &mask), &position) in
            rows.packed.iter().zip(&rows.masks).zip(&rows.positions)
        {
            prop_assert_eq!(mask, token >= 0);
            prop_assert_eq!(position, if mask { token % 100 } else { 0 });
        }
    }

    #[test]
    fn a_stream_is_the_sum_of_its_parts(
        stream in prop::collection::vec(-1e3..1e3, 2..40), cut in 0_usize..40,
    ) {
        let cut = cut % stream.len();
        let (mut whole, mut left, mut right) =
            (RunningMoments::new(1), RunningMoments::new(1), RunningMoments::new(1));
        whole.update(&stream).unwrap();
        left.update(&stream[..cut]).unwrap();
        right.update(&stream[cut..]).unwrap();
        left.merge(&right).unwrap();
        prop_assert_eq!(whole.count(), left.count());
        prop_assert!((whole.mean()[0] - left.mean()[0]).abs() < 1e-9);
        prop_assert!((whole.variance()[0] - left.variance()[0]).abs() < 1e-6);
    }

    #[test]
    fn standardised_numbers_have_no_mean_and_unit_deviation(
        elements in prop::collection::vec(-1e3..1e3, 2..40),
    ) {
        let mut standardized = vec![0.0; elements.len()];
        standardize(&elements, 0, 0.0, &mut standardized).unwrap();
        let n = elements.len() as f64;
        let mean: f64 = standardized.iter().sum::<f64>() / n;
        let square: f64 = standardized.iter().map(|x| x * x).sum::<f64>() / n;
        prop_assert!(mean.abs() < 1e-6);
        prop_assert!((square - 1.0).abs() < 1e-6 || square == 0.0);
    }
}
