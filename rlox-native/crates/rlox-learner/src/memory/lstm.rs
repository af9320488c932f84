//! An LSTM layer: places of its parameters, forward and backward pass over steps of sequences.

use pulp::Simd;
use rlox_kernels::threads;

use crate::inlined::Inlined;
use crate::linalg::{
    Aligned, Gathered, Layer, Order, PackedLayer, Real, Rows, accumulate, affine,
    affine_backward_inputs, affine_backward_weights, row_stride,
};

/// Gates of a unit: input, forget, cell and output, in torch's order.
pub(super) const GATES: usize = 4;

/// An LSTM layer with parameters as in `torch.nn.LSTM`: weights of the inputs and of the hidden
/// state, (4 `units`) × columns each, then the biases of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lstm {
    pub(super) units: usize,
    pub(super) of_inputs: Layer,
    pub(super) of_hidden: Layer,
}

impl Lstm {
    /// A layer with parameters that begin at `offset`.
    pub(crate) fn new(inputs: usize, units: usize, offset: usize) -> Self {
        let outputs = GATES * units;
        let hidden = offset + outputs * inputs;
        let bias = hidden + outputs * units;
        // `first` also makes the packed order independent of the number of units
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

    /// Inputs per step.
    pub(super) fn inputs(self) -> usize {
        self.of_inputs.inputs
    }

    /// Size of a state: hidden and cell.
    pub(crate) fn state_size(self) -> usize {
        2 * self.units
    }

    /// End of the parameters.
    pub(crate) fn end(self) -> usize {
        self.of_hidden.end()
    }

    /// Number of helpers for `rows` rows.
    pub(super) fn helpers(self, rows: usize) -> usize {
        threads::product_helpers(rows * (self.inputs() + self.units) * GATES * self.units)
    }
}

/// The parameters of an LSTM layer in the order of products.
#[derive(Debug)]
pub(crate) struct PackedLstm<F> {
    /// With both biases, as only their sum matters.
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

/// Activations of an LSTM layer over L steps of n sequences, in rows of [`row_stride`], step 0 of
/// all sequences first.
#[derive(Debug)]
pub(super) struct Unrolled<F> {
    pub(super) units: usize,
    /// Factors before and after tanh and an addend turn it into each gate's activation: the
    /// logistic function is (1 + tanh(x / 2)) / 2.
    factors: Aligned<F>,
    addends: Aligned<F>,
    /// Input, forget, cell and output gates; in the backward pass, gradients with respect to the
    /// gates before activation.
    pub(super) gates: Aligned<F>,
    /// Hidden and cell state before a step, 0 at the start of an episode.
    pub(super) hidden_before: Aligned<F>,
    pub(super) cells_before: Aligned<F>,
    /// tanh of the cell state after a step.
    pub(super) tanh_cells: Aligned<F>,
    /// Hidden state after a step.
    outputs: Aligned<F>,
    pub(super) output_gradients: Aligned<F>,
    /// Present hidden and cell state of the n sequences; in the backward pass, their gradients.
    pub(super) hidden: Aligned<F>,
    pub(super) cells: Aligned<F>,
    /// Gradients of weights and biases, of the inputs and of the hidden state.
    pub(super) gradients: [[Aligned<F>; 2]; 2],
}

/// Makes room for `len` numbers.
fn reserve<F: Real>(matrix: &mut Aligned<F>, len: usize) {
    if matrix.len() < len {
        *matrix = Aligned::zeros(len);
    }
}

impl<F: Real> Unrolled<F> {
    pub(super) fn new(lstm: Lstm) -> Self {
        let none = || Aligned::zeros(0);
        let stride = row_stride(GATES * lstm.units);
        let [mut factors, mut addends] = [(); 2].map(|()| Aligned::zeros(stride));
        let half = F::of(0.5);
        for gate in 0..GATES {
            let tanh = gate == 2;
            let columns = gate * lstm.units..(gate + 1) * lstm.units;
            factors[columns.clone()].fill(if tanh { F::one() } else { half });
            addends[columns].fill(if tanh { F::zero() } else { half });
        }
        Self {
            units: lstm.units,
            factors,
            addends,
            gates: none(),
            hidden_before: none(),
            cells_before: none(),
            tanh_cells: none(),
            outputs: none(),
            output_gradients: none(),
            hidden: none(),
            cells: none(),
            gradients: [lstm.of_inputs, lstm.of_hidden].map(|layer| {
                let (rows, columns) = layer.gradient_shape();
                [Aligned::zeros(rows * row_stride(columns)), Aligned::zeros(stride)]
            }),
        }
    }

    /// Size of a state: hidden and cell.
    pub(super) fn state_size(&self) -> usize {
        2 * self.units
    }

