//! Products with an outer product under a mask, by the Method of Four Russians.
//!
//! The left operand is `column · row` with zeros where a gate is shut, so an element of the product
//! is a sum over the rows of the right operand whose gates are open, times a factor. A group of
//! four such rows has only 16 different sums. They are computed once, in a lookup table; every
//! output row then adds one entry per group instead of four products:
//!
//! ```text
//!   right operand           lookup table              gates of one output row
//!   r0 ──┐                  0000  0
//!   r1 ──┤  scaled by the   0001  r0                  r0 r1 r2 r3
//!   r2 ──┤  column, summed  0010  r1                   1  0  1  1   = entry 1101
//!   r3 ──┘                   …    …
//!                           1101  r3 + r2 + r0  ───►  output row += this entry
//!                            …    …
//!                           1111  r3 + r2 + r1 + r0
//! ```
//!
//! [`Gate`](super::Gate) prepares the entry that an output row takes from each group. The index is
//! a floating-point number (see [`CHOICE`]), so that vector instructions can compute it.
//!
//! V. Arlazarov, E. Dinic, M. Kronrod, I. Faradžev, "On economical construction of the transitive closure
//! of a directed graph", 1970.

use bytemuck::cast_slice;
use pulp::{Simd, WithSimd};

use super::Real;
use super::real::{PAD, padded, row_stride};

/// Rows of the right operand in a group.
pub(super) const GROUP: usize = 4;

/// Entries of a group's lookup table: the subsets of its rows.
const CHOICES: usize = 1 << GROUP;

/// Rows of the right operand tabulated at a time, in [`PAD`] groups: rows q, q + 16, q + 32 and q +
/// 48 of the 64 are group q. The last span may have fewer groups.
pub(super) const SPAN: usize = PAD * GROUP;

/// Columns at a time, so that the lookup tables fit into the first-level cache.
const COLUMNS: usize = 32;

/// Elements of the memory for lookup tables.
pub(super) const TABLE: usize = PAD * CHOICES * COLUMNS;

/// Choice `c` is encoded in the low mantissa bits of [`Real::INTEGERS`] + `c` · `CHOICE`; those bits are the
/// offset of its entry in a table of [`COLUMNS`] columns.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
pub(super) const CHOICE: f64 = COLUMNS as f64;

/// The left operand: element (i, p) is `rows[i * row_stride]` times `columns[p * column_stride]` if
/// row i's gate p is open, else 0.
#[derive(Clone, Copy)]
pub(super) struct Gated<'a, F> {
    pub(super) n_rows: usize,
    pub(super) depth: usize,
    /// Groups of the last span.
    pub(super) last_groups: usize,
    /// The choice of row i in group q is `choices[q * choice_stride + i]`.
    pub(super) choices: &'a [F],
    pub(super) choice_stride: usize,
    pub(super) rows: &'a [F],
    pub(super) row_stride: usize,
    pub(super) columns: &'a [F],
    pub(super) column_stride: usize,
}

impl<F> Gated<'_, F> {
    /// Groups of the span that begins with row `first` of the right operand.
    #[inline(always)]
    fn groups(&self, first: usize) -> usize {
        if first + SPAN < self.depth { PAD } else { self.last_groups }
    }
}

/// `out = left · right`, or `out += left · right` if it `adds`; elements become zero if those of
/// `signs`, laid out as `out`, are not positive. Rows are of [`row_stride`], and `table` has
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
        // Uses all sums that fit into the registers, to hide the latency.
        let column =
            if S::REGISTER_COUNT >= 32 { job.columns::<8, 2>(0) } else { job.columns::<2, 4>(0) };
        job.columns::<8, 1>(column);
    }
}

/// A product by vector instructions.
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
    /// Computes `C` columns at a time from `column` on while they fit; returns the next column.
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

    /// Fills the lookup tables of the span that begins with row `first`.
    #[inline(always)]
    fn tabulate<const C: usize>(&mut self, first: usize, column: usize) {
        let Self { simd, left, right, stride, .. } = *self;
        let zero = F::splat(simd, F::zero());
        let groups = left.groups(first);
        let sums = self.table.as_chunks_mut::<C>().0.as_chunks_mut::<CHOICES>().0;
        for (q, sums) in sums.iter_mut().take(groups).enumerate() {
            let places: [usize; GROUP] = std::array::from_fn(|r| first + r * groups + q);
            for c in 0..C {
                let mut choices = [zero; CHOICES];
                for (r, &p) in places.iter().enumerate() {
                    // A row of zeros beyond the depth.
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

    /// Adds to `R` rows of the output their entries of the span that begins with row `first`.
    #[inline(always)]
    fn tile<const R: usize, const C: usize>(&mut self, first: usize, row: usize, column: usize) {
        let Self { simd, left, stride, .. } = *self;
        let width = C * size_of::<F::Vector<S>>() / size_of::<F>();
        let mut sums = [[F::splat(simd, F::zero()); C]; R];
        let groups = left.choices[first / GROUP * left.choice_stride..]
            .chunks(left.choice_stride)
            .zip(cast_slice::<_, F>(self.table).chunks_exact(CHOICES * width));
        for (choices, table) in groups.take(left.groups(first)) {
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
