//! V-trace targets and advantages.
//!
//! With `ρ_t = min(ρ̄, π/μ)` and `c_t = min(c̄, π/μ)` for the probability ratio of the learning
//! policy π to the acting policy μ:
//!
//! ```text
//! vs_t = V_t + ρ_t (r_t + γ V'_t - V_t) + γ c_t (vs_{t+1} - V_{t+1})
//! A_t  = ρ_t (r_t + γ vs'_t - V_t)
//! ```
//!
//! `V'_t` and `vs'_t` belong to the state after the step: 0 after termination, the value of the
//! final observation after truncation, row t + 1's otherwise. At both, the correction by row t + 1
//! stops. Blocks of envs are divided among threads if there is enough to do ([`crate::threads`]).
//!
//! Source: Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
//! Actor-Learner Architectures", ICML 2018, equation 1, remark 1 and section 4.2.

use crate::error::{Result, check_len, check_range};
use crate::number::{Flag, Float};
use crate::rollout::{TimeMajor, columns};
use crate::threads::{self, Meter};

/// Envs per block of a thread's work.
const BLOCK: usize = 64;

static COST: Meter = Meter::new();

/// V-trace's truncations of the policies' ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truncation {
    /// ρ̄, which determines the learned value function.
    pub rho_bar: f64,
    /// c̄, which determines the speed of learning; at most ρ̄ in the paper.
    pub c_bar: f64,
}

/// Outputs of [`vtrace`], both as long as the rewards.
#[derive(Debug)]
pub struct Targets<'a, F> {
    /// `vs_t`, the value function's targets.
    pub vs: &'a mut [F],
    /// `A_t`, the weights of the policy gradient.
    pub pg_advantages: &'a mut [F],
}

/// Computes targets and advantages of a rollout by another policy; `log_rhos` holds every step's
/// `log(π/μ)`.
///
/// # Errors
/// [`KernelError::Shape`](crate::KernelError::Shape) if a length does not fit,
/// [`KernelError::Range`](crate::KernelError::Range) for `gamma` outside `[0, 1]` or a negative
/// truncation.
pub fn vtrace<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    log_rhos: &[F],
    gamma: f64,
    truncation: Truncation,
    output: &mut Targets<'_, F>,
) -> Result<()> {
    check_range("gamma", gamma, 0.0, 1.0)?;
    check_range("rho_bar", truncation.rho_bar, 0.0, f64::INFINITY)?;
    check_range("c_bar", truncation.c_bar, 0.0, f64::INFINITY)?;
    input.check()?;
    let len = input.rewards.len();
    check_len("log_rhos", log_rhos.len(), "rewards", len)?;
    check_len("vs", output.vs.len(), "rewards", len)?;
    check_len("pg_advantages", output.pg_advantages.len(), "rewards", len)?;
    if len == 0 {
        return Ok(());
    }

    let n_envs = input.last_values.len();
    let factors = Factors {
        gamma: F::from_f64(gamma),
        rho_bar: F::from_f64(truncation.rho_bar),
        c_bar: F::from_f64(truncation.c_bar),
    };
    let helpers = if n_envs > BLOCK { COST.helpers(len) } else { 0 };
    let Targets { vs, pg_advantages } = output;
    if helpers == 0 {
        let rows = vs.chunks_exact_mut(n_envs).zip(pg_advantages.chunks_exact_mut(n_envs));
        COST.timed(len, || trace(input, log_rhos, 0, factors, rows));
        return Ok(());
    }
    let targets = columns(vs, n_envs, BLOCK).into_iter();
    let blocks = targets.zip(columns(pg_advantages, n_envs, BLOCK)).enumerate().collect();
    threads::for_each(blocks, helpers, |(block, (vs, pg_advantages))| {
        let rows = vs.into_iter().zip(pg_advantages);
        trace(input, log_rhos, block * BLOCK, factors, rows);
    });
    Ok(())
}

/// γ and the truncations, each rounded once.
#[derive(Clone, Copy)]
struct Factors<F> {
    gamma: F,
    rho_bar: F,
    c_bar: F,
}

/// Writes the `rows` of `vs` and of the advantages for consecutive envs from `first` on.
fn trace<'o, F: Float + 'o, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    log_rhos: &[F],
    first: usize,
    factors: Factors<F>,
    rows: impl DoubleEndedIterator<Item = (&'o mut [F], &'o mut [F])> + ExactSizeIterator,
) {
    let Factors { gamma, rho_bar, c_bar } = factors;
    let n_envs = input.last_values.len();
    let mut following: Option<&[F]> = None;
    for (step, (vs, pg_advantages)) in rows.enumerate().rev() {
        let begin = step * n_envs + first;
        for (env, (target, advantage)) in vs.iter_mut().zip(pg_advantages).enumerate() {
            let at = begin + env;
            let (next_value, next_vs) = match following {
                None => (input.last_values[first + env], input.last_values[first + env]),
                Some(following) => (input.values[at + n_envs], following[env]),
            };
            let (reward, value) = (input.rewards[at], input.values[at]);
            let ratio = log_rhos[at].exp();
            let (rho, c) = (at_most(ratio, rho_bar), at_most(ratio, c_bar));
            let delta = rho * (reward + gamma * input.successor(at, next_value) - value);
            let correction = gamma * c * (next_vs - next_value);
            let correction = F::select(input.ends(at), F::default(), correction);
            *target = value + (delta + correction);
            *advantage = rho * (reward + gamma * input.successor(at, next_vs) - value);
        }
        following = Some(vs);
    }
}

/// The smaller of the two; a NaN ratio stays NaN.
#[inline]
fn at_most<F: Float>(ratio: F, bound: F) -> F {
    if ratio > bound { bound } else { ratio }
}
