//! Runs of rows through networks: the work of a single thread.

use pulp::Simd;

use super::linalg::{
    GateMemory, Real, Rows, affine, affine_backward_inputs, masked_outer_inputs, row_stride,
};
use super::network::{Activation, Network};
use super::passes::{Packed, Pass};
use super::stretches::{GatedLayer, Stretch, within};

/// The first `rows` rows of a matrix of `width` columns.
#[inline(always)]
pub(super) fn rows_of<F>(elements: &[F], rows: usize, width: usize) -> Rows<'_, F> {
    let stride = row_stride(width);
    Rows { elements: &elements[..rows * stride], rows, stride }
}

/// Computes the outputs of `rows` rows, into each layer's part of `outputs`.
#[inline(always)]
fn forward_layers<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    outputs: &mut dyn Iterator<Item = &mut [F]>,
) {
    // One function for all callers: compiling a network's products into each would double the
    // crate's build time.
    simd.vectorize(
        #[inline(always)]
        || {
            let mut hidden: Option<&[F]> = None;
            let layers = network.layers.iter().zip(&packed.layers).zip(outputs);
            for (l, ((&layer, packed), out)) in layers.enumerate() {
                let out = &mut out[..rows * row_stride(layer.outputs)];
                let inputs = match hidden {
                    None => network.inputs(inputs, rows),
                    Some(hidden) => rows_of(hidden, rows, layer.inputs),
                };
                affine(simd, layer, packed, inputs, network.activates(l, Activation::Relu), out);
                if network.activates(l, Activation::Tanh) {
                    F::tanh_all(simd, out);
                }
                hidden = Some(out);
            }
        },
    );
}

/// Handling of hidden layers' outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// They are kept for the backward pass.
    Kept,
    /// The next rows overwrite them, which stays in the nearest cache.
    Overwritten,
}

/// Rows that go through all layers together: a layer's outputs are still in the nearest cache when
/// the next one reads them.
const TOGETHER: usize = 64;

/// Rows of a forward pass.
pub(super) struct ForwardRows<'a, F> {
    network: &'a Network,
    packed: &'a Packed<F>,
    inputs: &'a [F],
    rows: usize,
    outputs: Vec<&'a mut [F]>,
    hidden: Hidden,
}

impl<'a, F: Real> ForwardRows<'a, F> {
    pub(super) fn new(pass: Pass<'a, F>, hidden: Hidden) -> Self {
        let Pass { network, packed, inputs, rows, workspace } = pass;
        let outputs = workspace.outputs.iter_mut().map(|outputs| &mut **outputs).collect();
        Self { network, packed, inputs, rows, outputs, hidden }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(mut self, simd: S) {
        while self.rows > 0 {
            let rows = TOGETHER.min(self.rows);
            let inputs = self.split_off_inputs(rows);
            let Self { network, packed, outputs, hidden, .. } = &mut self;
            let of_layers = &mut outputs.iter_mut().map(|outputs| &mut **outputs);
            forward_layers(simd, network, packed, inputs, rows, of_layers);
            let overwritten = match hidden {
                Hidden::Kept => 0,
                Hidden::Overwritten => network.layers.len() - 1,
            };
            let written = outputs.iter_mut().zip(&network.layers).skip(overwritten);
            for (outputs, layer) in written {
                let _ = outputs.split_off_mut(..rows * row_stride(layer.outputs));
            }
        }
    }

    /// Splits off the first `rows` rows of the inputs.
    fn split_off_inputs(&mut self, rows: usize) -> &'a [F] {
        let inputs = self.inputs;
        self.inputs = &inputs[inputs.len().min(rows * self.network.input_stride)..];
        self.rows -= rows;
        inputs
    }
}

impl<F: Real> Divisible for ForwardRows<'_, F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn split_off(&mut self, rows: usize) -> Self {
        let inputs = self.split_off_inputs(rows);
        let Self { network, packed, hidden, .. } = *self;
        let outputs = split_off(network, &mut self.outputs, rows);
        Self { network, packed, inputs, rows, outputs, hidden }
    }
}

/// Splits off the first `rows` rows of every layer's matrix.
fn split_off<'a, F>(
    network: &Network,
    matrices: &mut [&'a mut [F]],
    rows: usize,
) -> Vec<&'a mut [F]> {
    let parts = matrices.iter_mut().zip(&network.layers);
    parts.filter_map(|(m, layer)| m.split_off_mut(..rows * row_stride(layer.outputs))).collect()
}

