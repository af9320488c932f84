//! The layouts of generalised advantage estimation against values by hand and a naive loop.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::gae::{
    Discount, EnvMajor, Estimates, Float, TimeMajor, gae_env_major, gae_time_major,
};

type Result<T> = rlox_kernels::Result<T>;

fn env_major<F: Float>(
    input: &EnvMajor<'_, F, bool>,
    n_steps: usize,
    discount: Discount,
) -> Result<(Vec<F>, Vec<F>)> {
    let mut advantages = vec![F::default(); input.rewards.len()];
    let mut returns = advantages.clone();
    let mut output = Estimates { advantages: &mut advantages, returns: &mut returns };
    gae_env_major(input, n_steps, discount, &mut output)?;
    Ok((advantages, returns))
}

fn time_major<F: Float>(
    input: &TimeMajor<'_, F, bool>,
    discount: Discount,
) -> Result<(Vec<F>, Vec<F>)> {
    let mut advantages = vec![F::default(); input.rewards.len()];
    let mut returns = advantages.clone();
    let mut output = Estimates { advantages: &mut advantages, returns: &mut returns };
    gae_time_major(input, discount, &mut output)?;
    Ok((advantages, returns))
}

fn half() -> Discount {
    Discount::new(0.5, 0.5).unwrap()
}

// γ = λ = 1/2, so γλ = 1/4; r = 1 2 3, V = 4 8 2, V(last) = 6.
//   δ_2 = 3 + 6/2 - 2 = 4       A_2 = 4
//   δ_1 = 2 + 2/2 - 8 = -5      A_1 = -5 + 4/4 = -4
//   δ_0 = 1 + 8/2 - 4 = 1       A_0 = 1 - 4/4 = 0
#[test]
fn a_trajectory_without_end_bootstraps_from_the_last_value() {
    let input = EnvMajor {
        rewards: &[1.0, 2.0, 3.0],
        values: &[4.0, 8.0, 2.0],
        dones: &[false; 3],
        last_values: &[6.0],
    };
    let expected = (vec![0.0, -4.0, 4.0], vec![4.0, 4.0, 6.0]);
    assert_eq!(env_major(&input, 3, half()), Ok(expected));
}

// The trajectory above, done after step 1: δ_1 = 2 - 8 = -6 = A_1, A_0 = 1 - 6/4 = -1/2.
#[test]
fn an_end_stops_bootstrap_and_trace() {
    let input = EnvMajor {
        rewards: &[1.0, 2.0, 3.0],
        values: &[4.0, 8.0, 2.0],
        dones: &[false, true, false],
        last_values: &[6.0],
    };
    let expected = (vec![-0.5, -6.0, 4.0], vec![3.5, 2.0, 6.0]);
    assert_eq!(env_major(&input, 3, half()), Ok(expected));
}

// The trajectory above in two envs side by side; step 1 terminates in the first, and is truncated
// in the second with V(final observation) = 10: δ_1 = 2 + 10/2 - 8 = -1 = A_1, A_0 = 1 - 1/4 = 3/4.
#[test]
fn a_cut_bootstraps_from_the_final_value_and_stops_the_trace() {
    let input = TimeMajor {
        rewards: &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0],
        values: &[4.0, 4.0, 8.0, 8.0, 2.0, 2.0],
        terminated: &[false, false, true, false, false, false],
        truncated: &[false, false, true, true, false, false],
        final_values: &[f64::NAN, f64::NAN, f64::NAN, 10.0, f64::NAN, f64::NAN],
        last_values: &[6.0, 6.0],
    };
    let advantages = vec![-0.5, 0.75, -6.0, -1.0, 4.0, 4.0];
    let returns = vec![3.5, 4.75, 2.0, 7.0, 6.0, 6.0];
    assert_eq!(time_major(&input, half()), Ok((advantages, returns)));
}

