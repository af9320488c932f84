//! The seven functions of [`linalg`](super) as plain loops in double precision, which define them.
//!
//! The arguments are those of the twins except instruction set and memory. Padding is not written.

use super::{Gate, Layer, PackedLayer, Real, Rows, row_stride};

/// `out[i, j] = bias[j] + Σ_k inputs[i, k] · weights[k, j]`, and 0 for negative ones if it `rectifies`.
pub fn affine<F: Real>(
    layer: Layer,
    packed: &PackedLayer<F>,
    inputs: Rows<'_, F>,
    rectifies: bool,
    out: &mut [F],
) {
    for i in 0..inputs.rows {
        for j in 0..layer.outputs {
            let terms = (0..layer.inputs).map(|k| inputs.at(i, k) * packed.weight(layer, k, j));
            let sum = packed.bias[j].widen() + terms.sum::<f64>();
            let value = if rectifies && sum < 0.0 { 0.0 } else { sum };
            out[i * row_stride(layer.outputs) + j] = F::of(value);
        }
    }
}

/// [`affine`] with the layer's part of `parameters`.
pub fn affine_of_few<F: Real>(
    layer: Layer,
    parameters: &[F],
    inputs: Rows<'_, F>,
    rectifies: bool,
    out: &mut [F],
) {
    let mut packed = PackedLayer::new(layer, true);
    packed.load(layer, parameters);
    affine(layer, &packed, inputs, rectifies, out);
}

/// `out[i, j] += Σ_k inputs[i, k] · weights[k, j]`.
pub fn accumulate<F: Real>(
    layer: Layer,
    packed: &PackedLayer<F>,
    inputs: Rows<'_, F>,
    out: &mut [F],
) {
    for i in 0..inputs.rows {
        for j in 0..layer.outputs {
            let terms = (0..layer.inputs).map(|k| inputs.at(i, k) * packed.weight(layer, k, j));
            let out = &mut out[i * row_stride(layer.outputs) + j];
            *out = F::of(out.widen() + terms.sum::<f64>());
        }
    }
}

/// `out[i, k] = Σ_j deltas[i, j] · weights[k, j]`, and 0 if `mask[i, k] ≤ 0`.
pub fn affine_backward_inputs<F: Real>(
    layer: Layer,
    packed: &PackedLayer<F>,
    deltas: Rows<'_, F>,
    mask: Option<&[F]>,
    out: &mut [F],
) {
    for i in 0..deltas.rows {
        for k in 0..layer.inputs {
            let at = i * row_stride(layer.inputs) + k;
            let terms = (0..layer.outputs).map(|j| deltas.at(i, j) * packed.weight(layer, k, j));
            let passes = mask.is_none_or(|mask| mask[at] > F::zero());
            out[at] = F::of(if passes { terms.sum() } else { 0.0 });
        }
    }
}

/// `weights[k, j] (+)= Σ_i inputs[i, k] · deltas[i, j]` and `biases[j] (+)= Σ_i deltas[i, j]`.
pub fn affine_backward_weights<F: Real>(
    layer: Layer,
    inputs: Rows<'_, F>,
    deltas: Rows<'_, F>,
    adds: bool,
    [weights, biases]: [&mut [F]; 2],
) {
    let delta = |i, j| deltas.at(i, j);
    sum_gradients(layer, inputs, &delta, adds, [weights, biases]);
}

/// Input gradients with `deltas[i, j] = gradients[i] · row[j]`, and 0 if `outputs[i, j] ≤ 0`; 0 for
/// inputs that are not positive.
pub fn masked_outer_inputs<F: Real>(gate: Gate<'_, F>, packed: &PackedLayer<F>, out: &mut [F]) {
    let Gate { rows, layer, inputs, .. } = gate;
    for i in 0..rows {
        for k in 0..layer.inputs {
            let at = i * row_stride(layer.inputs) + k;
            let terms = (0..layer.outputs).map(|j| gate.delta(i, j) * packed.weight(layer, k, j));
            out[at] = F::of(if inputs[at] > F::zero() { terms.sum() } else { 0.0 });
        }
    }
}

/// Gradients of weights and biases with the same deltas.
pub fn masked_outer_weights<F: Real>(
    gate: Gate<'_, F>,
    adds: bool,
    [weights, biases]: [&mut [F]; 2],
) {
    let Gate { rows, layer, inputs, .. } = gate;
    let inputs = Rows { elements: inputs, rows, stride: row_stride(layer.inputs) };
    sum_gradients(layer, inputs, &|i, j| gate.delta(i, j), adds, [weights, biases]);
}

fn sum_gradients<F: Real>(
    layer: Layer,
    inputs: Rows<'_, F>,
    delta: &dyn Fn(usize, usize) -> f64,
    adds: bool,
    [weights, biases]: [&mut [F]; 2],
) {
    let before = |value: F| if adds { value.widen() } else { 0.0 };
    for (j, bias) in biases.iter_mut().enumerate().take(layer.outputs) {
        *bias = F::of(before(*bias) + (0..inputs.rows).map(|i| delta(i, j)).sum::<f64>());
        for k in 0..layer.inputs {
            let at = if layer.gradient_by_inputs() {
                k * row_stride(layer.outputs) + j
            } else {
                j * row_stride(layer.inputs) + k
            };
            let terms = (0..inputs.rows).map(|i| inputs.at(i, k) * delta(i, j));
            weights[at] = F::of(before(weights[at]) + terms.sum::<f64>());
        }
    }
}

impl<F: Real> Rows<'_, F> {
    fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.stride + column].widen()
    }
}

impl<F: Real> PackedLayer<F> {
    /// The weight from an input to an output.
    fn weight(&self, layer: Layer, input: usize, output: usize) -> f64 {
        if self.forward.is_empty() {
            self.backward[output * row_stride(layer.inputs) + input].widen()
        } else {
            self.forward[input * row_stride(layer.outputs) + output].widen()
        }
    }
}