/// Rows of a backward pass, which computes the gradients of all layers' outputs and, if there is
/// room for them, of the inputs.
pub(super) struct BackwardRows<'a, F> {
    network: &'a Network,
    packed: &'a Packed<F>,
    rows: usize,
    outputs: Vec<&'a [F]>,
    deltas: Vec<&'a mut [F]>,
    of_inputs: Option<&'a mut [F]>,
    /// The stretches of the whole pass; these rows begin at its row `first`.
    stretches: &'a [Stretch],
    first: usize,
    /// A memory for each part that these rows may be divided into.
    gate_memories: &'a mut [GateMemory<F>],
}

impl<'a, F: Real> BackwardRows<'a, F> {
    /// All rows of a pass, which may be divided into `n` parts.
    pub(super) fn new(pass: &'a mut Pass<'_, F>, of_inputs: Option<&'a mut [F]>, n: usize) -> Self {
        let Pass { network, packed, rows, workspace, .. } = pass;
        let memories = &mut workspace.gate_memories;
        while memories.len() < n {
            memories.push(GateMemory::new(network.gated_width()));
        }
        Self {
            network,
            packed,
            rows: *rows,
            outputs: workspace.outputs.iter().map(|outputs| &**outputs).collect(),
            deltas: workspace.deltas.iter_mut().map(|deltas| &mut **deltas).collect(),
            of_inputs,
            stretches: &workspace.stretches,
            first: 0,
            gate_memories: memories,
        }
    }

    #[inline(always)]
    pub(super) fn run<S: Simd>(mut self, simd: S) {
        // With gates all rows together, so that tables are computed once.
        let together = if self.stretches.is_empty() { TOGETHER } else { self.rows };
        while self.rows > 0 {
            let part = self.split_off(together.min(self.rows));
            simd.vectorize(
                #[inline(always)]
                || part.back(simd),
            );
        }
    }

    #[inline(always)]
    fn back<S: Simd>(self, simd: S) {
        let Self { network, packed, rows, outputs, mut deltas, mut of_inputs, .. } = self;
        let Self { stretches, first, gate_memories, .. } = self;
        if let (true, Some(delta), Some(outputs)) =
            (network.activates_last, deltas.last_mut(), outputs.last())
        {
            network.activation.differentiate(delta, outputs);
        }
        for (l, (&layer, packed_layer)) in
            network.layers.iter().zip(&packed.layers).enumerate().rev()
        {
            let (before, after) = deltas.split_at_mut(l);
            let delta = rows_of(after[0], rows, layer.outputs);
            let Some((k, out)) = l.checked_sub(1).zip(before.last_mut()) else {
                if let Some(out) = of_inputs.take() {
                    affine_backward_inputs(simd, layer, packed_layer, delta, None, out);
                }
                continue;
            };
            let hidden = rows_of(outputs[k], rows, layer.inputs);
            let gated = !stretches.is_empty();
            if let (true, Some(memory)) = (layer.gated && gated, gate_memories.first_mut()) {
                let inputs = hidden.elements;
                let gated = GatedLayer::new(network, packed, l, inputs, outputs[l], after[1]);
                for stretch in within(stretches, first..first + rows) {
                    let out = &mut out[stretch.rows.start * row_stride(layer.inputs)..];
                    masked_outer_inputs(simd, gated.gate(&stretch), packed_layer, memory, out);
                }
            } else if !(network.layers[k].gated && gated) {
                // for a gated layer, the factors suffice
                let mask = (network.activation == Activation::Relu).then_some(hidden.elements);
                affine_backward_inputs(simd, layer, packed_layer, delta, mask, out);
                if network.activation == Activation::Tanh {
                    network.activation.differentiate(out, hidden.elements);
                }
            }
        }
    }
}

impl<F: Real> Divisible for BackwardRows<'_, F> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn seams(&self) -> Vec<usize> {
        self.stretches.iter().map(|stretch| stretch.rows.end).collect()
    }

    fn split_off(&mut self, rows: usize) -> Self {
        let Self { network, packed, outputs, deltas, of_inputs, stretches, gate_memories, .. } =
            self;
        let first = self.first;
        self.rows -= rows;
        self.first += rows;
        let of_layers = outputs.iter_mut().zip(&network.layers);
        let outputs = of_layers
            .filter_map(|(matrix, layer)| matrix.split_off(..rows * row_stride(layer.outputs)))
            .collect();
        let deltas = split_off(network, deltas, rows);
        let width = network.layers.first().map_or(0, |layer| row_stride(layer.inputs));
        let of_inputs = of_inputs.as_mut().and_then(|out| out.split_off_mut(..rows * width));
        let gate_memories = gate_memories.split_off_mut(..1).unwrap_or(&mut []);
        Self { network, packed, rows, outputs, deltas, of_inputs, stretches, first, gate_memories }
    }
}

