//! One linear layer: places of its parameters and their order in products.

use bytemuck::cast_slice;

use super::Real;
use super::aligned::Aligned;
use super::gated_product::SPAN;
use super::real::row_stride;

/// Rows per pass through the network: their activations stay in the caches.
pub const BLOCK_ROWS: usize = 256;

/// Up to this number of columns, a product of rows with rows is faster than one with whole vectors
/// of columns, which would be mostly padding.
const FEW: usize = 4;

/// Lines of a square that is transposed in whole cache lines of single precision.
pub(super) const SIDE: usize = 16;

/// Order of a layer's weights in the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `outputs` × `inputs`, as in `torch.nn.Linear`.
    ByOutputs,
    /// `inputs` × `outputs`, as in `rlox.nn.EnsembleMLP`.
    ByInputs,
}

/// One linear layer and the places of its parameters in the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// Start of the weights.
    pub weights: usize,
    /// Start of the biases.
    pub bias: usize,
    /// Order of the weights.
    pub order: Order,
    /// Whether its inputs are the network's inputs, whose rows may lack padding.
    pub first: bool,
    /// Whether gradients of a `ReLU` network reach it through one output per row: a
    /// [`Gate`](super::Gate) then computes its backward pass.
    pub gated: bool,
}

impl Layer {
    /// Layers of `torch.nn.Linear` of these sizes, inputs first, one after the other from `offset`.
    #[must_use]
    pub fn linear(sizes: &[usize], mut offset: usize) -> Vec<Self> {
        let layer = |(l, pair): (usize, &[usize])| {
            let [inputs, outputs] = [pair[0], pair[1]];
            let (weights, bias) = (offset, offset + inputs * outputs);
            offset = bias + outputs;
            let (order, first) = (Order::ByOutputs, l == 0);
            Self { inputs, outputs, weights, bias, order, first, gated: false }
        };
        sizes.windows(2).enumerate().map(layer).collect()
    }

    /// End of the parameters.
    #[must_use]
    pub fn end(self) -> usize {
        self.bias + self.outputs
    }

    /// Rows and columns of the weights' gradient.
    #[must_use]
    pub fn gradient_shape(self) -> (usize, usize) {
        if self.gradient_by_inputs() {
            (self.inputs, self.outputs)
        } else {
            (self.outputs, self.inputs)
        }
    }

    /// Whether the weights' gradient has a row per input, not per output: rows are along the narrow
    /// side, as columns are padded. A gated layer has a row per output.
    ///
    /// Rows without padding cannot be a right operand.
    #[must_use]
    pub fn gradient_by_inputs(self) -> bool {
        let narrow = self.inputs < self.outputs
            || (self.inputs == self.outputs && self.order == Order::ByInputs);
        self.first || (narrow && !self.gated)
    }

    /// Whether it has padded inputs and is so large that a [`Gate`](super::Gate) pays.
    #[must_use]
    pub fn can_be_gated(self) -> bool {
        !self.first && self.outputs >= SPAN
    }

    /// Whether products with its outputs as columns are products of rows with rows.
    ///
    /// The rows of a network's inputs have no padding.
    pub(super) fn has_few_outputs(self) -> bool {
        !self.first && self.outputs <= FEW
    }

    /// Whether the gradients of a network's inputs are products of rows with rows.
    pub(super) fn has_few_inputs(self) -> bool {
        self.first && self.inputs <= FEW
    }
}

/// The parameters of a layer in the order of products, padded with zeros.
#[derive(Debug)]
pub struct PackedLayer<F> {
    /// `inputs` × `outputs`; empty if [`Layer::has_few_outputs`].
    pub(super) forward: Aligned<F>,
    /// `outputs` × `inputs`; empty for a layer through which no gradient goes, unless
    /// [`Layer::has_few_outputs`].
    pub(super) backward: Aligned<F>,
    pub(super) bias: Aligned<F>,
    /// Digest of the weights, if only their other order is kept.
    digest: Option<Digest>,
}

impl<F: Real> PackedLayer<F> {
    /// Memory for a layer; with `backward`, also for gradients of its inputs.
    #[must_use]
    pub fn new(layer: Layer, backward: bool) -> Self {
        let zeros = Aligned::zeros;
        let few = layer.has_few_outputs();
        Self {
            forward: zeros(if few { 0 } else { layer.inputs * row_stride(layer.outputs) }),
            backward: zeros(if backward || few {
                layer.outputs * row_stride(layer.inputs)
            } else {
                0
            }),
            bias: zeros(row_stride(layer.outputs)),
            digest: None,
        }
    }

    /// Adds the biases of another layer with the same number of outputs to its own.
    pub(crate) fn add_bias(&mut self, other: &Self) {
        for (bias, &more) in self.bias.iter_mut().zip(&*other.bias) {
            *bias = *bias + more;
        }
    }

