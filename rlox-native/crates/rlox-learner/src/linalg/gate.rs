//! Backward pass through the layer before outputs of which only one has a gradient.
//!
//! With `ReLU`, the gradient with respect to that layer's output j in row i is `g_i` `w_j` where
//! the output is positive, and 0 elsewhere: of rank one except for the gates. Critics are such a
//! case, with one output, and Q-networks of discrete actions, whose loss depends on the value of
//! the taken action. Most of their parameters are in the last hidden layer.

use std::iter;

use pulp::Simd;
use rlox_kernels::threads;

use super::Real;
use super::aligned::Aligned;
use super::gated_product::{CHOICE, GROUP, Gated, SPAN, TABLE, gated_product};
use super::layer::{BLOCK_ROWS, Layer, transpose};
use super::real::{PAD, padded, row_stride};

/// The gradient with respect to the outputs of a layer, in its factors.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a, F> {
    /// Number of rows used.
    pub rows: usize,
    /// The layer, for which [`Layer::can_be_gated`] holds.
    pub layer: Layer,
    /// The layer's inputs, themselves rectified.
    pub inputs: &'a [F],
    /// The layer's outputs, whose signs are the gates.
    pub outputs: &'a [F],
    /// The gradient with respect to the next output, in rows of [`row_stride(1)`](row_stride).
    pub gradients: &'a [F],
    /// The weights of that output.
    pub weights: &'a [F],
}

/// Memory for products with a [`Gate`].
#[derive(Debug)]
pub struct GateMemory<F> {
    by_row: Aligned<F>,
    choices: Aligned<F>,
    table: Aligned<F>,
}

impl<F: Real> GateMemory<F> {
    /// Memory for layers of up to `width` outputs.
    #[must_use]
    pub fn new(width: usize) -> Self {
        let groups = |n: usize| n.div_ceil(SPAN) * PAD;
        let by_row = groups(width) * row_stride(BLOCK_ROWS);
        let by_column = groups(BLOCK_ROWS) * row_stride(width);
        let table = if width == 0 { 0 } else { TABLE };
        Self {
            by_row: Aligned::zeros(BLOCK_ROWS * groups(width)),
            choices: Aligned::zeros(by_row.max(by_column)),
            table: Aligned::zeros(table),
        }
    }
}

