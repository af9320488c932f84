//! Kullback-Leibler divergences from log-probabilities of tokens.
//!
//! `p` is the policy, `q` the reference. All sums are in double precision. Blocks of tokens or of
//! sequences are divided among threads if there is enough to do ([`crate::threads`]).
//!
//! - [`token_kl`]: `Σ p (log p - log q)`: KL(p ‖ q) if the tokens are a whole vocabulary; for
//!   sampled tokens neither that nor an estimate of it.
//! - [`token_kl_schulman`]: `Σ (q/p - 1 - log(q/p))` over tokens sampled from p, the estimator k3:
//!   unbiased, and no term is negative.
//!
//! Source: Schulman, "Approximating KL Divergence", 2020, <http://joschu.net/blog/kl-approx.html>.

use crate::error::{Result, check_len, check_parts, check_size};
use crate::number::Float;
use crate::threads::Meter;

/// Tokens per block of a thread's work; a longer sequence is a block of its own. Long sums add up
/// the sums of blocks, on one thread too.
const BLOCK: usize = 4096;

static COST: Meter = Meter::new();

/// `Σ exp(log_p) (log_p - log_q)`; a token of probability 0 under p adds 0.
///
/// # Errors
/// [`Shape`](crate::KernelError::Shape) where the lengths differ.
pub fn token_kl<F: Float>(log_p: &[F], log_q: &[F]) -> Result<f64> {
    total(log_p, log_q, kl_term)
}

fn kl_term(p: f64, q: f64) -> f64 {
    if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
}

/// `Σ exp(r) - r - 1` with `r = log_q - log_p`.
///
/// # Errors
/// [`Shape`](crate::KernelError::Shape) where the lengths differ.
pub fn token_kl_schulman<F: Float>(log_p: &[F], log_q: &[F]) -> Result<f64> {
    total(log_p, log_q, schulman_term)
}

fn schulman_term(p: f64, q: f64) -> f64 {
    let r = q - p;
    r.exp_m1() - r
}

/// [`token_kl`] of each of several sequences of `seq_len` tokens, stored one after the other.
///
/// # Errors
/// [`Parts`](crate::KernelError::Parts) and [`Shape`](crate::KernelError::Shape) where a length
/// does not fit, [`Range`](crate::KernelError::Range) for a `seq_len` of 0.
pub fn batch_token_kl<F: Float>(
    log_p: &[F],
    log_q: &[F],
    seq_len: usize,
    kl: &mut [F],
) -> Result<()> {
    per_sequence(log_p, log_q, seq_len, kl, kl_term)
}

/// [`token_kl_schulman`] of each sequence, laid out as for [`batch_token_kl`].
///
/// # Errors
/// [`Parts`](crate::KernelError::Parts) and [`Shape`](crate::KernelError::Shape) where a length
/// does not fit, [`Range`](crate::KernelError::Range) for a `seq_len` of 0.
pub fn batch_token_kl_schulman<F: Float>(
    log_p: &[F],
    log_q: &[F],
    seq_len: usize,
    kl: &mut [F],
) -> Result<()> {
    per_sequence(log_p, log_q, seq_len, kl, schulman_term)
}

/// The sum of all terms.
fn total<F: Float>(log_p: &[F], log_q: &[F], term: impl Fn(f64, f64) -> f64 + Sync) -> Result<f64> {
    check_len("log_q", log_q.len(), "log_p", log_p.len())?;
    let mut sums = vec![0.0; log_p.len().div_ceil(BLOCK)];
    let blocks = sums.iter_mut().zip(log_p.chunks(BLOCK).zip(log_q.chunks(BLOCK))).collect();
    COST.for_each(log_p.len(), blocks, |(sum, (p, q))| *sum = block_sum(p, q, &term));
    Ok(sums.into_iter().fold(0.0, |total, sum| total + sum))
}

/// The sum of the terms of at most [`BLOCK`] tokens.
fn block_sum<F: Float>(log_p: &[F], log_q: &[F], term: impl Fn(f64, f64) -> f64) -> f64 {
    let terms = log_p.iter().zip(log_q).map(|(p, q)| term(p.to_f64(), q.to_f64()));
    // Starts from 0, because an empty float sum is -0.0.
    terms.fold(0.0, |sum, term| sum + term)
}

fn per_sequence<F: Float>(
    log_p: &[F],
    log_q: &[F],
    seq_len: usize,
    kl: &mut [F],
    term: impl Fn(f64, f64) -> f64 + Sync,
) -> Result<()> {
    check_size("seq_len", seq_len, usize::MAX)?;
    let len = log_p.len();
    check_parts("log_p", len, "sequences", "seq_len", seq_len)?;
    check_len("log_q", log_q.len(), "log_p", len)?;
    check_len("kl", kl.len(), "the sequences", len / seq_len)?;
    let per_block = (BLOCK / seq_len).max(1);
    let size = per_block * seq_len;
    let blocks = kl.chunks_mut(per_block).zip(log_p.chunks(size).zip(log_q.chunks(size))).collect();
    COST.for_each(len, blocks, |(kl, (log_p, log_q))| {
        let sequences = log_p.chunks_exact(seq_len).zip(log_q.chunks_exact(seq_len));
        for (slot, (p, q)) in kl.iter_mut().zip(sequences) {
            let blocks = p.chunks(BLOCK).zip(q.chunks(BLOCK));
            *slot = F::from_f64(blocks.fold(0.0, |sum, (p, q)| sum + block_sum(p, q, &term)));
        }
    });
    Ok(())
}