    /// Reads the states of `n` sequences.
    pub(super) fn begin<'s>(&mut self, n: usize, states: impl Iterator<Item = &'s [F]>) {
        let (units, stride) = (self.units, row_stride(self.units));
        reserve(&mut self.hidden, n * stride);
        reserve(&mut self.cells, n * stride);
        let rows = self.hidden.chunks_exact_mut(stride).zip(self.cells.chunks_exact_mut(stride));
        for ((hidden, cells), state) in rows.zip(states) {
            hidden[..units].copy_from_slice(&state[..units]);
            cells[..units].copy_from_slice(&state[units..2 * units]);
        }
    }

    /// Writes the state of sequence `j`.
    pub(super) fn write_state(&self, j: usize, state: &mut [F]) {
        let (hidden, cells) = state.split_at_mut(self.units);
        let first = j * row_stride(self.units);
        hidden.copy_from_slice(&self.hidden[first..][..self.units]);
        cells.copy_from_slice(&self.cells[first..][..self.units]);
    }

    /// Uses the hidden states at the start of `states` as outputs, and returns them.
    pub(super) fn recall<'s>(&mut self, states: impl ExactSizeIterator<Item = &'s [F]>) -> &[F] {
        let (units, stride, n) = (self.units, row_stride(self.units), states.len());
        reserve(&mut self.outputs, n * stride);
        for (output, state) in self.outputs.chunks_exact_mut(stride).zip(states) {
            output[..units].copy_from_slice(&state[..units]);
        }
        &self.outputs[..n * stride]
    }

    /// The outputs from row `first` on and the buffer of their gradients.
    pub(super) fn outputs(&mut self, first: usize) -> (&[F], &mut [F]) {
        let at = first * row_stride(self.units);
        (&self.outputs[at..], &mut self.output_gradients[at..])
    }

