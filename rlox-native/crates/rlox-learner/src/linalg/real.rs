//! The learner's number type, as scalars and as vectors of the machine's width.

use bytemuck::Pod;
use pulp::Simd;

use super::functions;

/// Matrix rows are padded with zeros to a multiple of this number of elements, a whole number of
/// vectors on every machine.
pub(crate) const PAD: usize = 16;

/// `n` rounded up to a whole number of vectors.
#[must_use]
#[inline]
pub const fn padded(n: usize) -> usize {
    n.next_multiple_of(PAD)
}

/// Elements from one row of a matrix with `n` columns to the next.
///
/// Rows a large power of two apart would share a few sets of the first-level cache and evict each
/// other; an extra vector puts a tile's rows into different sets.
#[must_use]
#[inline]
pub const fn row_stride(n: usize) -> usize {
    let width = padded(n);
    if width.is_multiple_of(128) { width + PAD } else { width }
}

/// The arithmetic type of a learner: `f32` or `f64`.
pub trait Real: num_traits::Float + Default + Pod + Send + Sync + std::fmt::Debug {
    /// A vector, the operand of one instruction.
    type Vector<S: Simd>: Pod;

    /// From this number to its double only integers are representable: their lowest bits count.
    const INTEGERS: f64;

    /// The nearest number.
    fn of(value: f64) -> Self;

    /// The lowest bits of the number's representation.
    fn low_bits(self) -> usize;

    /// The same number, or the nearest to it.
    fn widen(self) -> f64;

    /// The whole vectors at the beginning of `slice`.
    fn vectors<S: Simd>(slice: &[Self]) -> &[Self::Vector<S>];

    /// The whole vectors at the beginning of `slice`.
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [Self::Vector<S>];

    /// `value` in every place.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    /// `a + b`.
    fn sum<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a * b + c`, rounded once if the machine can.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// 0 where `value` is negative, else `value`: NaN stays NaN, as in torch.
    fn rectify<S: Simd>(simd: S, value: Self::Vector<S>) -> Self::Vector<S>;

    /// `value` where `sign` is positive, else 0.
    fn where_positive<S: Simd>(
        simd: S,
        sign: Self::Vector<S>,
        value: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// The sum of the elements.
    fn reduce<S: Simd>(simd: S, value: Self::Vector<S>) -> Self;

    /// Replaces every element by its hyperbolic tangent; the length is a multiple of 16.
    fn tanh_all<S: Simd>(simd: S, values: &mut [Self]);

    /// Replaces every element by its exponential; the length is a multiple of 16.
    fn exp_all<S: Simd>(simd: S, values: &mut [Self]);
}

impl Real for f32 {
    type Vector<S: Simd> = S::f32s;

    const INTEGERS: f64 = 8_388_608.0;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is meant")]
    fn of(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn low_bits(self) -> usize {
        self.to_bits() as usize
    }

    #[inline]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn vectors<S: Simd>(slice: &[Self]) -> &[S::f32s] {
        S::as_simd_f32s(slice).0
    }

    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(slice).0
    }

    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f32s {
        simd.splat_f32s(value)
    }

    #[inline(always)]
    fn sum<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
        simd.add_f32s(a, b)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        simd.mul_add_e_f32s(a, b, c)
    }

    #[inline(always)]
    fn rectify<S: Simd>(simd: S, value: S::f32s) -> S::f32s {
        let zero = simd.splat_f32s(0.0);
        simd.select_f32s(simd.less_than_f32s(value, zero), zero, value)
    }

    #[inline(always)]
    fn where_positive<S: Simd>(simd: S, sign: S::f32s, value: S::f32s) -> S::f32s {
        let zero = simd.splat_f32s(0.0);
        simd.select_f32s(simd.less_than_f32s(zero, sign), value, zero)
    }

    #[inline(always)]
    fn reduce<S: Simd>(simd: S, value: S::f32s) -> Self {
        simd.reduce_sum_f32s(value)
    }

    #[inline(always)]
    fn tanh_all<S: Simd>(simd: S, values: &mut [Self]) {
        for value in Self::vectors_mut::<S>(values) {
            *value = functions::tanh(simd, *value);
        }
    }

    #[inline(always)]
    fn exp_all<S: Simd>(simd: S, values: &mut [Self]) {
        for value in Self::vectors_mut::<S>(values) {
            *value = functions::exp(simd, *value);
        }
    }
}

/// For comparisons with references to many digits, with the standard library's functions.
impl Real for f64 {
    type Vector<S: Simd> = S::f64s;

    const INTEGERS: f64 = 4_503_599_627_370_496.0;

    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are meant")]
    fn low_bits(self) -> usize {
        self.to_bits() as usize
    }

    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn vectors<S: Simd>(slice: &[Self]) -> &[S::f64s] {
        S::as_simd_f64s(slice).0
    }

    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(slice).0
    }

    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f64s {
        simd.splat_f64s(value)
    }

    #[inline(always)]
    fn sum<S: Simd>(simd: S, a: S::f64s, b: S::f64s) -> S::f64s {
        simd.add_f64s(a, b)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f64s, b: S::f64s, c: S::f64s) -> S::f64s {
        simd.mul_add_e_f64s(a, b, c)
    }

    #[inline(always)]
    fn rectify<S: Simd>(simd: S, value: S::f64s) -> S::f64s {
        let zero = simd.splat_f64s(0.0);
        simd.select_f64s(simd.less_than_f64s(value, zero), zero, value)
    }

    #[inline(always)]
    fn where_positive<S: Simd>(simd: S, sign: S::f64s, value: S::f64s) -> S::f64s {
        let zero = simd.splat_f64s(0.0);
        simd.select_f64s(simd.less_than_f64s(zero, sign), value, zero)
    }

    #[inline(always)]
    fn reduce<S: Simd>(simd: S, value: S::f64s) -> Self {
        simd.reduce_sum_f64s(value)
    }

    fn tanh_all<S: Simd>(_: S, values: &mut [Self]) {
        for value in values {
            *value = value.tanh();
        }
    }

    fn exp_all<S: Simd>(_: S, values: &mut [Self]) {
        for value in values {
            *value = value.exp();
        }
    }
}