/// Rows of one network that can be divided.
pub(super) trait Divisible {
    fn rows(&self) -> usize;

    /// Row offsets at which these rows are best divided.
    fn seams(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Splits off the first `rows` rows.
    fn split_off(&mut self, rows: usize) -> Self;
}

/// One-time work of a thread, such as the tables of gates, costs as much as this number of rows:
/// runs may differ by up to that in order to end at seams.
const NEAR: usize = 32;

/// Divides the rows of all networks, one network after the other, into at most `n` runs of about
/// equal length.
pub(super) fn runs<T: Divisible>(networks: Vec<T>, n: usize) -> Vec<Vec<T>> {
    let (mut seams, mut total) = (Vec::new(), 0);
    for network in &networks {
        seams.extend(network.seams().into_iter().map(|seam| total + seam));
        total += network.rows();
        seams.push(total);
    }
    let size = total.div_ceil(n);
    // Ends that move by less than half a run never meet.
    let near = NEAR.min(size / 4);
    let (mut runs, mut at, mut end) = (Vec::with_capacity(n), 0, 0);
    for mut network in networks {
        while network.rows() > 0 {
            if at == end {
                runs.push(Vec::new());
                end = (runs.len() * size).min(total);
                let seam = seams.iter().copied().min_by_key(|seam| seam.abs_diff(end));
                end = seam.filter(|seam| seam.abs_diff(end) <= near).unwrap_or(end);
            }
            let part = network.split_off((end - at).min(network.rows()));
            at += part.rows();
            if let Some(run) = runs.last_mut() {
                run.push(part);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Row numbers of a network, and the offsets at which they are best divided.
    struct Numbers(Range<usize>, Vec<usize>);

    impl Divisible for Numbers {
        fn rows(&self) -> usize {
            self.0.len()
        }

        fn seams(&self) -> Vec<usize> {
            self.1.clone()
        }

        fn split_off(&mut self, rows: usize) -> Self {
            let part = Self(self.0.start..self.0.start + rows, Vec::new());
            self.0.start += rows;
            part
        }
    }

    /// The runs of networks, given their numbers of rows and their seams.
    fn divided(networks: &[(usize, &[usize])], n: usize) -> Vec<Vec<(usize, usize)>> {
        let numbers = |&(rows, seams): &(usize, &[usize])| Numbers(0..rows, seams.to_vec());
        let runs = runs(networks.iter().map(numbers).collect(), n);
        runs.into_iter()
            .map(|run| run.into_iter().map(|part| (part.0.start, part.0.end)).collect())
            .collect()
    }

    #[test]
    fn runs_end_at_seams_that_are_near() {
        assert_eq!(divided(&[(256, &[])], 2), [[(0, 128)], [(128, 256)]]);
        assert_eq!(divided(&[(140, &[]), (116, &[])], 2), [[(0, 140)], [(0, 116)]]);
        assert_eq!(divided(&[(128, &[50])], 2), [[(0, 50)], [(50, 128)]]);
        assert_eq!(divided(&[(128, &[40])], 2), [[(0, 64)], [(64, 128)]]);
        assert_eq!(
            divided(&[(200, &[]), (56, &[])], 2),
            [vec![(0, 128)], vec![(128, 200), (0, 56)]]
        );
    }

    #[test]
    fn every_row_is_in_one_of_at_most_n_runs() {
        for n in 1..9 {
            for rows in [0, 1, 2, 31, 64, 100, 257] {
                for (other, seam) in [(0, 1), (1, 30), (63, 50), (256, 99)] {
                    let all = divided(&[(rows, &[seam.min(rows)]), (other, &[])], n);
                    assert!(all.len() <= n, "{rows} {other} {n}");
                    let numbers: Vec<usize> =
                        all.into_iter().flatten().flat_map(|(start, end)| start..end).collect();
                    assert_eq!(numbers, (0..rows).chain(0..other).collect::<Vec<_>>());
                }
            }
        }
    }
}