    /// The accumulated gradients.
    pub(super) fn gradients(&self, lstm: Lstm) -> impl Iterator<Item = Gathered<'_, F>> {
        let layers = [lstm.of_inputs, lstm.of_hidden].into_iter().zip(&self.gradients);
        layers.flat_map(|(layer, [weights, biases])| Gathered::of_layer(layer, weights, biases))
    }

    /// Computes the outputs of all rows of `inputs`, which are steps of `n` sequences.
    #[inline(always)]
    pub(super) fn forward<S: Simd>(
        &mut self,
        simd: S,
        lstm: Lstm,
        packed: &PackedLstm<F>,
        inputs: Rows<'_, F>,
        starts: &[bool],
        n: usize,
    ) {
        let (rows, stride) = (inputs.rows, row_stride(self.units));
        let gates = rows * row_stride(GATES * self.units);
        reserve(&mut self.gates, gates);
        for matrix in [
            &mut self.hidden_before,
            &mut self.cells_before,
            &mut self.tanh_cells,
            &mut self.outputs,
            &mut self.output_gradients,
        ] {
            reserve(matrix, rows * stride);
        }
        simd.vectorize(Inlined(
            #[inline(always)]
            || {
                let out = &mut self.gates[..gates];
                affine(simd, lstm.of_inputs, &packed.of_inputs, inputs, false, out);
                for (t, starts) in starts.chunks_exact(n).enumerate() {
                    self.step(simd, lstm, packed, starts, t * n);
                }
            },
        ));
    }

    /// Computes a step of the sequences, with rows from `first` on.
    #[inline(always)]
    fn step<S: Simd>(
        &mut self,
        simd: S,
        lstm: Lstm,
        packed: &PackedLstm<F>,
        starts: &[bool],
        first: usize,
    ) {
        let (n, units, stride) = (starts.len(), self.units, row_stride(self.units));
        let gate_stride = row_stride(GATES * units);
        let block = first * stride..(first + n) * stride;
        let gates = &mut self.gates[first * gate_stride..(first + n) * gate_stride];
        let hidden_before = &mut self.hidden_before[block.clone()];
        let cells_before = &mut self.cells_before[block.clone()];
        hidden_before.copy_from_slice(&self.hidden[..n * stride]);
        cells_before.copy_from_slice(&self.cells[..n * stride]);
        forget(starts, stride, [&mut *hidden_before, &mut *cells_before]);
        let elements = &*hidden_before;
        let before = Rows { elements, rows: n, stride };
        accumulate(simd, lstm.of_hidden, &packed.of_hidden, before, gates);
        for row in gates.chunks_exact_mut(gate_stride) {
            for (gate, &factor) in row.iter_mut().zip(&*self.factors) {
                *gate = *gate * factor;
            }
        }
        F::tanh_all(simd, gates);
        let tanh_cells = &mut self.tanh_cells[block.clone()];
        for (j, row) in gates.chunks_exact_mut(gate_stride).enumerate() {
            for ((gate, &factor), &addend) in row.iter_mut().zip(&*self.factors).zip(&*self.addends)
            {
                *gate = *gate * factor + addend;
            }
            let [input, forget, cell, _] = split(row, units);
            let before = &cells_before[j * stride..][..units];
            let cells = &mut self.cells[j * stride..][..units];
            for k in 0..units {
                cells[k] = forget[k] * before[k] + input[k] * cell[k];
            }
            tanh_cells[j * stride..][..units].copy_from_slice(cells);
        }
        F::tanh_all(simd, tanh_cells);
        for (j, row) in gates.chunks_exact(gate_stride).enumerate() {
            let output = &row[3 * units..][..units];
            let tanh_cells = &tanh_cells[j * stride..][..units];
            let hidden = &mut self.hidden[j * stride..][..units];
            for k in 0..units {
                hidden[k] = output[k] * tanh_cells[k];
            }
        }
        self.outputs[block].copy_from_slice(&self.hidden[..n * stride]);
    }

    /// Backpropagates through the steps of the last [`Unrolled::forward`], given the gradients of
    /// its outputs, and computes those of the parameters.
    #[inline(always)]
    pub(super) fn backward<S: Simd>(
        &mut self,
        simd: S,
        lstm: Lstm,
        packed: &PackedLstm<F>,
        inputs: Rows<'_, F>,
        starts: &[bool],
        n: usize,
    ) {
        let stride = row_stride(self.units);
        self.hidden[..n * stride].fill(F::zero());
        self.cells[..n * stride].fill(F::zero());
        simd.vectorize(Inlined(
            #[inline(always)]
            || {
                for (t, starts) in starts.chunks_exact(n).enumerate().rev() {
                    self.step_back(simd, lstm, packed, starts, t * n);
                }
                let (rows, gate_stride) = (inputs.rows, row_stride(GATES * self.units));
                let elements = &self.gates[..rows * gate_stride];
                let deltas = Rows { elements, rows, stride: gate_stride };
                let elements = &self.hidden_before[..rows * stride];
                let before = Rows { elements, rows, stride };
                let [of_inputs, of_hidden] = &mut self.gradients;
                for (layer, inputs, [weights, biases]) in
                    [(lstm.of_inputs, inputs, of_inputs), (lstm.of_hidden, before, of_hidden)]
                {
                    let gradients = [&mut **weights, &mut **biases];
                    affine_backward_weights(simd, layer, inputs, deltas, false, gradients);
                }
            },
        ));
    }

    /// Backpropagates through a step of the sequences, with rows from `first` on.
    #[inline(always)]
    fn step_back<S: Simd>(
        &mut self,
        simd: S,
        lstm: Lstm,
        packed: &PackedLstm<F>,
        starts: &[bool],
        first: usize,
    ) {
        let (n, units, stride) = (starts.len(), self.units, row_stride(self.units));
        let gate_stride = row_stride(GATES * units);
        let gates = &mut self.gates[first * gate_stride..(first + n) * gate_stride];
        let one = F::one();
        for (j, row) in gates.chunks_exact_mut(gate_stride).enumerate() {
            let at = (first + j) * stride;
            let [input, forget, cell, output] = split(row, units);
            let tanh_cells = &self.tanh_cells[at..][..units];
            let before = &self.cells_before[at..][..units];
            let of_outputs = &self.output_gradients[at..][..units];
            let of_hidden = &self.hidden[j * stride..][..units];
            let of_cells = &mut self.cells[j * stride..][..units];
            for k in 0..units {
                let (i, f, g, o) = (input[k], forget[k], cell[k], output[k]);
                let of_hidden = of_outputs[k] + of_hidden[k];
                let of_cell = of_cells[k] + of_hidden * o * (one - tanh_cells[k] * tanh_cells[k]);
                input[k] = of_cell * g * i * (one - i);
                forget[k] = of_cell * before[k] * f * (one - f);
                cell[k] = of_cell * i * (one - g * g);
                output[k] = of_hidden * tanh_cells[k] * o * (one - o);
                of_cells[k] = of_cell * f;
            }
        }
        if first == 0 {
            return; // as the gradients of the first states are not needed
        }
        let deltas = Rows { elements: gates, rows: n, stride: gate_stride };
        let hidden = &mut self.hidden[..n * stride];
        affine_backward_inputs(simd, lstm.of_hidden, &packed.of_hidden, deltas, None, hidden);
        forget(starts, stride, [hidden, &mut self.cells[..n * stride]]);
    }
}

/// The four gates of a row.
#[inline(always)]
pub(super) fn split<F>(row: &mut [F], units: usize) -> [&mut [F]; 4] {
    let (input, rest) = row.split_at_mut(units);
    let (forget, rest) = rest.split_at_mut(units);
    let (cell, rest) = rest.split_at_mut(units);
    [input, forget, cell, &mut rest[..units]]
}

/// Sets the rows to 0 at the start of an episode.
#[inline(always)]
pub(super) fn forget<F: Real>(starts: &[bool], stride: usize, matrices: [&mut [F]; 2]) {
    for matrix in matrices {
        for (row, _) in matrix.chunks_exact_mut(stride).zip(starts).filter(|(_, begins)| **begins) {
            row.fill(F::zero());
        }
    }
}
