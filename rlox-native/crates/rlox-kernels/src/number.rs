//! Numbers of single or double precision, and flags of any type.

use std::ops::{Add, Mul, Sub};

/// The storage and arithmetic type of a kernel: `f32` or `f64`.
pub trait Float:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
{
    /// The nearest value of the type.
    fn from_f64(value: f64) -> Self;

    /// The same value in double precision.
    fn to_f64(self) -> f64;

    /// `e` to the power of the value.
    #[must_use]
    fn exp(self) -> Self;

    /// `chosen` if `condition` holds, else `other`, without a branch: a loop of bit selections is
    /// vectorised, a loop of branches is not.
    #[must_use]
    fn select(condition: bool, chosen: Self, other: Self) -> Self;
}

impl Float for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn exp(self) -> Self {
        self.exp()
    }

    #[inline]
    fn select(condition: bool, chosen: Self, other: Self) -> Self {
        let mask = u32::from(condition).wrapping_neg();
        Self::from_bits((chosen.to_bits() & mask) | (other.to_bits() & !mask))
    }
}

impl Float for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }

    fn to_f64(self) -> f64 {
        self
    }

    fn exp(self) -> Self {
        self.exp()
    }

    #[inline]
    fn select(condition: bool, chosen: Self, other: Self) -> Self {
        let mask = u64::from(condition).wrapping_neg();
        Self::from_bits((chosen.to_bits() & mask) | (other.to_bits() & !mask))
    }
}

/// An element of a mask: `bool`, or a byte that is zero for false, as foreign code stores it.
pub trait Flag: Copy + Send + Sync {
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
