//! A multi-layer perceptron with tanh between its layers, forwards and backwards over a block of
//! rows.

use pulp::Simd;

use super::Real;
use super::product::{Left, Start, product};
use super::real::padded;

/// Rows that go through the network together: their activations stay in the first-level cache.
pub(super) const BLOCK_ROWS: usize = 64;

/// One linear layer and where its parameters are in the flat array: weights `outputs` × `inputs`,
/// then biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layer {
    inputs: usize,
    outputs: usize,
    offset: usize,
}

impl Layer {
    fn bias(self) -> usize {
        self.offset + self.inputs * self.outputs
    }

    fn end(self) -> usize {
        self.bias() + self.outputs
    }
}

/// The shape of a network, and where its parameters are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    layers: Vec<Layer>,
}

impl Network {
    /// A network with layers of these sizes, inputs first, whose parameters begin at `offset`.
    pub(super) fn new(sizes: &[usize], mut offset: usize) -> Self {
        let layers = sizes
            .windows(2)
            .map(|pair| {
                let layer = Layer { inputs: pair[0], outputs: pair[1], offset };
                offset = layer.end();
                layer
            })
            .collect();
        Self { layers }
    }

    /// Where the parameters end.
    pub(super) fn end(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.end())
    }

    /// Elements from one row of outputs to the next.
    pub(super) fn output_stride(&self) -> usize {
        self.layers.last().map_or(0, |layer| padded(layer.outputs))
    }
}

/// The parameters of a layer in the order in which products read them, padded with zeros.
#[derive(Debug, Clone)]
struct PackedLayer<F> {
    /// `inputs` × `outputs`.
    forward: Vec<F>,
    /// `outputs` × `inputs`; empty for the first layer, through which no gradient goes.
    backward: Vec<F>,
    bias: Vec<F>,
}

/// The parameters of a network in the order in which products read them.
#[derive(Debug, Clone)]
pub(super) struct Packed<F> {
    layers: Vec<PackedLayer<F>>,
}

impl<F: Real> Packed<F> {
    pub(super) fn new(network: &Network) -> Self {
        let zeros = |n| vec![F::zero(); n];
        let layers = network.layers.iter().enumerate().map(|(l, layer)| PackedLayer {
            forward: zeros(layer.inputs * padded(layer.outputs)),
            backward: zeros(if l == 0 { 0 } else { layer.outputs * padded(layer.inputs) }),
            bias: zeros(padded(layer.outputs)),
        });
        Self { layers: layers.collect() }
    }

    /// Copies the network's part of `parameters`.
    pub(super) fn load(&mut self, network: &Network, parameters: &[F]) {
        for (packed, layer) in self.layers.iter_mut().zip(&network.layers) {
            let weights = &parameters[layer.offset..layer.bias()];
            let stride = padded(layer.outputs);
            for (j, row) in weights.chunks_exact(layer.inputs).enumerate() {
                for (k, &weight) in row.iter().enumerate() {
                    packed.forward[k * stride + j] = weight;
                }
            }
            let rows = packed.backward.chunks_exact_mut(padded(layer.inputs));
            for (to, from) in rows.zip(weights.chunks_exact(layer.inputs)) {
                to[..layer.inputs].copy_from_slice(from);
            }
            packed.bias[..layer.outputs].copy_from_slice(&parameters[layer.bias()..layer.end()]);
        }
    }
}

/// What one block of rows leaves behind on its way through a network.
#[derive(Debug, Clone)]
pub(super) struct Workspace<F> {
    /// Per layer, [`BLOCK_ROWS`] × its padded outputs; of all but the last after the tanh.
    outputs: Vec<Vec<F>>,
    /// Gradients with respect to `outputs`.
    deltas: Vec<Vec<F>>,
    /// Per layer: gradients of the weights, `inputs` × padded `outputs` for the first layer, which
    /// is narrow at its inputs, `outputs` × padded `inputs` for the others.
    weight_gradients: Vec<Vec<F>>,
    /// Per layer: gradients of the biases, padded.
    bias_gradients: Vec<Vec<F>>,
}

impl<F: Real> Workspace<F> {
    pub(super) fn new(network: &Network) -> Self {
        let of_layers = |size: &dyn Fn(usize, &Layer) -> usize| -> Vec<Vec<F>> {
            let layers = network.layers.iter().enumerate();
            layers.map(|(l, layer)| vec![F::zero(); size(l, layer)]).collect()
        };
        let block = |_, layer: &Layer| BLOCK_ROWS * padded(layer.outputs);
        Self {
            outputs: of_layers(&block),
            deltas: of_layers(&block),
            weight_gradients: of_layers(&|l, layer| {
                if l == 0 {
                    layer.inputs * padded(layer.outputs)
                } else {
                    layer.outputs * padded(layer.inputs)
                }
            }),
            bias_gradients: of_layers(&|_, layer| padded(layer.outputs)),
        }
    }

