//! Generalised advantage estimation.
//!
//! With the temporal-difference error `δ_t = r_t + γ V(s_{t+1}) - V(s_t)`, the estimator is `A_t =
//! δ_t + γλ A_{t+1}`, and the value function's regression target is `A_t + V(s_t)`. `V(s_{t+1})` is
//! 0 after a terminal state, and the trace `γλ A_{t+1}` stops at an episode's end.
//!
//! Source: Schulman, Moritz, Levine, Jordan, Abbeel, "High-Dimensional Continuous Control Using
//! Generalized Advantage Estimation", ICLR 2016, equations 11 to 16.
//!
//! All layouts apply the same operations in the same order and agree bit for bit. Ends are
//! selected, not multiplied by zero: a NaN in one episode never reaches another. Blocks of envs are
//! divided among threads if they are large enough ([`crate::threads`]).

mod env_major;
mod time_major;

pub use env_major::{EnvMajor, gae_env_major};
pub use time_major::gae_time_major;

pub use crate::number::{Flag, Float};
pub use crate::rollout::TimeMajor;

use crate::error::{Result, check_len, check_range};

/// Discount factors: `gamma` of the return, `lambda` of the trace; both in `[0, 1]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Discount {
    gamma: f64,
    lambda: f64,
}

impl Discount {
    /// Checks and keeps the two factors.
    ///
    /// # Errors
    /// [`KernelError::Range`](crate::KernelError::Range) for a factor outside `[0, 1]`, NaN included.
    pub fn new(gamma: f64, lambda: f64) -> Result<Self> {
        check_range("gamma", gamma, 0.0, 1.0)?;
        // The message uses Python's spelling, where `lambda` is a keyword.
        check_range("lam", lambda, 0.0, 1.0)?;
        Ok(Self { gamma, lambda })
    }

    /// γ.
    #[must_use]
    pub fn gamma(self) -> f64 {
        self.gamma
    }

    /// λ.
    #[must_use]
    pub fn lambda(self) -> f64 {
        self.lambda
    }

    /// γ and γλ, each rounded once.
    fn factors<F: Float>(self) -> Factors<F> {
        Factors { gamma: F::from_f64(self.gamma), trace: F::from_f64(self.gamma * self.lambda) }
    }
}

#[derive(Clone, Copy)]
struct Factors<F> {
    /// γ.
    gamma: F,
    /// γλ.
    trace: F,
}

impl<F: Float> Factors<F> {
    /// `δ_t`.
    #[inline]
    fn delta(self, reward: F, next_value: F, value: F) -> F {
        reward + self.gamma * next_value - value
    }

    /// `A_t` from `δ_t` and `A_{t+1}`; `ends` if an episode ends after step t.
    #[inline]
    fn advantage(self, delta: F, ends: bool, next_advantage: F) -> F {
        delta + if ends { F::default() } else { self.trace * next_advantage }
    }
}

/// Outputs of a kernel, both as long as the rewards.
#[derive(Debug)]
pub struct Estimates<'a, F> {
    /// `A_t`.
    pub advantages: &'a mut [F],
    /// `A_t + V(s_t)`.
    pub returns: &'a mut [F],
}

impl<F> Estimates<'_, F> {
    fn check(&self, len: usize) -> Result<()> {
        check_len("advantages", self.advantages.len(), "rewards", len)?;
        check_len("returns", self.returns.len(), "rewards", len)
    }
}

/// Writes `a + b`.
#[inline(never)]
fn add<F: Float>(a: &[F], b: &[F], sums: &mut [F]) {
    for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
        *sum = a + b;
    }
}
