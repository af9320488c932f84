//! One linear layer: where its parameters are, and how products read them.

use super::Real;
use super::real::row_stride;

/// How a layer's weights lie in the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// `outputs` × `inputs`, as in `torch.nn.Linear`.
    ByOutputs,
    /// `inputs` × `outputs`, as in `rlox.nn.EnsembleMLP`.
    ByInputs,
}

/// One linear layer and where its parameters are in the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Where the weights begin.
    pub(super) weights: usize,
    /// Where the biases begin.
    pub(super) bias: usize,
    pub(super) order: Order,
    /// Whether its inputs are the network's, whose rows may have no padding.
    pub(super) first: bool,
}

impl Layer {
    /// Layers of `torch.nn.Linear` of these sizes, inputs first, one after the other from `offset`.
    pub(super) fn linear(sizes: &[usize], mut offset: usize) -> Vec<Self> {
        let layer = |(l, pair): (usize, &[usize])| {
            let [inputs, outputs] = [pair[0], pair[1]];
            let (weights, bias) = (offset, offset + inputs * outputs);
            offset = bias + outputs;
            Self { inputs, outputs, weights, bias, order: Order::ByOutputs, first: l == 0 }
        };
        sizes.windows(2).enumerate().map(layer).collect()
    }

    /// Where the parameters end.
    pub(super) fn end(self) -> usize {
        self.bias + self.outputs
    }

    /// Rows and columns in which the weights' gradient is gathered.
    pub(super) fn gradient_shape(self) -> (usize, usize) {
        if self.gradient_by_inputs() {
            (self.inputs, self.outputs)
        } else {
            (self.outputs, self.inputs)
        }
    }

    /// Whether the weights' gradient is gathered in a row for each input, not for each output: the
    /// narrow side gives the rows, as columns are padded.
    ///
    /// Rows without padding cannot be a right operand.
    pub(super) fn gradient_by_inputs(self) -> bool {
        self.first
            || self.inputs < self.outputs
            || (self.inputs == self.outputs && self.order == Order::ByInputs)
    }

    /// Adds gathered gradients to the flat array `gradients`.
    #[inline(always)]
    pub(super) fn add_gradients<F: Real>(self, weights: &[F], biases: &[F], gradients: &mut [F]) {
        let (rows, columns) = self.gradient_shape();
        let own = &mut gradients[self.weights..][..self.inputs * self.outputs];
        if self.gradient_by_inputs() == (self.order == Order::ByInputs) {
            for (sums, values) in
                own.chunks_exact_mut(columns).zip(weights.chunks_exact(row_stride(columns)))
            {
                add(sums, values);
            }
        } else {
            transpose(weights, row_stride(columns), (rows, columns), own, rows, |sum, value| {
                *sum = *sum + value;
            });
        }
        add(&mut gradients[self.bias..][..self.outputs], biases);
    }
}

/// Adds as many elements as `sums` has.
#[inline(always)]
fn add<F: Real>(sums: &mut [F], values: &[F]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum = *sum + value;
    }
}

/// The parameters of a layer in the order in which products read them, padded with zeros.
#[derive(Debug, Clone)]
pub(super) struct PackedLayer<F> {
    /// `inputs` × `outputs`.
    pub(super) forward: Vec<F>,
    /// `outputs` × `inputs`; empty for a layer through which no gradient goes.
    pub(super) backward: Vec<F>,
    pub(super) bias: Vec<F>,
}

impl<F: Real> PackedLayer<F> {
    pub(super) fn new(layer: Layer, backward: bool) -> Self {
        let zeros = |n| vec![F::zero(); n];
        Self {
            forward: zeros(layer.inputs * row_stride(layer.outputs)),
            backward: zeros(if backward { layer.outputs * row_stride(layer.inputs) } else { 0 }),
            bias: zeros(row_stride(layer.outputs)),
        }
    }

    /// Copies the layer's part of `parameters`.
    #[inline(always)]
    pub(super) fn load(&mut self, layer: Layer, parameters: &[F]) {
        let weights = &parameters[layer.weights..][..layer.inputs * layer.outputs];
        let (forward, backward) = (row_stride(layer.outputs), row_stride(layer.inputs));
        let ((straight, stride), (across, across_stride), rows, columns) = match layer.order {
            Order::ByInputs => (
                (&mut self.forward, forward),
                (&mut self.backward, backward),
                layer.inputs,
                layer.outputs,
            ),
            Order::ByOutputs => (
                (&mut self.backward, backward),
                (&mut self.forward, forward),
                layer.outputs,
                layer.inputs,
            ),
        };
        for (to, from) in straight.chunks_exact_mut(stride).zip(weights.chunks_exact(columns)) {
            to[..columns].copy_from_slice(from);
        }
        if !across.is_empty() {
            transpose(weights, columns, (rows, columns), across, across_stride, |to, from| {
                *to = from;
            });
        }
        self.bias[..layer.outputs].copy_from_slice(&parameters[layer.bias..layer.end()]);
    }
}

/// Combines every element of `from`, `rows` × `columns`, with that of `to` across the diagonal.
#[inline(always)]
fn transpose<F: Real>(
    from: &[F],
    from_stride: usize,
    (rows, columns): (usize, usize),
    to: &mut [F],
    to_stride: usize,
    combine: impl Fn(&mut F, F),
) {
    /// Square whose rows and columns are a handful of cache lines.
    const SIDE: usize = 16;
    for first_row in (0..rows).step_by(SIDE) {
        let last_row = rows.min(first_row + SIDE);
        for first_column in (0..columns).step_by(SIDE) {
            for column in first_column..columns.min(first_column + SIDE) {
                let to = &mut to[column * to_stride..][first_row..last_row];
                for (to, row) in to.iter_mut().zip(first_row..) {
                    combine(to, from[row * from_stride + column]);
                }
            }
        }
    }
}