    /// The weights of an output of a layer packed with `backward`.
    pub(crate) fn of_output(&self, layer: Layer, output: usize) -> &[F] {
        let stride = row_stride(layer.inputs);
        &self.backward[output * stride..][..stride]
    }

    /// Copies the layer's part of `parameters`. Weights, or their digest, are compared first:
    /// unchanged ones need no reordering, which takes longer.
    #[inline(always)]
    pub fn load(&mut self, layer: Layer, parameters: &[F]) {
        let weights = &parameters[layer.weights..][..layer.inputs * layer.outputs];
        let (forward, backward) = (row_stride(layer.outputs), row_stride(layer.inputs));
        let ((straight, stride), (across, across_stride), rows, columns) = match layer.order {
            Order::ByInputs => (
                (&mut *self.forward, forward),
                (&mut *self.backward, backward),
                layer.inputs,
                layer.outputs,
            ),
            Order::ByOutputs => (
                (&mut *self.backward, backward),
                (&mut *self.forward, forward),
                layer.outputs,
                layer.inputs,
            ),
        };
        let mut changed = false;
        if straight.is_empty() {
            let found = Some(digest(weights));
            changed = found != self.digest;
            self.digest = found;
        }
        for (to, from) in straight.chunks_exact_mut(stride).zip(weights.chunks_exact(columns)) {
            let to = &mut to[..columns];
            // Compares bits, because 0 equals -0 and NaN equals nothing.
            if changed || cast_slice::<F, u8>(to) != cast_slice::<F, u8>(from) {
                to.copy_from_slice(from);
                changed = true;
            }
        }
        if changed && !across.is_empty() {
            transpose(weights, columns, (rows, columns), across, across_stride);
        }
        self.bias[..layer.outputs].copy_from_slice(&parameters[layer.bias..layer.end()]);
    }
}

/// A checksum of numbers' bits, in several lanes.
type Digest = [u32; 64];

/// Changes with any single number; several changes cancel with a chance of 2⁻³², and only within
/// one lane.
#[inline(always)]
fn digest<F: Real>(numbers: &[F]) -> Digest {
    // Every step is invertible: an exclusive or, a rotation and a product with an odd number.
    let step = |lane: &mut u32, bits: u32| {
        *lane = (*lane ^ bits).rotate_left(13).wrapping_mul(0x9E37_79B1);
    };
    let mut lanes = [1; 64];
    let (chunks, rest) = cast_slice::<F, u32>(numbers).as_chunks::<64>();
    for chunk in chunks {
        for (lane, &bits) in lanes.iter_mut().zip(chunk) {
            step(lane, bits);
        }
    }
    for (lane, &bits) in lanes.iter_mut().zip(rest) {
        step(lane, bits);
    }
    lanes
}

/// Transposes `from`, `rows` × `columns`.
#[inline(always)]
pub(super) fn transpose<F: Real>(
    from: &[F],
    from_stride: usize,
    (rows, columns): (usize, usize),
    to: &mut [F],
    to_stride: usize,
) {
    for row in (0..rows).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            if row + SIDE <= rows && column + SIDE <= columns {
                let mut square = [[F::zero(); SIDE]; SIDE];
                for (i, line) in square.iter_mut().enumerate() {
                    line.copy_from_slice(&from[(row + i) * from_stride + column..][..SIDE]);
                }
                for j in 0..SIDE {
                    let line: [F; SIDE] = std::array::from_fn(|i| square[i][j]);
                    to[(column + j) * to_stride + row..][..SIDE].copy_from_slice(&line);
                }
                continue;
            }
            for i in row..rows.min(row + SIDE) {
                for j in column..columns.min(column + SIDE) {
                    to[j * to_stride + i] = from[i * from_stride + j];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_kept_in_one_order_follow_any_change() {
        let layer = Layer::linear(&[1, 70, 33, 1], 0)[1];
        let mut parameters = vec![0.5_f32; layer.end()];
        let mut packed = PackedLayer::new(layer, false);
        packed.load(layer, &parameters);
        for changed in [0.5, -0.5, 0.5_f32.next_up(), f32::NAN, 0.0, -0.0] {
            // The weight of output 7 and input 32.
            parameters[layer.weights + 7 * 70 + 32] = changed;
            packed.load(layer, &parameters);
            let kept = &packed.forward[32 * row_stride(33)..][..33];
            assert_eq!(kept[7].to_bits(), changed.to_bits());
            assert_eq!(
                kept.iter().filter(|&&weight| weight == 0.5).count(),
                32 + usize::from(changed == 0.5)
            );
        }
    }

    #[test]
    fn several_changes_have_other_digests() {
        let numbers: Vec<f32> = (0..1000_u16).map(f32::from).collect();
        let negative: Vec<f32> = numbers.iter().map(|number| -number).collect();
        let mut swapped = numbers.clone();
        swapped.swap(3, 67);
        let digests = [&numbers, &negative, &swapped].map(|each| digest(each));
        assert_ne!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[2]);
        assert_eq!(digests[0], digest(&numbers));
    }
}
