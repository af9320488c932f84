//! A multi-layer perceptron, forwards and backwards over a block of rows.

use pulp::Simd;

use super::Real;
use super::layer::{Layer, PackedLayer};
use super::product::{Left, Start, product};
use super::real::row_stride;

/// Rows that go through the network together: their activations stay in the caches.
pub(super) const BLOCK_ROWS: usize = 64;

/// What is applied to every hidden output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Tanh,
    Relu,
}

impl Activation {
    #[inline(always)]
    fn apply<F: Real, S: Simd>(self, simd: S, values: &mut [F]) {
        match self {
            Self::Tanh => F::tanh_all(simd, values),
            Self::Relu => {
                for value in values {
                    // What is no number stays none, as it does in torch.
                    *value = if *value < F::zero() { F::zero() } else { *value };
                }
            }
        }
    }

    /// Multiplies gradients with respect to the outputs `y` by the derivative.
    #[inline(always)]
    fn differentiate<F: Real>(self, gradients: &mut [F], outputs: &[F]) {
        let pairs = gradients.iter_mut().zip(outputs);
        match self {
            Self::Tanh => {
                for (gradient, &y) in pairs {
                    *gradient = *gradient * (F::one() - y * y);
                }
            }
            Self::Relu => {
                for (gradient, &y) in pairs {
                    *gradient = if y > F::zero() { *gradient } else { F::zero() };
                }
            }
        }
    }
}

/// The shape of a network, and where its parameters are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) layers: Vec<Layer>,
    pub(super) activation: Activation,
    /// Whether the last layer's outputs are activated too.
    pub(super) activates_last: bool,
    /// Elements from one row of inputs to the next.
    pub(super) input_stride: usize,
}

impl Network {
    /// Layers of `torch.nn.Linear` of these sizes, inputs first, with tanh between them, whose
    /// parameters begin at `offset`.
    pub(super) fn new(sizes: &[usize], offset: usize) -> Self {
        let layers = Layer::linear(sizes, offset);
        Self { activation: Activation::Tanh, ..Self::relu(layers) }
    }

    /// Layers with `ReLU` between them.
    pub(super) fn relu(layers: Vec<Layer>) -> Self {
        let input_stride = layers.first().map_or(0, |layer| layer.inputs);
        Self { layers, activation: Activation::Relu, activates_last: false, input_stride }
    }

    /// Where the parameters end.
    pub(super) fn end(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.end())
    }

    /// Elements from one row of outputs to the next.
    pub(super) fn output_stride(&self) -> usize {
        self.layers.last().map_or(0, |layer| row_stride(layer.outputs))
    }

    fn activates(&self, l: usize) -> bool {
        self.activates_last || l + 1 < self.layers.len()
    }
}

/// The parameters of a network in the order in which products read them.
#[derive(Debug, Clone)]
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

/// What one block of rows leaves behind on its way through a network.
#[derive(Debug, Clone)]
pub(super) struct Workspace<F> {
    /// Per layer, [`BLOCK_ROWS`] rows of its outputs, after the activation.
    outputs: Vec<Vec<F>>,
    /// Gradients with respect to `outputs`.
    deltas: Vec<Vec<F>>,
    /// Per layer: gradients of the weights, as [`Layer::gradient_shape`] has them.
    weight_gradients: Vec<Vec<F>>,
    /// Per layer: gradients of the biases.
    bias_gradients: Vec<Vec<F>>,
}

impl<F: Real> Workspace<F> {
    pub(super) fn new(network: &Network) -> Self {
        let of_layers = |size: &dyn Fn(&Layer) -> usize| -> Vec<Vec<F>> {
            network.layers.iter().map(|layer| vec![F::zero(); size(layer)]).collect()
        };
        let block = |layer: &Layer| BLOCK_ROWS * row_stride(layer.outputs);
        Self {
            outputs: of_layers(&block),
            deltas: of_layers(&block),
            weight_gradients: of_layers(&|layer| {
                let (rows, columns) = layer.gradient_shape();
                rows * row_stride(columns)
            }),
            bias_gradients: of_layers(&|layer| row_stride(layer.outputs)),
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

    /// `n` outputs of the last [`forward`] from `at` on, and where their gradients go.
    pub(super) fn output_and_gradient(&mut self, at: usize, n: usize) -> (&[F], &mut [F]) {
        match (self.outputs.last(), self.deltas.last_mut()) {
            (Some(outputs), Some(deltas)) => (&outputs[at..][..n], &mut deltas[at..][..n]),
            _ => (&[], &mut []),
        }
    }

    /// Forgets the gradients gathered so far.
    pub(super) fn clear_gradients(&mut self) {
        for part in self.weight_gradients.iter_mut().chain(&mut self.bias_gradients) {
            part.fill(F::zero());
        }
    }

    /// Adds the gradients gathered so far to the network's part of `gradients`.
    #[inline(always)]
    pub(super) fn add_gradients(&self, network: &Network, gradients: &mut [F]) {
        for (l, layer) in network.layers.iter().enumerate() {
            layer.add_gradients(&self.weight_gradients[l], &self.bias_gradients[l], gradients);
        }
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
    for (l, (layer, packed)) in network.layers.iter().zip(&packed.layers).enumerate() {
        let (before, after) = workspace.outputs.split_at_mut(l);
        let left = match before.last() {
            None => Left::rows(inputs, rows, layer.inputs, network.input_stride),
            Some(hidden) => Left::rows(hidden, rows, layer.inputs, row_stride(layer.inputs)),
        };
        let out = &mut after[0][..rows * row_stride(layer.outputs)];
        product(simd, left, &packed.forward, layer.outputs, Start::Row(&packed.bias), out);
        if network.activates(l) {
            network.activation.apply(simd, out);
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
    let (learns, mut input_gradients) = match gradients {
        Gradients::Parameters => (true, None),
        Gradients::Inputs(out) => (false, Some(out)),
        Gradients::All(out) => (true, Some(out)),
    };
    let Workspace { outputs, deltas, weight_gradients, bias_gradients } = workspace;
    for (l, layer) in network.layers.iter().enumerate().rev() {
        let width = row_stride(layer.outputs);
        let (before, after) = deltas.split_at_mut(l);
        let delta = &mut after[0][..rows * width];
        if network.activates(l) {
            network.activation.differentiate(delta, &outputs[l]);
        }
        let delta = &*delta;
        let hidden = l.checked_sub(1).map(|k| outputs[k].as_slice());
        if learns {
            let (values, stride) = match hidden {
                Some(hidden) => (hidden, row_stride(layer.inputs)),
                None => (inputs, network.input_stride),
            };
            sum_rows(simd, delta, &mut bias_gradients[l]);
            let gradient = &mut weight_gradients[l];
            if layer.gradient_by_inputs() {
                let left = Left::columns(values, layer.inputs, rows, stride);
                product(simd, left, delta, layer.outputs, Start::Output, gradient);
            } else {
                let left = Left::columns(delta, layer.outputs, rows, width);
                product(simd, left, values, layer.inputs, Start::Output, gradient);
            }
        }
        let out = match before.last_mut() {
            Some(before) => before.as_mut_slice(),
            None => match input_gradients.take() {
                Some(out) => out,
                None => return,
            },
        };
        let left = Left::rows(delta, rows, layer.outputs, width);
        product(simd, left, &packed.layers[l].backward, layer.inputs, Start::Zero, out);
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
