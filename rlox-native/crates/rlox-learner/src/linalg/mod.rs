//! Linear algebra of dense layers: seven functions, each with a naive twin in [`naive`].
//!
//! | function | computes | in |
//! |---|---|---|
//! | [`affine`] | outputs = inputs · W + b | `product`, `row_products` |
//! | [`affine_of_few`] | the same for a few rows, with parameters that have not been copied | `row_products` |
//! | [`accumulate`] | outputs += inputs · W | `product` |
//! | [`affine_backward_inputs`] | input gradients = output gradients · Wᵀ | `product`, `row_products` |
//! | [`affine_backward_weights`] | W's = inputsᵀ · output gradients, b's = their sums over rows | `product` |
//! | [`masked_outer_inputs`] | input gradients, if the output gradients are a masked outer product | `gated_product` |
//! | [`masked_outer_weights`] | W's and b's, in the same case | `gated_product` |
//!
//! The networks above call nothing else. To read or replace the arithmetic, start from the twins:
//! they define it, and the tests compare the two on every instruction set of the machine.
//!
//! Matrices are in rows of [`row_stride`] elements, padded with zeros. Lengths are not checked
//! again here: too short a slice panics.

mod aligned;
mod functions;
mod gate;
mod gated_product;
mod gathered;
mod layer;
pub mod naive;
mod product;
mod real;
mod row_products;
#[cfg(test)]
mod tests;

use pulp::Simd;

pub(crate) use aligned::Aligned;
pub use gate::{Gate, GateMemory};
pub(crate) use gathered::{Gathered, flatten};
pub use layer::{BLOCK_ROWS, Layer, Order, PackedLayer};
use product::{Finish, Left, Start, product};
pub(crate) use real::PAD;
pub use real::{Real, padded, row_stride};
use row_products::{few_rows, row_products};

/// A matrix of `rows` rows, `stride` elements from one to the next.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, F> {
    /// Row after row.
    pub elements: &'a [F],
    /// Number of rows used.
    pub rows: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

/// Writes `inputs · W + b`, negative elements as 0 if it `rectifies` them.
#[inline(always)]
pub fn affine<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    packed: &PackedLayer<F>,
    inputs: Rows<'_, F>,
    rectifies: bool,
    out: &mut [F],
) {
    if layer.has_few_outputs() {
        let shape = (layer.inputs, layer.outputs);
        row_products(simd, inputs.elements, &packed.backward, shape, Some(&packed.bias), out);
        if rectifies {
            rectify(out);
        }
        return;
    }
    let left = Left::rows(inputs.elements, inputs.rows, layer.inputs, inputs.stride);
    let finish = if rectifies { Finish::Rectify } else { Finish::Keep };
    product(simd, left, &packed.forward, layer.outputs, Start::Row(&packed.bias), finish, out);
}

/// Writes `inputs · W + b` of a few rows with the layer's part of `parameters`, stored
/// [`Order::ByOutputs`]; negative elements as 0 if it `rectifies` them.
#[inline(always)]
pub fn affine_of_few<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    parameters: &[F],
    inputs: Rows<'_, F>,
    rectifies: bool,
    out: &mut [F],
) {
    few_rows(simd, layer, parameters, inputs, out);
    if rectifies {
        rectify(out);
    }
}

#[inline(always)]
fn rectify<F: Real>(out: &mut [F]) {
    for value in out {
        // NaN stays NaN, as in torch.
        *value = if *value < F::zero() { F::zero() } else { *value };
    }
}

/// Adds `inputs · W` to `out`, for a layer that is `first` or has more than a few outputs.
#[inline(always)]
pub fn accumulate<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    packed: &PackedLayer<F>,
    inputs: Rows<'_, F>,
    out: &mut [F],
) {
    let left = Left::rows(inputs.elements, inputs.rows, layer.inputs, inputs.stride);
    product(simd, left, &packed.forward, layer.outputs, Start::Output, Finish::Keep, out);
}

/// Writes `deltas · Wᵀ`, the gradient with respect to the layer's inputs; elements become 0 if
/// those of `mask`, laid out as `out`, are not positive.
#[inline(always)]
pub fn affine_backward_inputs<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    packed: &PackedLayer<F>,
    deltas: Rows<'_, F>,
    mask: Option<&[F]>,
    out: &mut [F],
) {
    if layer.has_few_inputs() && mask.is_none() {
        let shape = (layer.outputs, layer.inputs);
        return row_products(simd, deltas.elements, &packed.forward, shape, None, out);
    }
    let left = Left::rows(deltas.elements, deltas.rows, layer.outputs, deltas.stride);
    let finish = mask.map_or(Finish::Keep, Finish::WherePositive);
    product(simd, left, &packed.backward, layer.inputs, Start::Zero, finish, out);
}

/// Writes the gradients of the layer's weights, of [`Layer::gradient_shape`], and of its biases, or
/// `adds` them.
#[inline(always)]
pub fn affine_backward_weights<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    inputs: Rows<'_, F>,
    deltas: Rows<'_, F>,
    adds: bool,
    [weights, biases]: [&mut [F]; 2],
) {
    sum_rows(simd, deltas.elements, adds, biases);
    let start = if adds { Start::Output } else { Start::Zero };
    let (left, n_left, right, width) = if layer.gradient_by_inputs() {
        (inputs, layer.inputs, deltas, layer.outputs)
    } else {
        (deltas, layer.outputs, inputs, layer.inputs)
    };
    let left = Left::columns(left.elements, n_left, inputs.rows, left.stride);
    product(simd, left, right.elements, width, start, Finish::Keep, weights);
}

/// Writes the gradient with respect to the inputs of a layer whose output gradients `gate` describes.
#[inline(always)]
pub fn masked_outer_inputs<F: Real, S: Simd>(
    simd: S,
    gate: Gate<'_, F>,
    packed: &PackedLayer<F>,
    memory: &mut GateMemory<F>,
    out: &mut [F],
) {
    gate.of_inputs(simd, &packed.backward, memory, out);
}

/// Writes the gradients of the weights and biases of a layer whose output gradients `gate`
/// describes, or `adds` them, with a thread for each of `memories`.
#[inline(always)]
pub fn masked_outer_weights<F: Real, S: Simd>(
    simd: S,
    gate: Gate<'_, F>,
    adds: bool,
    memories: &mut [GateMemory<F>],
    [weights, biases]: [&mut [F]; 2],
) {
    gate.sum_rows(simd, adds, biases);
    gate.of_weights(simd, adds, memories, weights);
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
