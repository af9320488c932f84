//! Any lengths and numbers: no panic, and refused outputs are left unchanged.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rlox_kernels::divergence::{batch_token_kl, batch_token_kl_schulman, token_kl};
use rlox_kernels::gae::{Discount, EnvMajor, Estimates, TimeMajor, gae_env_major, gae_time_major};
use rlox_kernels::groups::{Normalization, Scale, group_advantages};
use rlox_kernels::moments::{RunningMoments, standardize};
use rlox_kernels::packing::pack;
use rlox_kernels::returns::{discounted_returns, lambda_returns, n_step_returns};
use rlox_kernels::rng::Pcg64;
use rlox_kernels::vtrace::{Targets, Truncation, vtrace};

#[derive(Debug, Arbitrary)]
struct Input {
    rewards: Vec<f32>,
    /// Excess length of each of the other arrays, mostly 0.
    longer: [u8; 6],
    n_envs: u8,
    flags: u64,
    gamma: f64,
    lambda: f64,
    n: u8,
    eps: f64,
    ddof: u8,
    lengths: Vec<u8>,
    count: u64,
    words: [u64; 4],
}

fuzz_target!(|input: Input| {
    rollouts(&input);
    language(&input);
    streams(&input);
});

/// Advantages, returns and V-trace in both layouts.
fn rollouts(input: &Input) {
    let len = |k: usize| input.rewards.len() + usize::from(input.longer[k] / 0xF0);
    let numbers = |k: usize| vec![0.25_f32; len(k)];
    let flags = |k: usize, shift| -> Vec<u8> {
        (0..len(k)).map(|i| (input.flags >> ((i + shift) % 64)) as u8 & 1).collect()
    };
    let (values, finals, log_rhos) = (numbers(0), numbers(1), numbers(2));
    let (terminated, truncated) = (flags(3, 0), flags(4, 13));
    let last_values = vec![0.5; input.n_envs.into()];
    let time_major = TimeMajor {
        rewards: &input.rewards,
        values: &values,
        terminated: &terminated,
        truncated: &truncated,
        final_values: &finals,
        last_values: &last_values,
    };
    let (mut a, mut b) = (numbers(5), numbers(5));
    let rewards = input.rewards.iter().all(|reward| reward.abs() < 1e30);
    if let Ok(discount) = Discount::new(input.gamma, input.lambda) {
        let mut output = Estimates { advantages: &mut a, returns: &mut b };
        let done = gae_time_major(&time_major, discount, &mut output).is_ok();
        assert!(!done || !rewards || a.iter().chain(&b).all(|x| x.is_finite()));
        assert!(done || a.iter().all(|&x| x == 0.25));
        let _ = lambda_returns(&time_major, discount, &mut a);
        let env_major = EnvMajor {
            rewards: &input.rewards,
            values: &values,
            dones: &terminated,
            last_values: &last_values,
        };
        let mut output = Estimates { advantages: &mut a, returns: &mut b };
        let _ = gae_env_major(&env_major, input.n.into(), discount, &mut output);
        let _ = gae_env_major(&env_major, usize::MAX, discount, &mut output);
    }
    let _ = discounted_returns(&time_major, input.gamma, &mut a);
    let _ = n_step_returns(&time_major, input.gamma, input.n.into(), &mut a);
    let truncation = Truncation { rho_bar: input.lambda, c_bar: input.eps };
    let mut output = Targets { vs: &mut a, pg_advantages: &mut b };
    let _ = vtrace(&time_major, &log_rhos, input.gamma, truncation, &mut output);
}

/// Groups, divergences and packing.
fn language(input: &Input) {
    let mut out = vec![0.25_f32; input.rewards.len() + usize::from(input.longer[0] / 0xF0)];
    let scale = if input.flags & 1 == 0 { Scale::None } else { Scale::Group };
    let how = Normalization { scale, ddof: input.ddof.into(), eps: input.eps };
    let done = group_advantages(&input.rewards, input.n.into(), how, &mut out).is_ok();
    assert!(done || out.iter().all(|&x| x == 0.25));
    let _ = standardize(&input.rewards, input.ddof.into(), input.eps, &mut out);
    let other = &input.rewards[usize::from(input.longer[1] / 0xF0).min(input.rewards.len())..];
    let _ = token_kl(&input.rewards, other);
    let mut kl = vec![0.0; input.n_envs.into()];
    let _ = batch_token_kl(&input.rewards, other, input.n.into(), &mut kl);
    let _ = batch_token_kl_schulman(&input.rewards, other, input.n.into(), &mut kl);

    let lengths: Vec<usize> = input.lengths.iter().map(|&length| length.into()).collect();
    let Ok(packing) = pack(&lengths, input.n.into()) else { return };
    let rows = packing.lay_out(-1, |_, position| position as i64).unwrap();
    assert_eq!(rows.packed.len(), packing.n_rows * usize::from(input.n));
    assert_eq!(rows.masks.iter().filter(|&&taken| taken).count(), lengths.iter().sum());
    let places = rows.packed.iter().zip(&rows.positions).zip(&rows.masks);
    assert!(places.into_iter().all(|((packed, position), taken)| !taken || packed == position));
}

/// Saved moments and random streams.
fn streams(input: &Input) {
    let numbers: Vec<f64> = input.rewards.iter().map(|&x| x.into()).collect();
    let squares = numbers.iter().map(|x| x * x).collect();
    if let Ok(mut moments) = RunningMoments::from_parts(input.count, numbers, squares) {
        let before = moments.clone();
        let done = moments.update(&input.rewards).and_then(|()| moments.merge(&before));
        assert!(moments.count() >= before.count() || done.is_err());
        assert!(moments.mean().iter().all(|x| x.is_finite()));
        assert!(moments.variance().iter().all(|x| *x >= 0.0));
    }
    if let Ok(mut rng) = Pcg64::from_words(input.words) {
        assert_eq!(Pcg64::from_words(rng.to_words()).as_ref(), Ok(&rng));
        assert!((0.0..1.0).contains(&rng.next_double()));
    }
}
