//! Products whose left operand is a column times a row, with zeros where a gate is shut.
//!
//! Four rows of the right operand at a time: the sums of all 16 choices among them are made once,
//! and then every row of the output adds one of these instead of four products.

use bytemuck::cast_slice;
use pulp::{Simd, WithSimd};

use super::Real;
use super::real::{PAD, padded, row_stride};

/// Rows of the right operand among which one number chooses.
pub(super) const GROUP: usize = 4;

/// The choices there are among the rows of a group.
const CHOICES: usize = 1 << GROUP;

/// Rows of the right operand that are chosen from at a time, in [`PAD`] groups: the row q of the 64
/// and those 16, 32 and 48 after it are group q.
pub(super) const SPAN: usize = PAD * GROUP;

/// Columns at a time, so that the sums of all choices fit into the first-level cache.
const COLUMNS: usize = 32;

/// Elements of the memory for sums of choices.
pub(super) const TABLE: usize = PAD * CHOICES * COLUMNS;

/// A choice c is told by the number [`Real::INTEGERS`] + c · `CHOICE`: its lowest bits are the place
/// of the chosen sums where all have [`COLUMNS`] columns.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
pub(super) const CHOICE: f64 = COLUMNS as f64;

/// The left operand: element (i, p) is `rows[i * row_stride]` times `columns[p * column_stride]`
/// where row i has chosen p, else 0.
#[derive(Clone, Copy)]
pub(super) struct Gated<'a, F> {
    pub(super) n_rows: usize,
    pub(super) depth: usize,
    /// What row i has chosen of group q: `choices[q * choice_stride + i]`.
    pub(super) choices: &'a [F],
    pub(super) choice_stride: usize,
    pub(super) rows: &'a [F],
    pub(super) row_stride: usize,
    pub(super) columns: &'a [F],
    pub(super) column_stride: usize,
}

/// `out = left · right`, or `out += left · right` where it `adds`; elements become zero where the one
/// of `signs`, laid out as `out`, is not positive. Rows are of [`row_stride`], and `table` has
/// [`TABLE`] elements.
#[expect(clippy::too_many_arguments, reason = "those of a product, and memory")]
#[inline(always)]
pub(super) fn gated_product<F: Real, S: Simd>(
    simd: S,
    left: Gated<'_, F>,
    right: &[F],
    width: usize,
    adds: bool,
    signs: Option<&[F]>,
    table: &mut [F],
    out: &mut [F],
) {
    simd.vectorize(Product { left, right, width, adds, signs, table, out });
}

/// The arguments of [`gated_product`].
struct Product<'a, F> {
    left: Gated<'a, F>,
    right: &'a [F],
    width: usize,
    adds: bool,
    signs: Option<&'a [F]>,
    table: &'a mut [F],
    out: &'a mut [F],
}

impl<F: Real> WithSimd for Product<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let lanes = size_of::<F::Vector<S>>() / size_of::<F>();
        let mut job = Job {
            simd,
            left: self.left,
            right: F::vectors::<S>(self.right),
            width: padded(self.width) / lanes,
            stride: row_stride(self.width) / lanes,
            adds: self.adds,
            signs: self.signs.map(F::vectors::<S>),
            table: F::vectors_mut::<S>(self.table),
            out: F::vectors_mut::<S>(self.out),
        };
        // As many sums as fit into the registers, to hide the latency.
        let column =
            if S::REGISTER_COUNT >= 32 { job.columns::<8, 2>(0) } else { job.columns::<2, 4>(0) };
        job.columns::<8, 1>(column);
    }
}

/// A product in vectors.
struct Job<'a, F: Real, S: Simd> {
    simd: S,
    left: Gated<'a, F>,
    right: &'a [F::Vector<S>],
    width: usize,
    stride: usize,
    adds: bool,
    signs: Option<&'a [F::Vector<S>]>,
    table: &'a mut [F::Vector<S>],
    out: &'a mut [F::Vector<S>],
}

impl<F: Real, S: Simd> Job<'_, F, S> {
    /// Computes `C` columns at a time from `column` on while they fit; returns where they do not.
    #[inline(always)]
    fn columns<const R: usize, const C: usize>(&mut self, mut column: usize) -> usize {
        while column + C <= self.width {
            for first in (0..self.left.depth).step_by(SPAN) {
                self.tabulate::<C>(first, column);
                let mut row = 0;
                while row + R <= self.left.n_rows {
                    self.tile::<R, C>(first, row, column);
                    row += R;
                }
                while row < self.left.n_rows {
                    self.tile::<1, C>(first, row, column);
                    row += 1;
                }
            }
            column += C;
        }
        column
    }

    /// Makes the sums of all choices in each group of the span that begins with row `first`.
    #[inline(always)]
    fn tabulate<const C: usize>(&mut self, first: usize, column: usize) {
        let Self { simd, left, right, stride, .. } = *self;
        let zero = F::splat(simd, F::zero());
        let sums = self.table.as_chunks_mut::<C>().0.as_chunks_mut::<CHOICES>().0;
        for (q, sums) in sums.iter_mut().take(PAD).enumerate() {
            let places: [usize; GROUP] = std::array::from_fn(|r| first + r * PAD + q);
            for c in 0..C {
                let mut choices = [zero; CHOICES];
                for (r, &p) in places.iter().enumerate() {
                    // Beyond the depth, a row of zeros.
                    let mut row = zero;
                    if p < left.depth {
                        let factor = F::splat(simd, left.columns[p * left.column_stride]);
                        row = F::multiply_add(simd, factor, right[p * stride + column + c], zero);
                    }
                    for choice in 0..1 << r {
                        choices[choice + (1 << r)] = F::sum(simd, choices[choice], row);
                    }
                }
                for (sums, choice) in sums.iter_mut().zip(choices) {
                    sums[c] = choice;
                }
            }
        }
    }

    /// Adds what `R` rows have chosen of the span that begins with row `first`.
    #[inline(always)]
    fn tile<const R: usize, const C: usize>(&mut self, first: usize, row: usize, column: usize) {
        let Self { simd, left, stride, .. } = *self;
        let width = C * size_of::<F::Vector<S>>() / size_of::<F>();
        let mut sums = [[F::splat(simd, F::zero()); C]; R];
        let groups = left.choices[first / GROUP * left.choice_stride..]
            .chunks(left.choice_stride)
            .zip(cast_slice::<_, F>(self.table).chunks_exact(CHOICES * width));
        for (choices, table) in groups.take(PAD) {
            for (sums, &choice) in sums.iter_mut().zip(&choices[row..][..R]) {
                let at = choice.low_bits() & ((CHOICES - 1) * COLUMNS);
                let chosen = F::vectors::<S>(&table[at * width / COLUMNS..][..width]);
                for (sum, &chosen) in sums.iter_mut().zip(&chosen[..C]) {
                    *sum = F::sum(simd, *sum, chosen);
                }
            }
        }
        let adds = self.adds || first > 0;
        let signs = self.signs.filter(|_| first + SPAN >= left.depth);
        for (i, sums) in sums.into_iter().enumerate() {
            let factor = F::splat(simd, left.rows[(row + i) * left.row_stride]);
            let at = (row + i) * stride + column;
            let out = &mut self.out[at..][..C];
            for (c, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                let before = if adds { *out } else { F::splat(simd, F::zero()) };
                let sum = F::multiply_add(simd, factor, sum, before);
                *out = signs.map_or(sum, |signs| F::where_positive(simd, signs[at + c], sum));
            }
        }
    }
}
