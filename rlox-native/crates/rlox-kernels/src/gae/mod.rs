//! Generalised advantage estimation.
//!
//! With the temporal-difference error `δ_t = r_t + γ V(s_{t+1}) - V(s_t)`, the estimator is
//! `A_t = δ_t + γλ A_{t+1}`, and the return that a value function regresses on is `A_t + V(s_t)`.
//! `V(s_{t+1})` is 0 after a terminal state, and the trace `γλ A_{t+1}` stops at an episode's end.
//!
//! Source: Schulman, Moritz, Levine, Jordan, Abbeel, "High-Dimensional Continuous Control Using
//! Generalized Advantage Estimation", ICLR 2016, equations 11 to 16.
//!
//! All layouts compute an element with the same operations in the same order, so they agree bit for
//! bit. Ends are selected, not multiplied by zero: a NaN in one episode never reaches another.
//! There are no threads: one core is bound by memory from about a hundred thousand elements on
//! (`benches/gae.rs`), and below that starting threads costs more than the sum.

mod env_major;
mod time_major;

pub use env_major::{EnvMajor, gae_env_major};
pub use time_major::{TimeMajor, gae_time_major};

use std::ops::{Add, Mul, Sub};

use crate::error::{Result, check_len, check_range};

/// The storage and arithmetic type of a kernel: `f32` or `f64`.
pub trait Float:
    Copy + Default + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    /// The nearest value of the type.
    fn from_f64(value: f64) -> Self;

    /// `chosen` where `condition` holds and `other` elsewhere, without a branch: a loop over
    /// selections of bits works on whole vectors, a loop over branches does not.
    #[must_use]
    fn select(condition: bool, chosen: Self, other: Self) -> Self;
}

impl Float for f32 {
    #[inline]
    fn select(condition: bool, chosen: Self, other: Self) -> Self {
        let mask = u32::from(condition).wrapping_neg();
        Self::from_bits((chosen.to_bits() & mask) | (other.to_bits() & !mask))
    }

    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Float for f64 {
    #[inline]
    fn select(condition: bool, chosen: Self, other: Self) -> Self {
        let mask = u64::from(condition).wrapping_neg();
        Self::from_bits((chosen.to_bits() & mask) | (other.to_bits() & !mask))
    }

    fn from_f64(value: f64) -> Self {
        value
    }
}

/// An element of a mask: `bool`, or a byte that is zero for false, as foreign code stores it.
pub trait Flag: Copy {
    /// Whether the flag is set.
    fn is_set(self) -> bool;
}

impl Flag for bool {
    fn is_set(self) -> bool {
        self
    }
}

impl Flag for u8 {
    fn is_set(self) -> bool {
        self != 0
    }
}

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

    /// `A_t` from `δ_t` and `A_{t+1}`; `ends` where an episode ends after step t.
    #[inline]
    fn advantage(self, delta: F, ends: bool, next_advantage: F) -> F {
        delta + if ends { F::default() } else { self.trace * next_advantage }
    }
}

/// Where a kernel writes: both slices as long as the rewards.
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
