//! Products of small matrices, in tiles that stay in registers.
//!
//! A minibatch of an RL network is too small for a general matrix product to pay for copying its
//! operands into blocks: here they are in the second-level cache already, and what a tile reads of
//! them over [`BLOCK_DEPTH`] steps fits into the first.

use pulp::{Simd, WithSimd};

use super::Real;
use super::real::{padded, row_stride};

/// Terms of the sums that are added up for all tiles before the next ones.
const BLOCK_DEPTH: usize = 64;

/// What a product is added to.
#[derive(Clone, Copy)]
pub(super) enum Start<'a, F> {
    /// Zero.
    Zero,
    /// The same row under every row.
    Row(&'a [F]),
    /// What the output holds.
    Output,
}

/// The left operand, `rows` × `depth`; element (i, p) is at `i * row_stride + p * column_stride`.
#[derive(Clone, Copy)]
pub(super) struct Left<'a, F> {
    pub(super) elements: &'a [F],
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, F> Left<'a, F> {
    /// The rows of a matrix with so many elements from row to row.
    pub(super) fn rows(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: stride, column_stride: 1 }
    }

    /// The first `rows` columns of a matrix of `depth` rows, as rows.
    pub(super) fn columns(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: 1, column_stride: stride }
    }

    /// Its next [`BLOCK_DEPTH`] columns from `first` on.
    fn after(self, first: usize) -> Self {
        Self {
            elements: &self.elements[first * self.column_stride..],
            depth: BLOCK_DEPTH.min(self.depth - first),
            ..self
        }
    }
}

/// `out = start + left · right`; `right` is `depth` × `width` and `out` is `rows` × `width`, both
/// in rows of [`row_stride`].
#[inline(always)]
pub(super) fn product<F: Real, S: Simd>(
    simd: S,
    left: Left<'_, F>,
    right: &[F],
    width: usize,
    start: Start<'_, F>,
    out: &mut [F],
) {
    // One function for all callers: its tiles are a lot of code to have in each.
    simd.vectorize(Product { left, right, width, start, out });
}

/// The arguments of [`product`].
struct Product<'a, F> {
    left: Left<'a, F>,
    right: &'a [F],
    width: usize,
    start: Start<'a, F>,
    out: &'a mut [F],
}

impl<F: Real> WithSimd for Product<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let lanes = size_of::<F::Vector<S>>() / size_of::<F>();
        let stride = row_stride(self.width);
        let out = F::vectors_mut::<S>(self.out);
        let mut start = self.start;
        for first in (0..self.left.depth).step_by(BLOCK_DEPTH) {
            let job = Job {
                simd,
                left: self.left.after(first),
                right: F::vectors::<S>(&self.right[first * stride..]),
                width: padded(self.width) / lanes,
                stride: stride / lanes,
                start,
            };
            // As many sums as fit into the registers beside the operands, to hide the latency.
            let mut column = 0;
            if S::REGISTER_COUNT >= 32 {
                column = job.columns::<6, 4>(column, out);
                column = job.columns::<8, 2>(column, out);
            } else {
                column = job.columns::<4, 2>(column, out);
            }
            job.columns::<8, 1>(column, out);
            start = Start::Output;
        }
    }
}

/// A product of at most [`BLOCK_DEPTH`] terms a sum, in vectors.
struct Job<'a, F: Real, S: Simd> {
    simd: S,
    left: Left<'a, F>,
    right: &'a [F::Vector<S>],
    width: usize,
    stride: usize,
    start: Start<'a, F>,
}

