//! Products of a few columns.

use pulp::Simd;

use super::Real;
use super::real::{padded, row_stride};

/// `out = start + left · transposed`, a few columns wide: element (i, j) is the product of row i of
/// `left` and row j of the transposed right operand, both with zeros as padding.
///
/// `out` and `start` are in rows of [`row_stride`], as in [`product`](super::product::product).
#[inline(always)]
pub(super) fn row_products<F: Real, S: Simd>(
    simd: S,
    left: &[F],
    transposed: &[F],
    (depth, width): (usize, usize),
    start: Option<&[F]>,
    out: &mut [F],
) {
    /// Rows at a time, to hide the latency of the sums.
    const ROWS: usize = 4;
    let (stride, out_stride) = (row_stride(depth), row_stride(width));
    let used = padded(depth);
    for (left, out) in left.chunks(ROWS * stride).zip(out.chunks_mut(ROWS * out_stride)) {
        // Where there are fewer rows, the last one over and over.
        let lefts: [&[F::Vector<S>]; ROWS] = std::array::from_fn(|i| {
            F::vectors::<S>(&left[(i * stride).min(left.len() - stride)..][..used])
        });
        for (j, right) in transposed.chunks_exact(stride).take(width).enumerate() {
            let mut sums = [F::splat(simd, F::zero()); ROWS];
            for (p, &right) in F::vectors::<S>(&right[..used]).iter().enumerate() {
                for (sum, left) in sums.iter_mut().zip(lefts) {
                    *sum = F::multiply_add(simd, left[p], right, *sum);
                }
            }
            let start = start.map_or(F::zero(), |row| row[j]);
            let outs = out.chunks_exact_mut(out_stride).take(left.len() / stride);
            for (out, sum) in outs.zip(sums) {
                out[j] = start + F::reduce(simd, sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};

    struct Call<'a>(&'a [f32], &'a [f32], (usize, usize), Option<&'a [f32]>, &'a mut [f32]);

    impl WithSimd for Call<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            row_products(simd, self.0, self.1, self.2, self.3, self.4);
        }
    }

    /// A matrix of small whole numbers, so that sums are exact, with zeros as padding.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn numbers(rows: usize, width: usize) -> Vec<f32> {
        let stride = row_stride(width);
        let number = |at: usize| match (at / stride, at % stride) {
            (row, column) if column < width => f32::of(((7 * row + 3 * column) % 11) as f64) - 5.0,
            _ => 0.0,
        };
        (0..rows * stride).map(number).collect()
    }

    #[test]
    fn every_row_equals_the_naive_sum() {
        for (rows, depth, width) in [(1, 1, 1), (3, 20, 2), (4, 128, 4), (9, 256, 3)] {
            let (left, right, bias) = (numbers(rows, depth), numbers(width, depth), [2.0; 16]);
            let (stride, out_stride) = (row_stride(depth), row_stride(width));
            for start in [None, Some(&bias[..])] {
                // One row more than there are, which must stay as it is.
                let mut out = vec![9.0; (rows + 1) * out_stride];
                Arch::new().dispatch(Call(&left, &right, (depth, width), start, &mut out));
                for i in 0..=rows {
                    for j in 0..width {
                        let terms = (0..depth)
                            .filter(|_| i < rows)
                            .map(|p| left[i * stride + p] * right[j * stride + p]);
                        let sum = terms.sum::<f32>() + start.map_or(0.0, |row| row[j]);
                        let expected = if i < rows { sum } else { 9.0 };
                        assert_eq!(out[i * out_stride + j], expected, "{rows} {depth} {width}");
                    }
                }
            }
        }
    }
}