    /// The outputs of the last [`forward`], in rows of [`Network::output_stride`].
    pub(super) fn output(&self) -> &[F] {
        self.outputs.last().map_or(&[], |last| last)
    }

    /// Where the gradient with respect to [`Workspace::output`] goes before [`backward`].
    pub(super) fn output_gradient(&mut self) -> &mut [F] {
        self.deltas.last_mut().map_or(&mut [], |last| last)
    }

    /// Forgets the gradients gathered so far.
    pub(super) fn clear_gradients(&mut self) {
        for part in self.weight_gradients.iter_mut().chain(&mut self.bias_gradients) {
            part.fill(F::zero());
        }
    }

    /// Adds the gradients gathered so far to the network's part of `gradients`.
    pub(super) fn add_gradients(&self, network: &Network, gradients: &mut [F]) {
        for (l, layer) in network.layers.iter().enumerate() {
            let (weights, biases) =
                gradients[layer.offset..layer.end()].split_at_mut(layer.inputs * layer.outputs);
            let own = &self.weight_gradients[l];
            for (j, row) in weights.chunks_exact_mut(layer.inputs).enumerate() {
                if l == 0 {
                    for (k, weight) in row.iter_mut().enumerate() {
                        *weight = *weight + own[k * padded(layer.outputs) + j];
                    }
                } else {
                    add(row, &own[j * padded(layer.inputs)..]);
                }
            }
            add(biases, &self.bias_gradients[l]);
        }
    }
}

/// Adds as many elements as `sums` has.
fn add<F: Real>(sums: &mut [F], values: &[F]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum = *sum + value;
    }
}

/// Computes the outputs of up to [`BLOCK_ROWS`] `rows` of `inputs`.
#[inline(always)]
pub(super) fn forward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
) {
    let last = network.layers.len() - 1;
    for (l, (layer, packed)) in network.layers.iter().zip(&packed.layers).enumerate() {
        let width = padded(layer.outputs);
        let (before, after) = workspace.outputs.split_at_mut(l);
        let left = match before.last() {
            None => Left::rows(inputs, rows, layer.inputs, layer.inputs),
            Some(hidden) => Left::rows(hidden, rows, layer.inputs, padded(layer.inputs)),
        };
        let out = &mut after[0][..rows * width];
        product(simd, left, &packed.forward, width, Start::Row(&packed.bias), out);
        if l < last {
            F::tanh_all(simd, out);
        }
    }
}

/// Adds the gradient of the rows last passed to [`forward`], given their
/// [`Workspace::output_gradient`].
#[inline(always)]
pub(super) fn backward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
) {
    let Workspace { outputs, deltas, weight_gradients, bias_gradients } = workspace;
    for (l, layer) in network.layers.iter().enumerate().rev() {
        let width = padded(layer.outputs);
        let (before, after) = deltas.split_at_mut(l);
        let delta = &after[0][..rows * width];
        sum_rows(simd, delta, &mut bias_gradients[l]);
        let gradient = &mut weight_gradients[l];
        let (Some(hidden), Some(before)) =
            (l.checked_sub(1).map(|k| &outputs[k]), before.last_mut())
        else {
            let left = Left::columns(inputs, layer.inputs, rows, layer.inputs);
            product(simd, left, delta, width, Start::Output, gradient);
            continue;
        };
        let stride = padded(layer.inputs);
        let hidden = &hidden[..rows * stride];
        let left = Left::columns(delta, layer.outputs, rows, width);
        product(simd, left, hidden, stride, Start::Output, gradient);
        let before = &mut before[..rows * stride];
        let left = Left::rows(delta, rows, layer.outputs, width);
        product(simd, left, &packed.layers[l].backward, stride, Start::Zero, before);
        through_tanh(before, hidden);
    }
}

/// Multiplies gradients with respect to `y = tanh x` by the derivative 1 - y².
#[inline(always)]
fn through_tanh<F: Real>(gradients: &mut [F], outputs: &[F]) {
    for (gradient, &y) in gradients.iter_mut().zip(outputs) {
        *gradient = *gradient * (F::one() - y * y);
    }
}

/// Adds every row of `matrix` to `sums`.
#[inline(always)]
fn sum_rows<F: Real, S: Simd>(simd: S, matrix: &[F], sums: &mut [F]) {
    let sums = F::vectors_mut::<S>(sums);
    for row in F::vectors::<S>(matrix).chunks_exact(sums.len()) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum = F::sum(simd, *sum, value);
        }
    }
}
