//! NumPy's scalar arithmetic, bit for bit, where it differs from Rust's.

use std::hint::black_box;

/// `x**2` of a `numpy.float64`: the C library's `pow`, whose last bit is not always that of `x * x`.
#[inline]
pub(super) fn square(x: f64) -> f64 {
    // With a known exponent the compiler would turn the call into a multiplication.
    x.powf(black_box(2.0))
}

/// `x**2` of a `numpy.float32`.
#[inline]
pub(super) fn square_f32(x: f32) -> f32 {
    x.powf(black_box(2.0))
}

/// `numpy.cos` of a `numpy.float32` in [-π/4, π/4].
///
/// In single precision NumPy has its own sine and cosine: the polynomials of `loops_trigonometric`,
/// whose fused multiplications round alike on every machine that has them.
pub(super) fn cos_f32(x: f32) -> f32 {
    const COEFFICIENTS: [f32; 5] =
        bits([0x37cc_730b, 0xbab6_036e, 0x3d2a_aa9e, 0xbf00_0000, 0x3f80_0000]);
    if !fuses() {
        return x.cos();
    }
    polynomial(COEFFICIENTS, x * x)
}

/// `numpy.sin` of a `numpy.float32` in [-π/4, π/4].
pub(super) fn sin_f32(x: f32) -> f32 {
    const COEFFICIENTS: [f32; 5] =
        bits([0x363e_9dde, 0xb950_35dd, 0x3c08_88cd, 0xbe2a_aaab, 0x0000_0000]);
    if !fuses() {
        return x.sin();
    }
    polynomial(COEFFICIENTS, x * x).mul_add(x, x)
}

/// Horner's rule, the highest power first.
fn polynomial([first, rest @ ..]: [f32; 5], x: f32) -> f32 {
    rest.into_iter().fold(first, |sum, coefficient| sum.mul_add(x, coefficient))
}

const fn bits([a, b, c, d, e]: [u32; 5]) -> [f32; 5] {
    [f32::from_bits(a), f32::from_bits(b), f32::from_bits(c), f32::from_bits(d), f32::from_bits(e)]
}

/// Whether NumPy uses its polynomials on this processor; otherwise it calls the C library.
fn fuses() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        true
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    // If the compiler replaced the call by a multiplication, the two would agree everywhere.
    #[test]
    fn a_square_is_a_call_of_pow() {
        let differ = |i: &i32| {
            let x = f64::from(*i) / 3e3;
            square(x) != x * x
        };
        assert!((1..30_000).any(|i| differ(&i)));
    }
}
