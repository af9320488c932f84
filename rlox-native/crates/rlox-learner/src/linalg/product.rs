//! Products of small matrices, in tiles that stay in registers.
//!
//! A minibatch of an RL network is too small for a general matrix product to pay for copying its
//! operands into blocks: they are in the second-level cache already, and a tile's part of them over
//! [`BLOCK_DEPTH`] steps fits into the first.

use pulp::{Simd, WithSimd};
use rlox_kernels::threads;

use super::Real;
use super::real::{padded, row_stride};

/// Terms of the sums that all tiles add before going on to the next terms.
const BLOCK_DEPTH: usize = 128;

/// Output rows per part of a thread's work.
const PART_ROWS: usize = 64;

/// Start values of a product.
#[derive(Clone, Copy)]
pub(super) enum Start<'a, F> {
    /// Zero.
    Zero,
    /// The same row for every row.
    Row(&'a [F]),
    /// The output's present content.
    Output,
}

/// Operation on a product's elements before they are written.
#[derive(Clone, Copy)]
pub(super) enum Finish<'a, F> {
    /// Nothing.
    Keep,
    /// Negative ones become zero.
    Rectify,
    /// Elements become zero if this array, laid out as the output, is not positive there.
    WherePositive(&'a [F]),
}

impl<F> Finish<'_, F> {
    /// The same operation for the output's elements from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        match self {
            Self::WherePositive(signs) => Self::WherePositive(&signs[first..]),
            Self::Keep | Self::Rectify => self,
        }
    }
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
    /// The rows of a matrix with `stride` elements from row to row.
    pub(super) fn rows(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: stride, column_stride: 1 }
    }

    /// The first `rows` columns of a matrix of `depth` rows, as rows.
    pub(super) fn columns(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: 1, column_stride: stride }
    }

    /// Its next rows from `first` on, `rows` at most.
    pub(super) fn below(self, first: usize, rows: usize) -> Self {
        Self {
            elements: &self.elements[first * self.row_stride..],
            rows: rows.min(self.rows - first),
            ..self
        }
    }

    /// Its next columns from `first` on, `depth` at most.
    pub(super) fn after(self, first: usize, depth: usize) -> Self {
        Self {
            elements: &self.elements[first * self.column_stride..],
            depth: depth.min(self.depth - first),
            ..self
        }
    }
}

/// `out = finish(start + left · right)`; `right` is `depth` × `width` and `out` is `rows` × `width`,
/// both in rows of [`row_stride`].
///
/// Rows of a large product are divided among threads, which does not affect any element.
#[inline(always)]
pub(super) fn product<F: Real, S: Simd>(
    simd: S,
    left: Left<'_, F>,
    right: &[F],
    width: usize,
    start: Start<'_, F>,
    finish: Finish<'_, F>,
    out: &mut [F],
) {
    // One function for all callers, because inlining its tiles into each would be much code.
    let part = |left, finish, out| {
        simd.vectorize(Product { left, right, width, start, finish, out });
    };
    let helpers = threads::product_helpers(left.rows * left.depth * width);
    if helpers == 0 || left.rows <= PART_ROWS {
        return part(left, finish, out);
    }
    let size = PART_ROWS * row_stride(width);
    let outs = out[..left.rows * row_stride(width)].chunks_mut(size).enumerate();
    threads::for_each(outs.collect(), helpers, |(i, out)| {
        part(left.below(i * PART_ROWS, PART_ROWS), finish.from(i * size), out);
    });
}

/// The arguments of [`product`].
struct Product<'a, F> {
    left: Left<'a, F>,
    right: &'a [F],
    width: usize,
    start: Start<'a, F>,
    finish: Finish<'a, F>,
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
        let depth = self.left.depth;
        for first in (0..depth).step_by(BLOCK_DEPTH) {
            let job = Job {
                simd,
                left: self.left.after(first, BLOCK_DEPTH),
                right: F::vectors::<S>(&self.right[first * stride..]),
                width: padded(self.width) / lanes,
                stride: stride / lanes,
                start,
                finish: if first + BLOCK_DEPTH < depth { Finish::Keep } else { self.finish },
            };
            // Enough sums to hide the latency, few enough rows to keep addresses in registers.
            let mut column = 0;
            if const { S::REGISTER_COUNT >= 32 } {
                column = job.columns::<5, 4>(column, out);
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
    finish: Finish<'a, F>,
}

impl<F: Real, S: Simd> Job<'_, F, S> {
    /// Computes `C` columns at a time from `column` on while they fit; returns the next one.
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

    /// Computes `R` rows at a time from `row` on while they fit; returns the next one.
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
        // By value: sums whose address is taken do not stay in registers.
        for (i, sums) in sums.into_iter().enumerate() {
            let at = (row + i) * self.stride + column;
            let out = &mut out[at..][..C];
            match self.finish {
                Finish::Keep => out.copy_from_slice(&sums),
                // Not `map`: its call is not inlined, and then neither are the vector instructions.
                Finish::Rectify => {
                    for (out, sum) in out.iter_mut().zip(sums) {
                        *out = F::rectify(self.simd, sum);
                    }
                }
                Finish::WherePositive(signs) => {
                    let signs = &F::vectors::<S>(signs)[at..][..C];
                    for ((out, &sign), sum) in out.iter_mut().zip(signs).zip(sums) {
                        *out = F::where_positive(self.simd, sign, sum);
                    }
                }
            }
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
