//! Activations and gradients of a network for a block of rows.

use super::Real;
use super::linalg::{Aligned, BLOCK_ROWS, GateMemory, Gathered, Layer, row_stride};
use super::network::Network;
use super::stretches::Stretch;

/// Activations and gradients of one block of rows in a network.
#[derive(Debug)]
pub(super) struct Workspace<F> {
    /// Per layer, [`BLOCK_ROWS`] rows of its outputs, after the activation.
    pub(super) outputs: Vec<Aligned<F>>,
    /// Gradients with respect to `outputs`.
    pub(super) deltas: Vec<Aligned<F>>,
    /// Per layer: gradients of the weights, of [`Layer::gradient_shape`].
    pub(super) weight_gradients: Vec<Aligned<F>>,
    /// Per layer: gradients of the biases.
    pub(super) bias_gradients: Vec<Aligned<F>>,
    /// Whether gradients have been computed yet.
    pub(super) has_gradients: bool,
    /// Rows grouped by the output that has their gradient; empty if a row may have several.
    pub(super) stretches: Vec<Stretch>,
    /// One for each part of the rows in the backward pass.
    pub(super) gate_memories: Vec<GateMemory<F>>,
}

impl<F: Real> Workspace<F> {
    pub(super) fn new(network: &Network) -> Self {
        let of_layers = |size: &dyn Fn(&Layer) -> usize| -> Vec<Aligned<F>> {
            network.layers.iter().map(|layer| Aligned::zeros(size(layer))).collect()
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
            has_gradients: false,
            stretches: Vec::new(),
            gate_memories: Vec::new(),
        }
    }

    /// The outputs of the last forward pass, in rows of [`Network::output_stride`].
    pub(super) fn output(&self) -> &[F] {
        self.outputs.last().map_or(&[], |last| last)
    }

    /// Buffer of the gradient of [`Workspace::output`], filled before the backward pass.
    pub(super) fn output_gradient(&mut self) -> &mut [F] {
        self.deltas.last_mut().map_or(&mut [], |last| last)
    }

    /// `n` of the outputs from `at` on, and the buffer of their gradients.
    pub(super) fn output_and_gradient(&mut self, at: usize, n: usize) -> (&[F], &mut [F]) {
        match (self.outputs.last(), self.deltas.last_mut()) {
            (Some(outputs), Some(deltas)) => (&outputs[at..][..n], &mut deltas[at..][..n]),
            _ => (&[], &mut []),
        }
    }

    /// Moves the rows `kept`, in ascending order, and their output gradients to the front.
    pub(super) fn keep_rows(&mut self, kept: &[usize]) {
        for matrix in self.outputs.iter_mut().chain(self.deltas.last_mut()) {
            let stride = matrix.len() / BLOCK_ROWS;
            for (to, &from) in kept.iter().enumerate().filter(|(to, from)| to != *from) {
                matrix.copy_within(from * stride..(from + 1) * stride, to * stride);
            }
        }
    }

    /// The gradients of the network's parameters.
    pub(super) fn gradients<'a>(
        &'a self,
        network: &'a Network,
    ) -> impl Iterator<Item = Gathered<'a, F>> {
        let gathered = self.weight_gradients.iter().zip(&self.bias_gradients);
        let layers = network.layers.iter().zip(gathered);
        layers.flat_map(|(&layer, (weights, biases))| Gathered::of_layer(layer, weights, biases))
    }

    /// Multiplies the gradients since the last [`Workspace::clear_gradients`] by `factor`.
    pub(super) fn scale_gradients(&mut self, factor: F) {
        for gradient in self.weight_gradients.iter_mut().chain(&mut self.bias_gradients) {
            gradient.iter_mut().for_each(|value| *value = *value * factor);
        }
    }

    /// Clears the accumulated gradients.
    pub(super) fn clear_gradients(&mut self) {
        self.has_gradients = false;
    }
}

/// The gradients of the parameters of several networks.
pub(super) fn gradients<'a, F: Real>(
    workspaces: &'a [Workspace<F>],
    networks: impl IntoIterator<Item = &'a Network>,
) -> impl Iterator<Item = Gathered<'a, F>> {
    let workspaces = workspaces.iter().zip(networks);
    workspaces.flat_map(|(workspace, network)| workspace.gradients(network))
}
