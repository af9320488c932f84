//! Products of a few rows with weights as they lie in the flat array.

use pulp::Simd;

use super::layer::Layer;
use super::real::row_stride;
use super::{Real, Rows};

/// `out = inputs · W + b` with the `parameters` of a layer that lies
/// [`ByOutputs`](super::Order::ByOutputs): element (i, j) is the product of row i and the weights of
/// output j. `out` is in rows of [`row_stride`].
#[inline(always)]
pub(super) fn few_rows<F: Real, S: Simd>(
    simd: S,
    layer: Layer,
    parameters: &[F],
    inputs: Rows<'_, F>,
    out: &mut [F],
) {
    let lanes = size_of::<F::Vector<S>>() / size_of::<F>();
    let stride = row_stride(layer.outputs);
    let weights = parameters[layer.weights..].chunks_exact(layer.inputs).take(layer.outputs);
    for (j, (weights, &bias)) in weights.zip(&parameters[layer.bias..]).enumerate() {
        let of_output = F::vectors::<S>(weights);
        let whole = of_output.len() * lanes;
        for i in 0..inputs.rows {
            let row = &inputs.elements[i * inputs.stride..][..layer.inputs];
            let mut sums = F::splat(simd, F::zero());
            for (&x, &w) in F::vectors::<S>(row).iter().zip(of_output) {
                sums = F::multiply_add(simd, x, w, sums);
            }
            let mut sum = bias + F::reduce(simd, sums);
            for (&x, &w) in row[whole..].iter().zip(&weights[whole..]) {
                sum = sum + x * w;
            }
            out[i * stride + j] = sum;
        }
    }
}
