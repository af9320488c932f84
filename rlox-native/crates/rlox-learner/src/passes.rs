//! A multi-layer perceptron, forwards and backwards over a block of rows.

use pulp::Simd;

use super::Real;
use super::activation::Activation;
use super::gate::Gate;
use super::layer::PackedLayer;
use super::network::Network;
use super::operands::{Finish, Left, Start};
use super::product::product;
use super::real::row_stride;
use super::row_products::row_products;
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

/// Computes the outputs of up to [`BLOCK_ROWS`](super::layer::BLOCK_ROWS) `rows` of `inputs`.
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
        let (values, stride) = match before.last() {
            None => (inputs, network.input_stride),
            Some(hidden) => (&hidden[..rows * row_stride(layer.inputs)], row_stride(layer.inputs)),
        };
        let activation = network.activates(l).then_some(network.activation);
        if layer.has_few_outputs() {
            let shape = (layer.inputs, layer.outputs);
            row_products(simd, values, &packed.backward, shape, Some(&packed.bias), out);
            if let Some(activation) = activation {
                activation.apply(simd, out);
            }
            continue;
        }
        let left = Left::rows(values, rows, layer.inputs, stride);
        let finish = match activation {
            Some(Activation::Relu) => Finish::Rectify,
            Some(Activation::Tanh) | None => Finish::Keep,
        };
        product(simd, left, &packed.forward, layer.outputs, Start::Row(&packed.bias), finish, out);
        if activation == Some(Activation::Tanh) {
            F::tanh_all(simd, out);
        }
    }
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
    let start = if adds { Start::Output } else { Start::Zero };
    let Workspace { outputs, deltas, weight_gradients, bias_gradients, gate_memory, .. } =
        workspace;
    if let (true, Some(delta), Some(outputs)) =
        (network.activates_last, deltas.last_mut(), outputs.last())
    {
        network.activation.differentiate(delta, outputs);
    }
    for (l, layer) in network.layers.iter().enumerate().rev() {
        let width = row_stride(layer.outputs);
        let (before, after) = deltas.split_at_mut(l);
        let delta = &after[0][..rows * width];
        let hidden = l.checked_sub(1).map(|k| &outputs[k][..rows * row_stride(layer.inputs)]);
        if let (true, Some(inputs), Some(of_inputs)) = (layer.gated, hidden, before.last_mut()) {
            let (outputs, gradients) = (&outputs[l][..rows * width], &after[1][..]);
            let (own, next) = (&packed.layers[l].backward, &packed.layers[l + 1].backward);
            let gate = Gate { rows, layer: *layer, inputs, outputs, gradients, weights: next };
            if learns {
                gate.sum_rows(simd, adds, &mut bias_gradients[l]);
                gate.of_weights(simd, adds, gate_memory, &mut weight_gradients[l]);
            }
            gate.of_inputs(simd, own, gate_memory, of_inputs);
            continue;
        }
        if learns {
            let (values, stride) = match hidden {
                Some(hidden) => (hidden, row_stride(layer.inputs)),
                None => (inputs, network.input_stride),
            };
            sum_rows(simd, delta, adds, &mut bias_gradients[l]);
            let gradient = &mut weight_gradients[l];
            if layer.gradient_by_inputs() {
                let left = Left::columns(values, layer.inputs, rows, stride);
                product(simd, left, delta, layer.outputs, start, Finish::Keep, gradient);
            } else {
                let left = Left::columns(delta, layer.outputs, rows, width);
                product(simd, left, values, layer.inputs, start, Finish::Keep, gradient);
            }
        }
        let left = Left::rows(delta, rows, layer.outputs, width);
        let weights = &packed.layers[l];
        if let (Some(hidden), Some(before)) = (hidden, before.last_mut()) {
            if network.layers[l - 1].gated {
                continue; // which needs the factors alone
            }
            let finish = match network.activation {
                Activation::Relu => Finish::WherePositive(hidden),
                Activation::Tanh => Finish::Keep,
            };
            product(simd, left, &weights.backward, layer.inputs, Start::Zero, finish, before);
            if network.activation == Activation::Tanh {
                network.activation.differentiate(before, hidden);
            }
        } else if let Some(out) = input_gradients.take() {
            if layer.has_few_inputs() {
                row_products(
                    simd,
                    delta,
                    &weights.forward,
                    (layer.outputs, layer.inputs),
                    None,
                    out,
                );
            } else {
                let (width, start) = (layer.inputs, Start::Zero);
                product(simd, left, &weights.backward, width, start, Finish::Keep, out);
            }
        }
    }
    workspace.has_gradients |= learns;
}

/// Adds every row of `matrix` to `sums`, or to zero.
#[inline(always)]
fn sum_rows<F: Real, S: Simd>(simd: S, matrix: &[F], adds: bool, sums: &mut [F]) {
    /// Sums at a time, which stay in registers.
    const WIDTH: usize = 8;
    let sums = F::vectors_mut::<S>(sums);
    let (stride, rows) = (sums.len(), F::vectors::<S>(matrix));
    for (i, sums) in sums.chunks_mut(WIDTH).enumerate() {
        let mut total = [F::splat(simd, F::zero()); WIDTH];
        if adds {
            total[..sums.len()].copy_from_slice(sums);
        }
        for row in rows.chunks_exact(stride) {
            for (total, &value) in total.iter_mut().zip(&row[i * WIDTH..][..sums.len()]) {
                *total = F::sum(simd, *total, value);
            }
        }
        sums.copy_from_slice(&total[..sums.len()]);
    }
}
