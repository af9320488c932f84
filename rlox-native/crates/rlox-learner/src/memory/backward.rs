//! The way back through an LSTM layer.

use pulp::Simd;

use super::lstm::{GATES, Lstm, PackedLstm};
use super::unrolled::{Unrolled, forget, split};
use crate::inlined::Inlined;
use crate::linalg::{Real, Rows, affine_backward_inputs, affine_backward_weights, row_stride};

impl<F: Real> Unrolled<F> {
    /// Goes back through the steps of the last [`Unrolled::forward`], given the gradients with respect
    /// to its outputs, and computes those of the parameters.
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

    /// Goes back through a step of the sequences, whose rows begin at `first`.
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
            return; // as nothing asks for the gradients with respect to the first states
        }
        let deltas = Rows { elements: gates, rows: n, stride: gate_stride };
        let hidden = &mut self.hidden[..n * stride];
        affine_backward_inputs(simd, lstm.of_hidden, &packed.of_hidden, deltas, None, hidden);
        forget(starts, stride, [hidden, &mut self.cells[..n * stride]]);
    }
}
