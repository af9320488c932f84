//! Runs of rows on their way through networks: what a thread does by itself.

use pulp::Simd;

use super::activation::Activation;
use super::division::Divisible;
use super::linalg::{
    GateMemory, Real, Rows, affine, affine_backward_inputs, masked_outer_inputs, row_stride,
};
use super::network::Network;
use super::passes::{Packed, Pass};
use super::stretches::{GatedLayer, Stretch, within};

/// The first `rows` rows of a matrix of `width` columns.
#[inline(always)]
pub(super) fn rows_of<F>(elements: &[F], rows: usize, width: usize) -> Rows<'_, F> {
    let stride = row_stride(width);
    Rows { elements: &elements[..rows * stride], rows, stride }
}

/// Computes the outputs of `rows` rows, into each layer's of `outputs`.
#[inline(always)]
fn forward_layers<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    outputs: &mut dyn Iterator<Item = &mut [F]>,
) {
    // One function for all callers: a network's products compiled into each would double the time
    // that the crate takes to build.
    simd.vectorize(
        #[inline(always)]
        || {
            let mut hidden: Option<&[F]> = None;
            let layers = network.layers.iter().zip(&packed.layers).zip(outputs);
            for (l, ((&layer, packed), out)) in layers.enumerate() {
                let out = &mut out[..rows * row_stride(layer.outputs)];
                let inputs = match hidden {
                    None => network.inputs(inputs, rows),
                    Some(hidden) => rows_of(hidden, rows, layer.inputs),
                };
                let activation = network.activates(l).then_some(network.activation);
                affine(simd, layer, packed, inputs, activation == Some(Activation::Relu), out);
                if activation == Some(Activation::Tanh) {
                    F::tanh_all(simd, out);
                }
                hidden = Some(out);
            }
        },
    );
}

/// What becomes of the outputs of hidden layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// They stay for the way back.
    Kept,
    /// The next rows' are written over them, so that they stay in the nearest cache.
    Overwritten,
}

/// So many rows go through all layers together: what a layer has written is in the nearest cache when
/// the next one reads it.
const TOGETHER: usize = 64;

/// Rows on their way forward.
pub(super) struct ForwardRows<'a, F> {
    network: &'a Network,
    packed: &'a Packed<F>,
    inputs: &'a [F],
    rows: usize,
    outputs: Vec<&'a mut [F]>,
    hidden: Hidden,
}

impl<'a, F: Real> ForwardRows<'a, F> {
    pub(super) fn new(pass: Pass<'a, F>, hidden: Hidden) -> Self {
        let Pass { network, packed, inputs, rows, workspace } = pass;
        let outputs = workspace.outputs.iter_mut().map(|outputs| &mut **outputs).collect();
        Self { network, packed, inputs, rows, outputs, hidden }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(mut self, simd: S) {
        while self.rows > 0 {
            let rows = TOGETHER.min(self.rows);
            let inputs = self.split_off_inputs(rows);
            let Self { network, packed, outputs, hidden, .. } = &mut self;
            let of_layers = &mut outputs.iter_mut().map(|outputs| &mut **outputs);
            forward_layers(simd, network, packed, inputs, rows, of_layers);
            let overwritten = match hidden {
                Hidden::Kept => 0,
                Hidden::Overwritten => network.layers.len() - 1,
            };
            let written = outputs.iter_mut().zip(&network.layers).skip(overwritten);
            for (outputs, layer) in written {
                let _ = outputs.split_off_mut(..rows * row_stride(layer.outputs));
            }
        }
    }

    /// Splits off the first `rows` rows of the inputs.
    fn split_off_inputs(&mut self, rows: usize) -> &'a [F] {
        let inputs = self.inputs;
        self.inputs = &inputs[inputs.len().min(rows * self.network.input_stride)..];
        self.rows -= rows;
        inputs
    }
}

impl<F: Real> Divisible for ForwardRows<'_, F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn split_off(&mut self, rows: usize) -> Self {
        let inputs = self.split_off_inputs(rows);
        let Self { network, packed, hidden, .. } = *self;
        let outputs = split_off(network, &mut self.outputs, rows);
        Self { network, packed, inputs, rows, outputs, hidden }
    }
}

/// The first `rows` rows of every layer's matrix, which keeps the others.
fn split_off<'a, F>(
    network: &Network,
    matrices: &mut [&'a mut [F]],
    rows: usize,
) -> Vec<&'a mut [F]> {
    let parts = matrices.iter_mut().zip(&network.layers);
    parts.filter_map(|(m, layer)| m.split_off_mut(..rows * row_stride(layer.outputs))).collect()
}

