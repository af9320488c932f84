//! Returns and V-trace against sums written from their definitions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::gae::Discount;
use rlox_kernels::returns::{discounted_returns, lambda_returns, n_step_returns};
use rlox_kernels::rollout::TimeMajor;
use rlox_kernels::vtrace::{Targets, Truncation, vtrace};

const NEVER: [bool; 3] = [false; 3];
const STEPS: TimeMajor<'_, f64, bool> = TimeMajor {
    rewards: &[1.0, 2.0, 4.0],
    values: &[2.0, 4.0, 8.0],
    terminated: &NEVER,
    truncated: &NEVER,
    final_values: &[f64::NAN; 3],
    last_values: &[16.0],
};

// γ = 1/2: 4 + 8 = 12, 2 + 6 = 8, 1 + 4 = 5.
#[test]
fn discounted_returns_by_hand() {
    let mut returns = [0.0; 3];
    discounted_returns(&STEPS, 0.5, &mut returns).unwrap();
    assert_eq!(returns, [5.0, 8.0, 12.0]);
}

// Two steps: 12, 2 + 4/2 + 16/4 = 8, 1 + 2/2 + 8/4 = 4.
#[test]
fn n_step_returns_by_hand() {
    let mut returns = [0.0; 3];
    n_step_returns(&STEPS, 0.5, 2, &mut returns).unwrap();
    assert_eq!(returns, [4.0, 8.0, 12.0]);
}

// λ = 1/2: 12, 2 + (8 + 12)/4 = 7, 1 + (4 + 7)/4 = 3.75.
#[test]
fn lambda_returns_by_hand() {
    let mut returns = [0.0; 3];
    lambda_returns(&STEPS, Discount::new(0.5, 0.5).unwrap(), &mut returns).unwrap();
    assert_eq!(returns, [3.75, 7.0, 12.0]);
}

// The first step terminates, the second is cut where the final observation is worth 6.
#[test]
fn ends_stop_every_return() {
    let input = TimeMajor {
        terminated: &[true, false, false],
        truncated: &[false, true, false],
        final_values: &[f64::NAN, 6.0, f64::NAN],
        ..STEPS
    };
    let mut returns = [0.0; 3];
    n_step_returns(&input, 0.5, 9, &mut returns).unwrap();
    assert_eq!(returns, [1.0, 5.0, 12.0]);
    lambda_returns(&input, Discount::new(0.5, 0.3).unwrap(), &mut returns).unwrap();
    assert_eq!(returns, [1.0, 5.0, 12.0]);
}

#[test]
fn wrong_numbers_are_refused() {
    let mut returns = [0.0; 3];
    let error = n_step_returns(&STEPS, 0.5, 0, &mut returns).unwrap_err();
    assert!(matches!(error, KernelError::Range { name: "n", .. }));
    let error = discounted_returns(&STEPS, 2.0, &mut returns).unwrap_err();
    assert!(matches!(error, KernelError::Range { name: "gamma", .. }));
    let error = discounted_returns(&STEPS, 0.5, &mut returns[..2]).unwrap_err();
    assert!(matches!(error, KernelError::Shape { name: "returns", .. }));
    let (mut vs, mut pg_advantages) = ([0.0; 3], [0.0; 3]);
    let mut output = Targets { vs: &mut vs, pg_advantages: &mut pg_advantages };
    for (rho_bar, c_bar) in [(-1.0, 1.0), (1.0, f64::NAN)] {
        let bars = Truncation { rho_bar, c_bar };
        let error = vtrace(&STEPS, &[0.0; 3], 0.5, bars, &mut output).unwrap_err();
        assert!(matches!(error, KernelError::Range { .. }));
    }
}

#[test]
fn a_ratio_that_is_no_number_stays_one() {
    let (mut vs, mut pg_advantages) = ([0.0; 3], [0.0; 3]);
    let mut output = Targets { vs: &mut vs, pg_advantages: &mut pg_advantages };
    let bars = Truncation { rho_bar: 1.0, c_bar: 1.0 };
    vtrace(&STEPS, &[0.0, f64::NAN, f64::INFINITY], 0.5, bars, &mut output).unwrap();
    assert!(vs[1].is_nan() && vs[2].is_finite());
}

