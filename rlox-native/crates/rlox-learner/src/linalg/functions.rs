//! tanh and exp of single-precision vectors, without a branch.

use pulp::Simd;

/// Coefficients of `x P(x²) / Q(x²)`, fitted to tanh on [0, 8.3] for the least maximal relative
/// error, 9e-9 before rounding; constant term first, which is 1 in Q.
const TANH_P: [f32; 5] = [0.999_999_99, 0.134_258_79, 3.549_179e-3, 2.150_865_5e-5, 1.464_847_4e-8];
const TANH_Q: [f32; 4] = [0.467_592_04, 2.607_998_8e-2, 3.373_966_5e-4, 8.295_197_6e-7];

/// Beyond this, tanh is 1 to within 1.3e-7.
const TANH_SATURATES: f32 = 8.3;

/// tanh to within 5e-7 of its value.
#[inline(always)]
pub(super) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value| simd.splat_f32s(value);
    // The bounds come first: if x is NaN, the machine returns the second operand.
    let x = simd.max_f32s(splat(-TANH_SATURATES), x);
    let x = simd.min_f32s(splat(TANH_SATURATES), x);
    let z = simd.mul_f32s(x, x);
    let [p0, p1, p2, p3, p4] = TANH_P;
    let [q1, q2, q3, q4] = TANH_Q;
    let numerator = horner(simd, z, [p4, p3, p2, p1, p0]);
    let denominator = horner(simd, z, [q4, q3, q2, q1, 1.0]);
    simd.div_f32s(simd.mul_f32s(x, numerator), denominator)
}

/// 1.5 · 2^23: adding it rounds to an integer and puts that in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Coefficients of exp(r) after 1 + r, from Cephes' `expf` (S. Moshier), highest first.
const EXP: [f32; 6] =
    [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];

/// ln 2 as a number with few bits, whose multiples are exact, plus the remainder.
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Arguments beyond which exp leaves the range of normal numbers.
const EXP_RANGE: [f32; 2] = [-87.3, 88.3];

/// exp to within 5e-7 of its value; arguments are clamped to [`EXP_RANGE`].
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |value| simd.splat_f32s(value);
    let x = simd.max_f32s(splat(EXP_RANGE[0]), x);
    let x = simd.min_f32s(splat(EXP_RANGE[1]), x);
    let shifted = simd.mul_add_e_f32s(x, splat(std::f32::consts::LOG2_E), splat(ROUND));
    let n = simd.sub_f32s(shifted, splat(ROUND));
    let r = simd.mul_add_e_f32s(n, splat(-LN2[0]), x);
    let r = simd.mul_add_e_f32s(n, splat(-LN2[1]), r);
    let tail = horner(simd, r, EXP);
    let power = simd.mul_add_e_f32s(simd.mul_f32s(r, r), tail, simd.add_f32s(r, splat(1.0)));
    // Adding n to the exponent multiplies by 2^n.
    let exponent =
        simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(power), exponent))
}

/// The polynomial with these coefficients, highest first.
#[inline(always)]
fn horner<S: Simd, const N: usize>(simd: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut sum = simd.splat_f32s(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = simd.mul_add_e_f32s(sum, x, simd.splat_f32s(coefficient));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::Real;
    use pulp::{Arch, Simd, WithSimd};

    /// Stride, a prime, over the tested single-precision numbers.
    const STRIDE: usize = 97;

    struct Call<'a> {
        tanh: bool,
        values: &'a mut [f32],
    }

    impl WithSimd for Call<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            if self.tanh {
                f32::tanh_all(simd, self.values);
            } else {
                f32::exp_all(simd, self.values);
            }
        }
    }

    /// The largest relative error against `expected` over numbers of [low, high] and their negatives.
    fn largest_error(tanh: bool, low: f32, high: f32, expected: fn(f64) -> f64) -> f64 {
        let mut bits = (low.to_bits()..=high.to_bits()).step_by(STRIDE);
        let mut largest = 0.0_f64;
        loop {
            let inputs: Vec<f32> =
                bits.by_ref().take(2048).map(f32::from_bits).flat_map(|x| [x, -x]).collect();
            if inputs.is_empty() {
                return largest;
            }
            let mut outputs = inputs.clone();
            outputs.resize(outputs.len().next_multiple_of(16), 0.0);
            Arch::new().dispatch(Call { tanh, values: &mut outputs });
            for (&input, &output) in inputs.iter().zip(&outputs) {
                let exact = expected(f64::from(input));
                largest = largest.max((f64::from(output) / exact - 1.0).abs());
            }
        }
    }

    #[test]
    fn tanh_is_accurate_over_all_numbers() {
        assert!(largest_error(true, f32::MIN_POSITIVE, f32::MAX, f64::tanh) < 5e-7);
    }

    #[test]
    fn exp_is_accurate_over_its_range() {
        assert!(largest_error(false, 1e-10, 87.2, f64::exp) < 5e-7);
    }

    #[test]
    fn nan_stays_nan() {
        let mut values = [f32::NAN; 16];
        Arch::new().dispatch(Call { tanh: true, values: &mut values });
        assert!(values.iter().all(|value| value.is_nan()));
        Arch::new().dispatch(Call { tanh: false, values: &mut values });
        assert!(values.iter().all(|value| value.is_nan()));
    }

    #[test]
    fn extremes_stay_finite() {
        let mut values = [f32::INFINITY; 16];
        Arch::new().dispatch(Call { tanh: false, values: &mut values });
        assert!(values.iter().all(|&value| value > 1e38 && value.is_finite()));
    }
}
