//! Gradients of parameters as products left them.

use super::Real;
use super::layer::{Layer, Order, SIDE, transpose};
use super::real::row_stride;

/// Approximate elements per part: few enough to give every thread some, and to keep their
/// parameters and moments in the nearest cache.
const PART: usize = 4096;

/// The gradients of consecutive elements of the flat parameter array, which form a matrix there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathered<'a, F> {
    /// Their start in the flat array.
    pub(crate) first: usize,
    elements: &'a [F],
    /// Rows of the matrix in the flat array.
    rows: usize,
    columns: usize,
    /// Elements from one row of `elements` to the next.
    stride: usize,
    /// Whether rows of `elements` are columns of the matrix.
    across: bool,
}

impl<'a, F: Real> Gathered<'a, F> {
    /// Gradients in the order of the parameters.
    pub(crate) fn straight(first: usize, elements: &'a [F]) -> Self {
        let stride = elements.len();
        let rows = usize::from(!elements.is_empty());
        Self { first, elements, rows, columns: stride, stride, across: false }
    }

    /// The gradients of a layer's weights and biases.
    pub(crate) fn of_layer(layer: Layer, weights: &'a [F], biases: &'a [F]) -> [Self; 2] {
        let across = layer.gradient_by_inputs() != (layer.order == Order::ByInputs);
        let (rows, columns) = match layer.order {
            Order::ByInputs => (layer.inputs, layer.outputs),
            Order::ByOutputs => (layer.outputs, layer.inputs),
        };
        let stride = row_stride(layer.gradient_shape().1);
        let of_weights =
            Self { first: layer.weights, elements: weights, rows, columns, stride, across };
        [of_weights, Self::straight(layer.bias, &biases[..layer.outputs])]
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Divides the elements into parts for threads, in the order of the flat array.
    pub(crate) fn parts(self) -> impl Iterator<Item = Self> {
        let size = (PART / self.columns.max(1)).max(1).next_multiple_of(SIDE);
        (0..self.rows).step_by(size).map(move |row| {
            let place = if self.across { row } else { row * self.stride };
            Self {
                first: self.first + row * self.columns,
                elements: &self.elements[place..],
                rows: size.min(self.rows - row),
                ..self
            }
        })
    }

    /// Calls `take` with consecutive elements in the order of the flat array, until all are done.
    #[inline(always)]
    pub(crate) fn each_run(self, mut take: impl FnMut(&[F])) {
        let Self { elements, mut rows, mut columns, mut stride, .. } = self;
        if !self.across {
            if columns == stride {
                (columns, stride, rows) = (rows * columns, rows * columns, 1);
            }
            for row in elements.chunks(stride.max(1)).take(rows) {
                take(&row[..columns]);
            }
            return;
        }
        let mut lines = vec![F::zero(); SIDE * columns];
        for row in (0..rows).step_by(SIDE) {
            let n = SIDE.min(rows - row);
            transpose(&elements[row..], stride, (columns, n), &mut lines, columns);
            take(&lines[..n * columns]);
        }
    }
}

/// Writes all gradients, times `factor`, to their places in an array of `n` elements.
pub(crate) fn flatten<'a, F: Real>(
    gradients: impl IntoIterator<Item = Gathered<'a, F>>,
    n: usize,
    factor: F,
) -> Vec<F> {
    let mut flat = vec![F::zero(); n];
    for each in gradients {
        let mut rest = &mut flat[each.first..];
        each.each_run(|run| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(run.len());
            for (to, &gradient) in to.iter_mut().zip(run) {
                *to = gradient * factor;
            }
            rest = after;
        });
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gradients whose element `i` in the flat array is `i`.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn gathered(layer: Layer) -> Vec<f64> {
        let (rows, columns) = layer.gradient_shape();
        let stride = row_stride(columns);
        let mut weights = vec![f64::NAN; rows * stride];
        for i in 0..layer.inputs {
            for o in 0..layer.outputs {
                let (row, column) = if layer.gradient_by_inputs() { (i, o) } else { (o, i) };
                let at = match layer.order {
                    Order::ByInputs => i * layer.outputs + o,
                    Order::ByOutputs => o * layer.inputs + i,
                };
                weights[row * stride + column] = (layer.weights + at) as f64;
            }
        }
        weights
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn parts_are_the_flat_array() {
        for (inputs, outputs) in
            [(1, 1), (3, 64), (64, 3), (70, 130), (256, 256), (300, 17), (20, 5000)]
        {
            for order in [Order::ByInputs, Order::ByOutputs] {
                for (first, gated) in [(true, false), (false, false), (false, true)] {
                    let (weights, n) = (7, inputs * outputs);
                    let bias = weights + n;
                    let layer = Layer { inputs, outputs, weights, bias, order, first, gated };
                    let biases: Vec<f64> = (bias..bias + outputs).map(|at| at as f64).collect();
                    let of_weights = gathered(layer);
                    let all = Gathered::of_layer(layer, &of_weights, &biases);
                    let parts: Vec<_> = all.into_iter().flat_map(Gathered::parts).collect();
                    let mut seen = Vec::new();
                    for part in &parts {
                        assert_eq!(part.first, weights + seen.len());
                        let before = seen.len();
                        part.each_run(|run| seen.extend_from_slice(run));
                        assert_eq!(seen.len() - before, part.len());
                    }
                    let expected: Vec<f64> = (weights..layer.end()).map(|at| at as f64).collect();
                    assert_eq!(seen, expected, "{layer:?}");
                    let flat = flatten(parts, layer.end(), 2.0);
                    assert_eq!(flat[..weights], [0.0; 7]);
                    assert!(flat[weights..].iter().zip(expected).all(|(&got, at)| got == 2.0 * at));
                }
            }
        }
    }
}