impl<F: Real> Gate<'_, F> {
    /// The gradient with respect to output `j` in row `i`.
    pub(super) fn delta(&self, i: usize, j: usize) -> f64 {
        if self.outputs[i * row_stride(self.layer.outputs) + j] > F::zero() {
            self.gradients[i * PAD].widen() * self.weights[j].widen()
        } else {
            0.0
        }
    }

    /// Writes the gradient's sums over all rows, or `adds` them: the gradients of the layer's biases.
    #[inline(always)]
    pub(super) fn sum_rows<S: Simd>(self, simd: S, adds: bool, sums: &mut [F]) {
        /// Sums at a time, which stay in registers.
        const WIDTH: usize = 8;
        let outputs = F::vectors::<S>(self.outputs);
        let stride = outputs.len() / self.rows;
        let weights = F::vectors::<S>(self.weights);
        for (i, sums) in F::vectors_mut::<S>(sums)[..stride].chunks_mut(WIDTH).enumerate() {
            let mut total = [F::splat(simd, F::zero()); WIDTH];
            let gradients = self.gradients.iter().step_by(PAD);
            for (row, &gradient) in outputs.chunks_exact(stride).zip(gradients) {
                let gradient = F::splat(simd, gradient);
                for (total, &output) in total.iter_mut().zip(&row[i * WIDTH..][..sums.len()]) {
                    *total = F::sum(simd, *total, F::where_positive(simd, output, gradient));
                }
            }
            for ((sum, total), &weight) in sums.iter_mut().zip(total).zip(&weights[i * WIDTH..]) {
                let before = if adds { *sum } else { F::splat(simd, F::zero()) };
                *sum = F::multiply_add(simd, weight, total, before);
            }
        }
    }

    /// Writes gradientᵀ · inputs, or `adds` it: the gradients of the layer's weights, a row for
    /// each output. A thread for each of `memories` shares the rows.
    #[inline(always)]
    pub(super) fn of_weights<S: Simd>(
        self,
        simd: S,
        adds: bool,
        memories: &mut [GateMemory<F>],
        out: &mut [F],
    ) {
        let [GateMemory { choices, table, .. }, others @ ..] = memories else { return };
        let (stride, n_rows) = (row_stride(self.layer.outputs), self.layer.outputs);
        let (size, helpers) = (n_rows.div_ceil(1 + others.len()), others.len());
        let spans = self.outputs.chunks(SPAN * stride);
        let mut groups = PAD;
        for (outputs, choices) in spans.zip(choices.chunks_exact_mut(PAD * stride)) {
            groups = (outputs.len() / stride).div_ceil(GROUP);
            for (q, choices) in choices.chunks_exact_mut(stride).take(groups).enumerate() {
                choose(simd, outputs.chunks_exact(stride).skip(q).step_by(groups), choices);
            }
        }
        let left = |first| Gated {
            n_rows: size.min(n_rows - first),
            depth: self.rows,
            last_groups: groups,
            choices: &choices[first..],
            choice_stride: stride,
            rows: &self.weights[first..],
            row_stride: 1,
            columns: self.gradients,
            column_stride: PAD,
        };
        let width = self.layer.inputs;
        let outs = out[..n_rows * row_stride(width)].chunks_mut(size * row_stride(width));
        let tables = iter::once(table).chain(others.iter_mut().map(|memory| &mut memory.table));
        let parts = outs.zip(tables).enumerate().collect();
        threads::for_each(parts, helpers, |(i, (out, table))| {
            gated_product(simd, left(i * size), self.inputs, width, adds, None, table, out);
        });
    }

    /// Writes gradient · transposed where the inputs are positive, and 0 elsewhere: the gradients
    /// with respect to the inputs before their rectification. `transposed` has a row of weights per
    /// output.
    #[inline(always)]
    pub(super) fn of_inputs<S: Simd>(
        self,
        simd: S,
        transposed: &[F],
        memory: &mut GateMemory<F>,
        out: &mut [F],
    ) {
        let (groups, choice_stride) =
            (self.layer.outputs.div_ceil(SPAN) * PAD, row_stride(BLOCK_ROWS));
        let rows = self.outputs.chunks_exact(row_stride(self.layer.outputs));
        for (outputs, choices) in rows.zip(memory.by_row.chunks_exact_mut(groups)) {
            let spans = outputs[..padded(self.layer.outputs)].chunks(SPAN);
            for (outputs, choices) in spans.zip(choices.chunks_exact_mut(PAD)) {
                choose(simd, outputs.chunks_exact(PAD), choices);
            }
        }
        let shape = (self.rows, groups);
        transpose(&memory.by_row, groups, shape, &mut memory.choices, choice_stride);
        let left = Gated {
            n_rows: self.rows,
            depth: self.layer.outputs,
            last_groups: PAD,
            choices: &memory.choices,
            choice_stride,
            rows: self.gradients,
            row_stride: PAD,
            columns: self.weights,
            column_stride: 1,
        };
        let table = &mut memory.table;
        gated_product(
            simd,
            left,
            transposed,
            self.layer.inputs,
            false,
            Some(self.inputs),
            table,
            out,
        );
    }
}

/// Encodes which of up to [`GROUP`] rows of `gates` are positive, column by column.
#[inline(always)]
fn choose<'a, F: Real, S: Simd>(simd: S, gates: impl Iterator<Item = &'a [F]>, choices: &mut [F]) {
    choices.fill(F::of(F::INTEGERS));
    for (r, gates) in gates.take(GROUP).enumerate() {
        let bit = F::splat(simd, F::of(CHOICE * f64::from(1 << r)));
        for (choice, &gate) in F::vectors_mut::<S>(choices).iter_mut().zip(F::vectors::<S>(gates)) {
            *choice = F::sum(simd, *choice, F::where_positive(simd, gate, bit));
        }
    }
}
