//! Rows with a gradient through a single output of a network.

use std::ops::Range;

use super::linalg::{Gate, Layer, PAD, PackedLayer, Real, row_stride};
use super::network::Network;
use super::passes::Packed;

/// With fewer rows a [`Gate`](super::linalg::Gate) is slower than products, as it computes tables
/// for each output.
const LEAST_ROWS: usize = 24;

/// Consecutive rows whose gradients go through the same single output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) output: usize,
    pub(super) rows: Range<usize>,
}

/// Writes the stretches of `rows` rows of `gradients`, those of the outputs of a `network` with a
/// gated layer; none if a row's gradient goes through several outputs, or outputs have too few rows
/// for a gate to pay.
///
/// The decision covers all rows of a pass, so that it does not depend on their division among
/// threads.
pub(super) fn find_stretches<F: Real>(
    network: &Network,
    gradients: &[F],
    rows: usize,
    stretches: &mut Vec<Stretch>,
) {
    stretches.clear();
    let Some(last) = network.layers.last().filter(|_| network.gated_width() > 0) else { return };
    for (row, gradients) in gradients.chunks_exact(PAD).take(rows).enumerate() {
        let mut used = (0..last.outputs).filter(|&output| gradients[output] != F::zero());
        let (output, another) = (used.next(), used.next());
        if another.is_some() {
            return stretches.clear();
        }
        match stretches.last_mut() {
            Some(current) if output.is_none_or(|output| output == current.output) => {
                current.rows.end = row + 1;
            }
            _ => stretches.push(Stretch { output: output.unwrap_or(0), rows: row..row + 1 }),
        }
    }
    if last.outputs > 1 && stretches.len() * LEAST_ROWS > rows {
        stretches.clear();
    }
}

/// The parts of `stretches` within `rows`, counted from their first.
pub(super) fn within(stretches: &[Stretch], rows: Range<usize>) -> impl Iterator<Item = Stretch> {
    let parts = stretches.iter().map(move |stretch| {
        let start = stretch.rows.start.max(rows.start) - rows.start;
        let end = stretch.rows.end.min(rows.end).saturating_sub(rows.start);
        Stretch { output: stretch.output, rows: start..end }
    });
    parts.filter(|stretch| !stretch.rows.is_empty())
}

/// A gated layer with rows of its inputs and outputs, and the layer after it.
#[derive(Clone, Copy)]
pub(super) struct GatedLayer<'a, F> {
    layer: Layer,
    inputs: &'a [F],
    outputs: &'a [F],
    /// The next layer, its parameters, and the gradients of its outputs.
    next: Layer,
    packed_next: &'a PackedLayer<F>,
    gradients: &'a [F],
}

impl<'a, F: Real> GatedLayer<'a, F> {
    /// Layer `l` of a network, with the `gradients` of the next layer's outputs.
    #[inline(always)]
    pub(super) fn new(
        network: &Network,
        packed: &'a Packed<F>,
        l: usize,
        inputs: &'a [F],
        outputs: &'a [F],
        gradients: &'a [F],
    ) -> Self {
        let (layer, next) = (network.layers[l], network.layers[l + 1]);
        Self { layer, inputs, outputs, next, packed_next: &packed.layers[l + 1], gradients }
    }

    /// The factors of the gradient of a stretch of rows.
    #[inline(always)]
    pub(super) fn gate(&self, stretch: &Stretch) -> Gate<'a, F> {
        let Self { layer, inputs, outputs, next, packed_next, gradients } = *self;
        let (first, rows) = (stretch.rows.start, stretch.rows.len());
        let part = |matrix: &'a [F], width| {
            let stride = row_stride(width);
            &matrix[first * stride..][..rows * stride]
        };
        Gate {
            rows,
            layer,
            inputs: part(inputs, layer.inputs),
            outputs: part(outputs, layer.outputs),
            gradients: &part(gradients, next.outputs)[stretch.output..],
            weights: packed_next.of_output(next, stretch.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &[[f32; 2]]) -> Vec<(usize, Range<usize>)> {
        let network = Network::of(Layer::linear(&[3, 64, 64, 2], 0), false).one_output_a_row();
        let mut gradients = vec![0.0; rows.len() * PAD];
        for (to, from) in gradients.chunks_exact_mut(PAD).zip(rows) {
            to[..2].copy_from_slice(from);
        }
        let mut stretches = vec![Stretch { output: 9, rows: 0..1 }];
        find_stretches(&network, &gradients, rows.len(), &mut stretches);
        stretches.into_iter().map(|stretch| (stretch.output, stretch.rows)).collect()
    }

    #[test]
    fn rows_of_one_output_lie_together() {
        let (left, right, none) = ([1.0, 0.0], [0.0, -1.0], [0.0, 0.0]);
        let rows = [vec![left; 30], vec![none; 3], vec![right; 40], vec![none]].concat();
        assert_eq!(found(&rows), [(0, 0..33), (1, 33..74)]);
        assert_eq!(found(&[right; 24]), [(1, 0..24)]);
        assert_eq!(found(&[none; 24]), [(0, 0..24)]);
        assert_eq!(found(&[f32::NAN, 0.0].map(|g| [g, 0.0]).repeat(20)), [(0, 0..40)]);
    }

    #[test]
    fn rows_through_several_outputs_and_a_few_rows_have_products() {
        let (left, right) = ([1.0, 0.0], [0.0, 1.0]);
        assert_eq!(found(&[vec![left; 99], vec![[1.0, 1.0]]].concat()), []);
        assert_eq!(found(&[vec![left; 24], vec![right; 23]].concat()), []);
        assert_eq!(found(&[left; 23]), []);
    }

    #[test]
    fn parts_are_counted_from_their_first_row() {
        let stretches = [Stretch { output: 0, rows: 0..10 }, Stretch { output: 1, rows: 10..25 }];
        let parts = |rows| -> Vec<_> {
            within(&stretches, rows).map(|stretch| (stretch.output, stretch.rows)).collect()
        };
        assert_eq!(parts(0..25), [(0, 0..10), (1, 10..25)]);
        assert_eq!(parts(4..12), [(0, 0..6), (1, 6..8)]);
        assert_eq!(parts(10..25), [(1, 0..15)]);
    }
}