/// Rows on their way back to the gradients with respect to all layers' outputs and, where there is room for
/// them, to the inputs.
pub(super) struct BackwardRows<'a, F> {
    network: &'a Network,
    packed: &'a Packed<F>,
    rows: usize,
    outputs: Vec<&'a [F]>,
    deltas: Vec<&'a mut [F]>,
    of_inputs: Option<&'a mut [F]>,
    /// The pass's, of which its `first` row on are these.
    stretches: &'a [Stretch],
    first: usize,
    /// One for each part that these rows may be divided into.
    gate_memories: &'a mut [GateMemory<F>],
}

impl<'a, F: Real> BackwardRows<'a, F> {
    /// All rows of a pass, which may be divided into `n` parts.
    pub(super) fn new(pass: &'a mut Pass<'_, F>, of_inputs: Option<&'a mut [F]>, n: usize) -> Self {
        let Pass { network, packed, rows, workspace, .. } = pass;
        let memories = &mut workspace.gate_memories;
        while memories.len() < n {
            memories.push(GateMemory::new(network.gated_width()));
        }
        Self {
            network,
            packed,
            rows: *rows,
            outputs: workspace.outputs.iter().map(|outputs| &**outputs).collect(),
            deltas: workspace.deltas.iter_mut().map(|deltas| &mut **deltas).collect(),
            of_inputs,
            stretches: &workspace.stretches,
            first: 0,
            gate_memories: memories,
        }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(mut self, simd: S) {
        // Behind gates all rows together, for which tables are made once.
        let together = if self.stretches.is_empty() { TOGETHER } else { self.rows };
        while self.rows > 0 {
            let part = self.split_off(together.min(self.rows));
            simd.vectorize(
                #[inline(always)]
                || part.back(simd),
            );
        }
    }

    #[inline(always)]
    fn back<S: Simd>(self, simd: S) {
        let Self { network, packed, rows, outputs, mut deltas, mut of_inputs, .. } = self;
        let Self { stretches, first, gate_memories, .. } = self;
        if let (true, Some(delta), Some(outputs)) =
            (network.activates_last, deltas.last_mut(), outputs.last())
        {
            network.activation.differentiate(delta, outputs);
        }
        for (l, (&layer, packed_layer)) in
            network.layers.iter().zip(&packed.layers).enumerate().rev()
        {
            let (before, after) = deltas.split_at_mut(l);
            let delta = rows_of(after[0], rows, layer.outputs);
            let Some((k, out)) = l.checked_sub(1).zip(before.last_mut()) else {
                if let Some(out) = of_inputs.take() {
                    affine_backward_inputs(simd, layer, packed_layer, delta, None, out);
                }
                continue;
            };
            let hidden = rows_of(outputs[k], rows, layer.inputs);
            let gated = !stretches.is_empty();
            if let (true, Some(memory)) = (layer.gated && gated, gate_memories.first_mut()) {
                let inputs = hidden.elements;
                let gated = GatedLayer::new(network, packed, l, inputs, outputs[l], after[1]);
                for stretch in within(stretches, first..first + rows) {
                    let out = &mut out[stretch.rows.start * row_stride(layer.inputs)..];
                    masked_outer_inputs(simd, gated.gate(&stretch), packed_layer, memory, out);
                }
            } else if !(network.layers[k].gated && gated) {
                // of a gated layer, the factors are enough
                let mask = (network.activation == Activation::Relu).then_some(hidden.elements);
                affine_backward_inputs(simd, layer, packed_layer, delta, mask, out);
                if network.activation == Activation::Tanh {
                    network.activation.differentiate(out, hidden.elements);
                }
            }
        }
    }
}

impl<F: Real> Divisible for BackwardRows<'_, F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn seams(&self) -> Vec<usize> {
        self.stretches.iter().map(|stretch| stretch.rows.end).collect()
    }

    fn split_off(&mut self, rows: usize) -> Self {
        let Self { network, packed, outputs, deltas, of_inputs, stretches, gate_memories, .. } =
            self;
        let first = self.first;
        self.rows -= rows;
        self.first += rows;
        let of_layers = outputs.iter_mut().zip(&network.layers);
        let outputs = of_layers
            .filter_map(|(matrix, layer)| matrix.split_off(..rows * row_stride(layer.outputs)))
            .collect();
        let deltas = split_off(network, deltas, rows);
        let width = network.layers.first().map_or(0, |layer| row_stride(layer.inputs));
        let of_inputs = of_inputs.as_mut().and_then(|out| out.split_off_mut(..rows * width));
        let gate_memories = gate_memories.split_off_mut(..1).unwrap_or(&mut []);
        Self { network, packed, rows, outputs, deltas, of_inputs, stretches, first, gate_memories }
    }
}
