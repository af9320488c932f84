//! A multi-layer perceptron, forwards and backwards over a block of rows.

use pulp::Simd;

use super::activation::Activation;
use super::linalg::{
    Gate, PackedLayer, Real, Rows, affine, affine_backward_inputs, affine_backward_weights,
    masked_outer, row_stride,
};
use super::network::Network;
use super::workspace::Workspace;

/// The parameters of a network in the order in which products read them.
#[derive(Debug)]
pub(super) struct Packed<F> {
    layers: Vec<PackedLayer<F>>,
}

impl<F: Real> Packed<F> {
    /// For both directions, not as far as the inputs.
    pub(super) fn new(network: &Network) -> Self {
        let layers = network.layers.iter().enumerate();
        Self { layers: layers.map(|(l, &layer)| PackedLayer::new(layer, l > 0)).collect() }
    }

    /// For both directions, the inputs' gradients included.
    pub(super) fn to_inputs(network: &Network) -> Self {
        Self { layers: network.layers.iter().map(|&layer| PackedLayer::new(layer, true)).collect() }
    }

    /// For [`forward`] alone.
    pub(super) fn forward_only(network: &Network) -> Self {
        Self {
            layers: network.layers.iter().map(|&layer| PackedLayer::new(layer, false)).collect(),
        }
    }

    /// Copies the network's part of `parameters`.
    #[inline(always)]
    pub(super) fn load(&mut self, network: &Network, parameters: &[F]) {
        for (packed, &layer) in self.layers.iter_mut().zip(&network.layers) {
            packed.load(layer, parameters);
        }
    }
}

/// Computes the outputs of up to [`BLOCK_ROWS`](super::linalg::BLOCK_ROWS) `rows` of `inputs`.
#[inline(always)]
pub(super) fn forward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
) {
    // One function for all callers: a network's products compiled into each would double the time
    // that the crate takes to build.
    simd.vectorize(
        #[inline(always)]
        || forward_layers(simd, network, packed, inputs, rows, workspace),
    );
}

#[inline(always)]
fn forward_layers<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
) {
    for (l, (layer, packed)) in network.layers.iter().zip(&packed.layers).enumerate() {
        let (before, after) = workspace.outputs.split_at_mut(l);
        let out = &mut after[0][..rows * row_stride(layer.outputs)];
        let inputs = match before.last() {
            None => network.inputs(inputs, rows),
            Some(hidden) => block(hidden, rows, layer.inputs),
        };
        let activation = network.activates(l).then_some(network.activation);
        affine(simd, *layer, packed, inputs, activation == Some(Activation::Relu), out);
        if activation == Some(Activation::Tanh) {
            F::tanh_all(simd, out);
        }
    }
}

/// The first `rows` rows of a matrix of `width` columns.
#[inline(always)]
fn block<F>(elements: &[F], rows: usize, width: usize) -> Rows<'_, F> {
    let stride = row_stride(width);
    Rows { elements: &elements[..rows * stride], rows, stride }
}

/// Which gradients [`backward`] computes besides those of the hidden outputs.
#[derive(Debug)]
pub(super) enum Gradients<'a, F> {
    /// The parameters', added to the workspace's.
    Parameters,
    /// The inputs', into rows of [`row_stride`].
    Inputs(&'a mut [F]),
    /// Both.
    All(&'a mut [F]),
}

/// Goes back through the network with the rows last passed to [`forward`], given their
/// [`Workspace::output_gradient`].
#[inline(always)]
pub(super) fn backward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
    gradients: Gradients<'_, F>,
) {
    simd.vectorize(
        #[inline(always)]
        || backward_layers(simd, network, packed, inputs, rows, workspace, gradients),
    );
}

#[inline(always)]
fn backward_layers<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
    gradients: Gradients<'_, F>,
) {
    let (learns, mut input_gradients) = match gradients {
        Gradients::Parameters => (true, None),
        Gradients::Inputs(out) => (false, Some(out)),
        Gradients::All(out) => (true, Some(out)),
    };
    let adds = workspace.has_gradients;
    let Workspace { outputs, deltas, weight_gradients, bias_gradients, gate_memory, .. } =
        workspace;
    if let (true, Some(delta), Some(outputs)) =
        (network.activates_last, deltas.last_mut(), outputs.last())
    {
        network.activation.differentiate(delta, outputs);
    }
    for (l, (&layer, packed_layer)) in network.layers.iter().zip(&packed.layers).enumerate().rev() {
        let (before, after) = deltas.split_at_mut(l);
        let delta = block(&after[0], rows, layer.outputs);
        let hidden = l.checked_sub(1).map(|k| block(&outputs[k], rows, layer.inputs));
        let gradients = [&mut *weight_gradients[l], &mut *bias_gradients[l]];
        if let (true, Some(hidden), Some(of_inputs)) = (layer.gated, hidden, before.last_mut()) {
            let gate = Gate {
                rows,
                layer,
                inputs: hidden.elements,
                outputs: block(&outputs[l], rows, layer.outputs).elements,
                gradients: &after[1],
                weights: packed.layers[l + 1].single_output(),
            };
            let learnt = learns.then_some((adds, gradients));
            masked_outer(simd, gate, packed_layer, gate_memory, learnt, of_inputs);
            continue;
        }
        if learns {
            let first = network.inputs(inputs, rows);
            affine_backward_weights(simd, layer, hidden.unwrap_or(first), delta, adds, gradients);
        }
        if let (Some(hidden), Some(of_inputs)) = (hidden, before.last_mut()) {
            if network.layers[l - 1].gated {
                continue; // which needs the factors alone
            }
            let mask = (network.activation == Activation::Relu).then_some(hidden.elements);
            affine_backward_inputs(simd, layer, packed_layer, delta, mask, of_inputs);
            if network.activation == Activation::Tanh {
                network.activation.differentiate(of_inputs, hidden.elements);
            }
        } else if let Some(out) = input_gradients.take() {
            affine_backward_inputs(simd, layer, packed_layer, delta, None, out);
        }
    }
    workspace.has_gradients |= learns;
}
