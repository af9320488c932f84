//! Activations and gradients of a network for a block of rows.

use super::Real;
use super::linalg::{Aligned, BLOCK_ROWS, GateMemory, Layer, row_stride};
use super::network::Network;

/// What one block of rows leaves behind on its way through a network.
#[derive(Debug)]
pub(super) struct Workspace<F> {
    /// Per layer, [`BLOCK_ROWS`] rows of its outputs, after the activation.
    pub(super) outputs: Vec<Aligned<F>>,
    /// Gradients with respect to `outputs`.
    pub(super) deltas: Vec<Aligned<F>>,
    /// Per layer: gradients of the weights, as [`Layer::gradient_shape`] has them.
    pub(super) weight_gradients: Vec<Aligned<F>>,
    /// Per layer: gradients of the biases.
    pub(super) bias_gradients: Vec<Aligned<F>>,
    /// Whether there are any yet.
    pub(super) has_gradients: bool,
    pub(super) gate_memory: GateMemory<F>,
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
            gate_memory: GateMemory::new(network.gated_width()),
        }
    }

    /// The outputs of the rows that went forward last, in rows of [`Network::output_stride`].
    pub(super) fn output(&self) -> &[F] {
        self.outputs.last().map_or(&[], |last| last)
    }

    /// Where the gradient with respect to [`Workspace::output`] goes before the way back.
    pub(super) fn output_gradient(&mut self) -> &mut [F] {
        self.deltas.last_mut().map_or(&mut [], |last| last)
    }

    /// `n` of the outputs from `at` on, and where their gradients go.
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

    /// Forgets the gradients gathered so far.
    pub(super) fn clear_gradients(&mut self) {
        self.has_gradients = false;
    }

    /// Writes the gradients gathered so far to the network's part of `gradients`.
    #[inline(always)]
    pub(super) fn write_gradients(&self, network: &Network, gradients: &mut [F]) {
        for (l, layer) in network.layers.iter().enumerate() {
            layer.write_gradients(&self.weight_gradients[l], &self.bias_gradients[l], gradients);
        }
    }
}