#[test]
fn a_nan_stays_in_its_episode() {
    let input = EnvMajor {
        rewards: &[1.0, f64::NAN, 1.0],
        values: &[0.0; 3],
        dones: &[true, true, false],
        last_values: &[0.0],
    };
    let (advantages, _) = env_major(&input, 3, half()).unwrap();
    assert_eq!(advantages.iter().map(|a| a.is_nan()).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn no_steps_and_no_envs_give_nothing() {
    let none: &[f64] = &[];
    let input = EnvMajor { rewards: none, values: none, dones: &[], last_values: &[1.0] };
    assert_eq!(env_major(&input, 0, half()), Ok((vec![], vec![])));
    let input = TimeMajor {
        rewards: none,
        values: none,
        terminated: &[],
        truncated: &[],
        final_values: none,
        last_values: none,
    };
    assert_eq!(time_major(&input, half()), Ok((vec![], vec![])));
}

#[test]
fn wrong_lengths_are_refused_by_name() {
    let input = EnvMajor {
        rewards: &[1.0; 4],
        values: &[1.0; 3],
        dones: &[false; 4],
        last_values: &[1.0; 2],
    };
    let error = env_major(&input, 2, half()).unwrap_err();
    assert_eq!(error.to_string(), "values must have length 4 like rewards, got 3");
    let error = env_major(&input, usize::MAX, half()).unwrap_err();
    assert!(matches!(error, KernelError::OutOfMemory { .. }));
    let input = TimeMajor {
        rewards: &[1.0; 3],
        values: &[1.0; 3],
        terminated: &[false; 3],
        truncated: &[false; 3],
        final_values: &[1.0; 3],
        last_values: &[1.0; 2],
    };
    let error = time_major(&input, half()).unwrap_err();
    let text = "rewards must have length 2 like whole rows of last_values, got 3";
    assert_eq!(error.to_string(), text);
}

#[test]
fn factors_outside_the_unit_interval_are_refused() {
    assert!(Discount::new(0.0, 1.0).is_ok());
    for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let gamma = Discount::new(bad, 0.5).unwrap_err();
        assert!(matches!(gamma, KernelError::Range { name: "gamma", .. }));
        let lambda = Discount::new(0.5, bad).unwrap_err();
        assert!(matches!(lambda, KernelError::Range { name: "lam", .. }));
    }
}

// A rollout of random size, values and ends, time-major.
#[derive(Debug, Clone)]
struct Rollout {
    n_steps: usize,
    n_envs: usize,
    rewards: Vec<f64>,
    values: Vec<f64>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    final_values: Vec<f64>,
    last_values: Vec<f64>,
}

fn rollouts() -> impl Strategy<Value = Rollout> {
    // Past two tiles of steps, and every remainder of envs by the number of lanes.
    (0_usize..300, 1_usize..20).prop_flat_map(|(n_steps, n_envs)| {
        let floats = |len| prop::collection::vec(-10.0..10.0, len);
        let flags = |len| prop::collection::vec(prop::bool::weighted(0.1), len);
        let len = n_steps * n_envs;
        (floats(len), floats(len), flags(len), flags(len), floats(len), floats(n_envs)).prop_map(
            move |(rewards, values, terminated, truncated, final_values, last_values)| Rollout {
                n_steps,
                n_envs,
                rewards,
                values,
                terminated,
                truncated,
                final_values,
                last_values,
            },
        )
    })
}

// One env at a time, one step at a time, with ends written as zeros.
fn naive(rollout: &Rollout, gamma: f64, lambda: f64) -> Vec<f64> {
    let mut advantages = vec![0.0; rollout.rewards.len()];
    for env in 0..rollout.n_envs {
        let (mut next_value, mut next_advantage) = (rollout.last_values[env], 0.0);
        for step in (0..rollout.n_steps).rev() {
            let at = step * rollout.n_envs + env;
            let bootstrap = match (rollout.terminated[at], rollout.truncated[at]) {
                (true, _) => 0.0,
                (false, true) => rollout.final_values[at],
                (false, false) => next_value,
            };
            let goes_on = f64::from(u8::from(!rollout.terminated[at] && !rollout.truncated[at]));
            let delta = rollout.rewards[at] + gamma * bootstrap - rollout.values[at];
            advantages[at] = delta + gamma * lambda * goes_on * next_advantage;
            (next_value, next_advantage) = (rollout.values[at], advantages[at]);
        }
    }
    advantages
}

fn transpose<T: Copy>(elements: &[T], rows: usize, columns: usize) -> Vec<T> {
    let column = |column| (0..rows).map(move |row| elements[row * columns + column]);
    (0..columns).flat_map(column).collect()
}

fn time_major_of(rollout: &Rollout, discount: Discount) -> (Vec<f64>, Vec<f64>) {
    let input = TimeMajor {
        rewards: &rollout.rewards,
        values: &rollout.values,
        terminated: &rollout.terminated,
        truncated: &rollout.truncated,
        final_values: &rollout.final_values,
        last_values: &rollout.last_values,
    };
    time_major(&input, discount).unwrap()
}

proptest! {
    #[test]
    fn time_major_equals_the_naive_loop(
        rollout in rollouts(), gamma in 0.0..=1.0, lambda in 0.0..=1.0,
    ) {
        let (advantages, returns) = time_major_of(&rollout, Discount::new(gamma, lambda).unwrap());
        for (at, expected) in naive(&rollout, gamma, lambda).into_iter().enumerate() {
            prop_assert!((advantages[at] - expected).abs() <= 1e-10 * (1.0 + expected.abs()));
            prop_assert_eq!(returns[at], advantages[at] + rollout.values[at]);
        }
    }

    #[test]
    fn the_layouts_agree_bit_for_bit(
        mut rollout in rollouts(), gamma in 0.0..=1.0, lambda in 0.0..=1.0,
    ) {
        rollout.truncated.fill(false);
        let discount = Discount::new(gamma, lambda).unwrap();
        let (n_steps, n_envs) = (rollout.n_steps, rollout.n_envs);
        let (advantages, returns) = time_major_of(&rollout, discount);
        let input = EnvMajor {
            rewards: &transpose(&rollout.rewards, n_steps, n_envs),
            values: &transpose(&rollout.values, n_steps, n_envs),
            dones: &transpose(&rollout.terminated, n_steps, n_envs),
            last_values: &rollout.last_values,
        };
        let (other_advantages, other_returns) = env_major(&input, n_steps, discount).unwrap();
        prop_assert_eq!(transpose(&advantages, n_steps, n_envs), other_advantages);
        prop_assert_eq!(transpose(&returns, n_steps, n_envs), other_returns);
    }

    #[test]
    fn single_precision_is_double_precision_rounded(rollout in rollouts()) {
        let single = |values: &[f64]| values.iter().map(|&v| f32::from_f64(v)).collect::<Vec<_>>();
        let (rewards, values) = (single(&rollout.rewards), single(&rollout.values));
        let input = TimeMajor {
            rewards: &rewards,
            values: &values,
            terminated: &rollout.terminated,
            truncated: &rollout.truncated,
            final_values: &single(&rollout.final_values),
            last_values: &single(&rollout.last_values),
        };
        let (advantages, _) = time_major(&input, Discount::new(0.99, 0.95).unwrap()).unwrap();
        for (advantage, expected) in advantages.into_iter().zip(naive(&rollout, 0.99, 0.95)) {
            // Twenty effective steps of terms up to 20 in size, each rounded to 2^-24 of itself.
            prop_assert!((f64::from(advantage) - expected).abs() < 5e-4);
        }
    }
}
