//! The shape of a multi-layer perceptron.

use super::linalg::{BLOCK_ROWS, Layer, PAD, Real, Rows, row_stride};
use rlox_kernels::threads;

/// Activation of every hidden output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Tanh,
    Relu,
}

impl Activation {
    /// Multiplies gradients with respect to the outputs `y` by the derivative.
    #[inline(always)]
    pub(super) fn differentiate<F: Real>(self, gradients: &mut [F], outputs: &[F]) {
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

/// The shape of a network and the places of its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) layers: Vec<Layer>,
    pub(super) activation: Activation,
    /// Whether the last layer has an activation too.
    pub(super) activates_last: bool,
    /// Elements from one row of inputs to the next.
    pub(super) input_stride: usize,
    /// Start of the inputs in a row.
    pub(super) input_offset: usize,
}

impl Network {
    /// `torch.nn.Linear` layers of these sizes, inputs first, with tanh between them and parameters
    /// from `offset` on.
    pub(super) fn new(sizes: &[usize], offset: usize) -> Self {
        Self::of(Layer::linear(sizes, offset), true)
    }

    /// The same network with `ReLU` between its layers.
    pub(super) fn rectified(self) -> Self {
        Self { activation: Activation::Relu, ..self }.gated(1)
    }

    /// The same network, for gradients that go through one, any one, of its outputs in most rows.
    pub(super) fn one_output_a_row(self) -> Self {
        self.gated(PAD)
    }

    /// The same network with a gated layer if it has at most `most_outputs` outputs.
    fn gated(mut self, most_outputs: usize) -> Self {
        if let (Activation::Relu, [.., layer, last]) = (self.activation, &mut self.layers[..]) {
            layer.gated = last.outputs <= most_outputs && layer.can_be_gated();
        }
        self
    }

    /// Layers with `tanh` between them, or `ReLU`.
    pub(super) fn of(layers: Vec<Layer>, tanh: bool) -> Self {
        let activation = if tanh { Activation::Tanh } else { Activation::Relu };
        let input_stride = layers.first().map_or(0, |layer| layer.inputs);
        Self { layers, activation, activates_last: false, input_stride, input_offset: 0 }.gated(1)
    }

    /// The same network with inputs that begin at `offset` in rows of `stride` elements.
    pub(super) fn within(self, offset: usize, stride: usize) -> Self {
        Self { input_stride: stride, input_offset: offset, ..self }
    }

    /// Its inputs in `rows` rows.
    pub(super) fn inputs<'a, F>(&self, elements: &'a [F], rows: usize) -> Rows<'a, F> {
        let elements = elements.get(self.input_offset..).unwrap_or(&[]);
        Rows { elements, rows, stride: self.input_stride }
    }

    /// The outputs of the gated layer, if there is one.
    pub(super) fn gated_width(&self) -> usize {
        self.layers.iter().find(|layer| layer.gated).map_or(0, |layer| layer.outputs)
    }

    /// Number of helpers for `rows` rows.
    pub(super) fn helpers(&self, rows: usize) -> usize {
        threads::product_helpers(self.multiply_adds(rows))
    }

    /// Multiplications and additions of a pass through the network, of at most a block of rows.
    pub(super) fn multiply_adds(&self, rows: usize) -> usize {
        let weights: usize = self.layers.iter().map(|layer| layer.inputs * layer.outputs).sum();
        rows.min(BLOCK_ROWS) * weights
    }

    /// End of the parameters.
    pub(super) fn end(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.end())
    }

    /// Elements from one row of outputs to the next.
    #[inline]
    pub(super) fn output_stride(&self) -> usize {
        self.layers.last().map_or(0, |layer| row_stride(layer.outputs))
    }

    /// Whether layer `l` has this activation.
    pub(super) fn activates(&self, l: usize, activation: Activation) -> bool {
        self.activation == activation && (self.activates_last || l + 1 < self.layers.len())
    }
}