impl<F: Real, S: Simd> Job<'_, F, S> {
    /// Computes `C` columns at a time from `column` on while they fit; returns where they do not.
    #[inline(always)]
    fn columns<const R: usize, const C: usize>(
        &self,
        mut column: usize,
        out: &mut [F::Vector<S>],
    ) -> usize {
        while column + C <= self.width {
            let row = self.rows::<R, C>(0, column, out);
            let row = self.rows::<4, C>(row, column, out);
            self.rows::<1, C>(row, column, out);
            column += C;
        }
        column
    }

    /// Computes `R` rows at a time from `row` on while they fit; returns where they do not.
    #[inline(always)]
    fn rows<const R: usize, const C: usize>(
        &self,
        mut row: usize,
        column: usize,
        out: &mut [F::Vector<S>],
    ) -> usize {
        while row + R <= self.left.rows {
            self.tile::<R, C>(row, column, out);
            row += R;
        }
        row
    }

    #[inline(always)]
    fn tile<const R: usize, const C: usize>(
        &self,
        row: usize,
        column: usize,
        out: &mut [F::Vector<S>],
    ) {
        let mut sums = [[F::splat(self.simd, F::zero()); C]; R];
        for (i, sums) in sums.iter_mut().enumerate() {
            match self.start {
                Start::Zero => {}
                Start::Row(start) => sums.copy_from_slice(&F::vectors::<S>(start)[column..][..C]),
                Start::Output => {
                    sums.copy_from_slice(&out[(row + i) * self.stride + column..][..C]);
                }
            }
        }
        let Left { elements, depth, row_stride, column_stride, .. } = self.left;
        let right = self.right.chunks_exact(self.stride).map(|right| &right[column..][..C]);
        if column_stride == 1 {
            let lefts: [&[F]; R] =
                std::array::from_fn(|i| &elements[(row + i) * row_stride..][..depth]);
            for (p, right) in right.take(depth).enumerate() {
                self.accumulate(&mut sums, std::array::from_fn(|i| lefts[i][p]), right);
            }
        } else {
            let lefts = elements.chunks(column_stride).map(|left| &left[row..][..R]);
            for (left, right) in lefts.zip(right).take(depth) {
                self.accumulate(&mut sums, std::array::from_fn(|i| left[i]), right);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            out[(row + i) * self.stride + column..][..C].copy_from_slice(sums);
        }
    }

    #[inline(always)]
    fn accumulate<const R: usize, const C: usize>(
        &self,
        sums: &mut [[F::Vector<S>; C]; R],
        left: [F; R],
        right: &[F::Vector<S>],
    ) {
        for (sums, &factor) in sums.iter_mut().zip(&left) {
            let factor = F::splat(self.simd, factor);
            for (sum, &right) in sums.iter_mut().zip(right) {
                *sum = F::multiply_add(self.simd, factor, right, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Pcg64;
    use pulp::Arch;

    struct Call<'a>(Left<'a, f64>, &'a [f64], usize, Start<'a, f64>, &'a mut [f64]);

    impl WithSimd for Call<'_> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            product(simd, self.0, self.1, self.2, self.3, self.4);
        }
    }

    fn numbers(rng: &mut Pcg64, n: usize) -> Vec<f64> {
        (0..n).map(|_| rng.uniform(-1.0, 1.0)).collect()
    }

    #[test]
    fn every_tile_equals_the_naive_sum() {
        let mut rng = Pcg64::from_seed(0);
        let sizes = [(1, 1, 1), (3, 5, 16), (8, 4, 33), (15, 64, 64), (64, 7, 50), (13, 130, 128)];
        for (rows, depth, width) in sizes {
            let stride = row_stride(width);
            let a = numbers(&mut rng, rows * depth);
            let transposed: Vec<f64> =
                (0..depth * rows).map(|i| a[(i % rows) * depth + i / rows]).collect();
            let (b, bias) = (numbers(&mut rng, depth * stride), numbers(&mut rng, stride));
            let before = numbers(&mut rng, rows * stride);
            for left in
                [Left::rows(&a, rows, depth, depth), Left::columns(&transposed, rows, depth, rows)]
            {
                for start in [Start::Zero, Start::Row(&bias), Start::Output] {
                    let mut out = before.clone();
                    Arch::new().dispatch(Call(left, &b, width, start, &mut out));
                    for (at, &got) in out.iter().enumerate() {
                        let (i, j) = (at / stride, at % stride);
                        if j >= padded(width) {
                            assert_eq!(got, before[at]);
                            continue;
                        }
                        let first = match start {
                            Start::Zero => 0.0,
                            Start::Row(row) => row[j],
                            Start::Output => before[at],
                        };
                        let sum: f64 =
                            (0..depth).map(|p| a[i * depth + p] * b[p * stride + j]).sum();
                        assert!((got - first - sum).abs() < 1e-13, "{rows} {depth} {width}");
                    }
                }
            }
        }
    }
}
