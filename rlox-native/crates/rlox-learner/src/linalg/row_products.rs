//! Products with a few columns, and of a few rows with weights in the flat array.

use pulp::Simd;

use super::layer::Layer;
use super::real::{padded, row_stride};
use super::{Real, Rows};

/// `out = start + left · transposed`, a few columns wide: element (i, j) is the product of row i of
/// `left` and row j of the transposed right operand, both with zeros as padding.
///
/// `out` and `start` are in rows of [`row_stride`], as in [`product`](super::product::product).
#[inline(always)]
pub(super) fn row_products<F: Real, S: Simd>(
    simd: S,
    left: &[F],
    transposed: &[F],
    (depth, width): (usize, usize),
    start: Option<&[F]>,
    out: &mut [F],
) {
    /// Rows at a time, to hide the latency of the sums.
    const ROWS: usize = 4;
    let (stride, out_stride) = (row_stride(depth), row_stride(width));
    let used = padded(depth);
    for (left, out) in left.chunks(ROWS * stride).zip(out.chunks_mut(ROWS * out_stride)) {
        // With fewer rows, the last one is repeated.
        let lefts: [&[F::Vector<S>]; ROWS] = std::array::from_fn(|i| {
            F::vectors::<S>(&left[(i * stride).min(left.len() - stride)..][..used])
        });
        for (j, right) in transposed.chunks_exact(stride).take(width).enumerate() {
            let mut sums = [F::splat(simd, F::zero()); ROWS];
            for (p, &right) in F::vectors::<S>(&right[..used]).iter().enumerate() {
                for (sum, left) in sums.iter_mut().zip(lefts) {
                    *sum = F::multiply_add(simd, left[p], right, *sum);
                }
            }
            let start = start.map_or(F::zero(), |row| row[j]);
            let outs = out.chunks_exact_mut(out_stride).take(left.len() / stride);
            for (out, sum) in outs.zip(sums) {
                out[j] = start + F::reduce(simd, sum);
            }
        }
    }
}

/// `out = inputs · W + b` with the `parameters` of a layer stored
/// [`ByOutputs`](super::Order::ByOutputs): element (i, j) is the product of row i and the weights
/// of output j. `out` is in rows of [`row_stride`].
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
