//! Runs of rows on their way through networks: what a thread does by itself.

use pulp::Simd;

use super::activation::Activation;
use super::linalg::{
    Gate, GateMemory, Layer, Real, Rows, affine, affine_backward_inputs, masked_outer_inputs,
    row_stride,
};
use super::network::Network;
use super::passes::{Packed, Pass};

/// Rows of one network that can be divided.
pub(super) trait Divisible {
    fn rows(&self) -> usize;

    /// Splits off the first `rows` rows.
    fn split_off(&mut self, rows: usize) -> Self;
}

/// Divides the rows of all networks, one network after the other, into at most `n` runs of as many
/// rows each.
pub(super) fn runs<T: Divisible>(networks: Vec<T>, n: usize) -> Vec<Vec<T>> {
    let total: usize = networks.iter().map(T::rows).sum();
    let size = total.div_ceil(n);
    let (mut runs, mut room) = (Vec::with_capacity(n), 0);
    for mut network in networks {
        while network.rows() > 0 {
            if room == 0 {
                runs.push(Vec::new());
                room = size;
            }
            let part = network.split_off(room.min(network.rows()));
            room -= part.rows();
            if let Some(run) = runs.last_mut() {
                run.push(part);
            }
        }
    }
    runs
}

/// The first `rows` rows of a matrix of `width` columns.
#[inline(always)]
pub(super) fn rows_of<F>(elements: &[F], rows: usize, width: usize) -> Rows<'_, F> {
    let stride = row_stride(width);
    Rows { elements: &elements[..rows * stride], rows, stride }
}

/// The factors of the gradient with respect to the outputs of a gated layer l.
#[inline(always)]
pub(super) fn gate<'a, F: Real>(
    packed: &'a Packed<F>,
    l: usize,
    layer: Layer,
    inputs: Rows<'a, F>,
    outputs: Rows<'a, F>,
    gradients: &'a [F],
) -> Gate<'a, F> {
    Gate {
        rows: inputs.rows,
        layer,
        inputs: inputs.elements,
        outputs: outputs.elements,
        gradients,
        weights: packed.layers[l + 1].single_output(),
    }
}

/// Computes the outputs of `rows` rows, into each layer's of `outputs`.
#[inline(always)]
pub(super) fn forward_layers<F: Real, S: Simd>(
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

/// Rows on their way forward.
pub(super) struct ForwardRows<'a, F> {
    network: &'a Network,
    packed: &'a Packed<F>,
    inputs: &'a [F],
    rows: usize,
    outputs: Vec<&'a mut [F]>,
}

impl<'a, F: Real> ForwardRows<'a, F> {
    pub(super) fn new(pass: Pass<'a, F>) -> Self {
        let Pass { network, packed, inputs, rows, workspace } = pass;
        let outputs = workspace.outputs.iter_mut().map(|outputs| &mut **outputs).collect();
        Self { network, packed, inputs, rows, outputs }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(self, simd: S) {
        let Self { network, packed, inputs, rows, outputs } = self;
        forward_layers(simd, network, packed, inputs, rows, &mut outputs.into_iter());
    }
}

impl<F: Real> Divisible for ForwardRows<'_, F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn split_off(&mut self, rows: usize) -> Self {
        let Self { network, packed, inputs, rows: left, outputs } = self;
        let first = *inputs;
        *inputs = &first[first.len().min(rows * network.input_stride)..];
        *left -= rows;
        let outputs = split_off(network, outputs, rows);
        Self { network, packed, inputs: first, rows, outputs }
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
            gate_memories: memories,
        }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(self, simd: S) {
        simd.vectorize(
            #[inline(always)]
            || self.back(simd),
        );
    }

    #[inline(always)]
    fn back<S: Simd>(mut self, simd: S) {
        let Self { network, packed, rows, outputs, deltas, of_inputs, gate_memories } = &mut self;
        let rows = *rows;
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
            if let (true, Some(memory)) = (layer.gated, gate_memories.first_mut()) {
                let of_layer = rows_of(outputs[l], rows, layer.outputs);
                let gate = gate(packed, l, layer, hidden, of_layer, after[1]);
                masked_outer_inputs(simd, gate, packed_layer, memory, out);
            } else if !network.layers[k].gated {
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

    fn split_off(&mut self, rows: usize) -> Self {
        let Self { network, packed, rows: left, outputs, deltas, of_inputs, gate_memories } = self;
        *left -= rows;
        let of_layers = outputs.iter_mut().zip(&network.layers);
        let outputs = of_layers
            .filter_map(|(matrix, layer)| matrix.split_off(..rows * row_stride(layer.outputs)))
            .collect();
        let deltas = split_off(network, deltas, rows);
        let width = network.layers.first().map_or(0, |layer| row_stride(layer.inputs));
        let of_inputs = of_inputs.as_mut().and_then(|out| out.split_off_mut(..rows * width));
        let gate_memories = gate_memories.split_off_mut(..1).unwrap_or(&mut []);
        Self { network, packed, rows, outputs, deltas, of_inputs, gate_memories }
    }
}