prop_compose! {
    fn rollouts()(n_steps in 1_usize..30, n_envs in 1_usize..5)(
        floats in prop::collection::vec(-9.0..9.0, 4 * n_steps * n_envs),
        ends in prop::collection::vec(prop::bool::weighted(0.2), 2 * n_steps * n_envs),
        last in prop::collection::vec(-9.0..9.0, n_envs),
    ) -> (Vec<f64>, Vec<bool>, Vec<f64>) { (floats, ends, last) }
}

fn time_major<'a>(
    (floats, ends, last): &'a (Vec<f64>, Vec<bool>, Vec<f64>),
) -> (TimeMajor<'a, f64, bool>, &'a [f64]) {
    let len = ends.len() / 2;
    let input = TimeMajor {
        rewards: &floats[..len],
        values: &floats[len..2 * len],
        terminated: &ends[..len],
        truncated: &ends[len..],
        final_values: &floats[2 * len..3 * len],
        last_values: last,
    };
    (input, &floats[3 * len..])
}

// V-trace written forwards: the value, and every later correction weighed by the product of the c.
fn naive_vs(
    input: &TimeMajor<'_, f64, bool>,
    log_rhos: &[f64],
    gamma: f64,
    bars: Truncation,
) -> Vec<f64> {
    let n_envs = input.last_values.len();
    let len = input.rewards.len();
    let target = |start: usize| {
        let (mut total, mut weight, mut at) = (input.values[start], 1.0, start);
        loop {
            let next = input.values.get(at + n_envs).or(input.last_values.get(at % n_envs));
            let next = match (input.terminated[at], input.truncated[at]) {
                (true, _) => 0.0,
                (false, true) => input.final_values[at],
                (false, false) => *next.unwrap(),
            };
            let ratio = log_rhos[at].exp();
            let delta = input.rewards[at] + gamma * next - input.values[at];
            total += weight * ratio.min(bars.rho_bar) * delta;
            weight *= gamma * ratio.min(bars.c_bar);
            if input.terminated[at] || input.truncated[at] || at + n_envs >= len {
                return total;
            }
            at += n_envs;
        }
    };
    (0..len).map(target).collect()
}

proptest! {
    #[test]
    fn vtrace_equals_the_naive_sum(
        rollout in rollouts(), gamma in 0.0..=1.0, rho_bar in 0.0..2.0, c_bar in 0.0..2.0,
    ) {
        let (input, log_rhos) = time_major(&rollout);
        let log_rhos: Vec<f64> = log_rhos.iter().map(|x| x / 9.0).collect();
        let bars = Truncation { rho_bar, c_bar };
        let (mut vs, mut pg_advantages) = (vec![0.0; log_rhos.len()], vec![0.0; log_rhos.len()]);
        let mut output = Targets { vs: &mut vs, pg_advantages: &mut pg_advantages };
        vtrace(&input, &log_rhos, gamma, bars, &mut output).unwrap();
        for (got, expected) in vs.iter().zip(naive_vs(&input, &log_rhos, gamma, bars)) {
            prop_assert!((got - expected).abs() <= 1e-9 * (1.0 + expected.abs()));
        }
    }

    #[test]
    fn the_returns_meet_at_their_limits(rollout in rollouts(), gamma in 0.0..=1.0) {
        let (input, _) = time_major(&rollout);
        let len = input.rewards.len();
        let (mut one, mut other) = (vec![0.0; len], vec![0.0; len]);
        n_step_returns(&input, gamma, 1, &mut one).unwrap();
        lambda_returns(&input, Discount::new(gamma, 0.0).unwrap(), &mut other).unwrap();
        prop_assert_eq!(&one, &other);
        n_step_returns(&input, gamma, usize::MAX, &mut one).unwrap();
        discounted_returns(&input, gamma, &mut other).unwrap();
        for (a, b) in one.iter().zip(&other) {
            prop_assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()));
        }
    }
}
