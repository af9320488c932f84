//! The shape of an LSTM layer, where its parameters are, and how products read them.

use crate::linalg::{Layer, Order, PackedLayer, Real};
use rlox_kernels::threads;

/// Gates of a unit: input, forget, cell and output, in torch's order.
pub(super) const GATES: usize = 4;

/// An LSTM layer, whose parameters lie as in `torch.nn.LSTM`: weights of the inputs and of the hidden
/// state, (4 `units`) × columns each, then the biases of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lstm {
    pub(super) units: usize,
    pub(super) of_inputs: Layer,
    pub(super) of_hidden: Layer,
}

impl Lstm {
    /// A layer whose parameters begin at `offset`.
    pub(crate) fn new(inputs: usize, units: usize, offset: usize) -> Self {
        let outputs = GATES * units;
        let hidden = offset + outputs * inputs;
        let bias = hidden + outputs * units;
        // `first` also keeps the packed order the same for any number of units
        let layer = |inputs, weights, bias| {
            let order = Order::ByOutputs;
            Layer { inputs, outputs, weights, bias, order, first: true, gated: false }
        };
        Self {
            units,
            of_inputs: layer(inputs, offset, bias),
            of_hidden: layer(units, hidden, bias + outputs),
        }
    }

    /// Numbers that go in at a step.
    pub(super) fn inputs(self) -> usize {
        self.of_inputs.inputs
    }

    /// Numbers of a state: hidden and cell.
    pub(crate) fn state_size(self) -> usize {
        2 * self.units
    }

    /// Where the parameters end.
    pub(crate) fn end(self) -> usize {
        self.of_hidden.end()
    }

    /// How many threads should help with so many rows.
    pub(super) fn helpers(self, rows: usize) -> usize {
        threads::product_helpers(rows * (self.inputs() + self.units) * GATES * self.units)
    }
}

/// The parameters of an LSTM layer in the order in which products read them.
#[derive(Debug)]
pub(crate) struct PackedLstm<F> {
    /// With both biases, whose sum is all that counts.
    pub(super) of_inputs: PackedLayer<F>,
    pub(super) of_hidden: PackedLayer<F>,
}

impl<F: Real> PackedLstm<F> {
    pub(super) fn new(lstm: Lstm) -> Self {
        Self {
            of_inputs: PackedLayer::new(lstm.of_inputs, false),
            of_hidden: PackedLayer::new(lstm.of_hidden, true),
        }
    }

    /// Copies the layer's part of `parameters`.
    pub(super) fn load(&mut self, lstm: Lstm, parameters: &[F]) {
        self.of_inputs.load(lstm.of_inputs, parameters);
        self.of_hidden.load(lstm.of_hidden, parameters);
        self.of_inputs.add_bias(&self.of_hidden);
    }
}
