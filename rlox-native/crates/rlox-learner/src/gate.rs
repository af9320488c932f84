//! The way back through the layer before a single output.
//!
//! With `ReLU`, the gradient with respect to that layer's output j in row i is `g_i` `w_j` where the
//! output is positive, and 0 elsewhere: of rank one, but for the gates. That is the case in critics,
//! whose last hidden layer has most of their parameters.

use pulp::Simd;

use super::Real;
use super::aligned::Aligned;
use super::gated_product::{CHOICE, GROUP, Gated, SPAN, TABLE, gated_product};
use super::layer::{BLOCK_ROWS, Layer, transpose};
use super::real::{PAD, padded, row_stride};

/// The gradient with respect to the outputs of a layer, in its factors.
#[derive(Clone, Copy)]
pub(super) struct Gate<'a, F> {
    pub(super) rows: usize,
    pub(super) layer: Layer,
    /// What the layer made its outputs of, itself rectified.
    pub(super) inputs: &'a [F],
    /// The outputs, whose signs are the gates.
    pub(super) outputs: &'a [F],
    /// The gradient with respect to the single output, every [`PAD`] elements.
    pub(super) gradients: &'a [F],
    /// The weights of the single output.
    pub(super) weights: &'a [F],
}

/// Memory for products with a [`Gate`].
#[derive(Debug)]
pub(super) struct GateMemory<F> {
    by_row: Aligned<F>,
    choices: Aligned<F>,
    table: Aligned<F>,
}

impl<F: Real> GateMemory<F> {
    /// For layers of up to so many outputs.
    pub(super) fn new(width: usize) -> Self {
        let groups = |n: usize| n.div_ceil(SPAN) * PAD;
        let by_row = groups(width) * row_stride(BLOCK_ROWS);
        let by_column = groups(BLOCK_ROWS) * row_stride(width);
        let table = if width == 0 { 0 } else { TABLE };
        Self {
            by_row: Aligned::zeros(BLOCK_ROWS * groups(width)),
            choices: Aligned::zeros(by_row.max(by_column)),
            table: Aligned::zeros(table),
        }
    }
}

impl<F: Real> Gate<'_, F> {
    /// Writes the gradient's sums over all rows, or `adds` them: the gradients of the layer's biases.
    #[inline(always)]
    pub(super) fn sum_rows<S: Simd>(self, simd: S, adds: bool, sums: &mut [F]) {
        /// Sums at a time, which stay in registers.
        const WIDTH: usize = 8;
        let outputs = F::vectors::<S>(self.outputs);
        let stride = outputs.len() / self.rows;
        let weights = F::vectors::<S>(self.weights);
        for (i, sums) in F::vectors_mut::<S>(sums)[..stride].chunks_mut(WIDTH).enumerate() {
            let mut total = [F::splat(simd, F::zero()); WIDTH];
            let gradients = self.gradients.iter().step_by(PAD);
            for (row, &gradient) in outputs.chunks_exact(stride).zip(gradients) {
                let gradient = F::splat(simd, gradient);
                for (total, &output) in total.iter_mut().zip(&row[i * WIDTH..][..sums.len()]) {
                    *total = F::sum(simd, *total, F::where_positive(simd, output, gradient));
                }
            }
            for ((sum, total), &weight) in sums.iter_mut().zip(total).zip(&weights[i * WIDTH..]) {
                let before = if adds { *sum } else { F::splat(simd, F::zero()) };
                *sum = F::multiply_add(simd, weight, total, before);
            }
        }
    }

    /// Writes gradientᵀ · inputs, or `adds` it: the gradients of the layer's weights, a row for
    /// each output.
    #[inline(always)]
    pub(super) fn of_weights<S: Simd>(
        self,
        simd: S,
        adds: bool,
        memory: &mut GateMemory<F>,
        out: &mut [F],
    ) {
        let stride = row_stride(self.layer.outputs);
        let spans = self.outputs.chunks(SPAN * stride);
        for (outputs, choices) in spans.zip(memory.choices.chunks_exact_mut(PAD * stride)) {
            for (q, choices) in choices.chunks_exact_mut(stride).enumerate() {
                choose(simd, outputs.chunks_exact(stride).skip(q).step_by(PAD), choices);
            }
        }
        let left = Gated {
            n_rows: self.layer.outputs,
            depth: self.rows,
            choices: &memory.choices,
            choice_stride: stride,
            rows: self.weights,
            row_stride: 1,
            columns: self.gradients,
            column_stride: PAD,
        };
        let table = &mut memory.table;
        gated_product(simd, left, self.inputs, self.layer.inputs, adds, None, table, out);
    }

    /// Writes gradient · transposed where the inputs are positive, and 0 elsewhere: the gradients
    /// with respect to what they were rectified from. `transposed` has a row of weights for each
    /// output.
    #[inline(always)]
    pub(super) fn of_inputs<S: Simd>(
        self,
        simd: S,
        transposed: &[F],
        memory: &mut GateMemory<F>,
        out: &mut [F],
    ) {
        let (groups, choice_stride) =
            (self.layer.outputs.div_ceil(SPAN) * PAD, row_stride(BLOCK_ROWS));
        let rows = self.outputs.chunks_exact(row_stride(self.layer.outputs));
        for (outputs, choices) in rows.zip(memory.by_row.chunks_exact_mut(groups)) {
            let spans = outputs[..padded(self.layer.outputs)].chunks(SPAN);
            for (outputs, choices) in spans.zip(choices.chunks_exact_mut(PAD)) {
                choose(simd, outputs.chunks_exact(PAD), choices);
            }
        }
        let shape = (self.rows, groups);
        transpose(&memory.by_row, groups, shape, &mut memory.choices, choice_stride);
        let left = Gated {
            n_rows: self.rows,
            depth: self.layer.outputs,
            choices: &memory.choices,
            choice_stride,
            rows: self.gradients,
            row_stride: PAD,
            columns: self.weights,
            column_stride: 1,
        };
        let table = &mut memory.table;
        gated_product(
            simd,
            left,
            transposed,
            self.layer.inputs,
            false,
            Some(self.inputs),
            table,
            out,
        );
    }
}

/// Writes which of up to [`GROUP`] rows of `gates` are positive, column by column.
#[inline(always)]
fn choose<'a, F: Real, S: Simd>(simd: S, gates: impl Iterator<Item = &'a [F]>, choices: &mut [F]) {
    choices.fill(F::of(F::INTEGERS));
    for (r, gates) in gates.take(GROUP).enumerate() {
        let bit = F::splat(simd, F::of(CHOICE * f64::from(1 << r)));
        for (choice, &gate) in F::vectors_mut::<S>(choices).iter_mut().zip(F::vectors::<S>(gates)) {
            *choice = F::sum(simd, *choice, F::where_positive(simd, gate, bit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, Scalar, WithSimd};
    use rlox_kernels::rng::Pcg64;

    /// Rows, outputs and inputs of a layer.
    const SIZES: [(usize, usize, usize); 6] =
        [(1, 64, 16), (3, 65, 20), (62, 100, 33), (130, 64, 130), (200, 256, 72), (256, 80, 64)];

    /// A layer's gradients on the way back: of the biases, of the weights and of the inputs.
    struct Backward<'a, F> {
        gate: Gate<'a, F>,
        transposed: &'a [F],
        adds: bool,
        out: [&'a mut [F]; 3],
    }

    impl<F: Real> WithSimd for Backward<'_, F> {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            let Self { gate, transposed, adds, out: [biases, weights, hidden] } = self;
            let memory = &mut GateMemory::new(gate.layer.outputs);
            gate.sum_rows(simd, adds, biases);
            gate.of_weights(simd, adds, memory, weights);
            gate.of_inputs(simd, transposed, memory, hidden);
        }
    }

    /// Instruction sets with 32 registers, 16 and none of vectors, where this machine has them.
    fn on_every_machine<F: Real>(call: impl Fn(&dyn Fn(Backward<'_, F>))) {
        call(&|backward| Arch::new().dispatch(backward));
        call(&|backward| Simd::vectorize(Scalar::new(), backward));
        #[cfg(target_arch = "x86_64")]
        if let Some(narrow) = pulp::x86::V3::try_new() {
            call(&|backward| Simd::vectorize(narrow, backward));
        }
    }

    /// Random numbers in rows of [`row_stride`], with zeros as padding.
    fn matrix<F: Real>(rng: &mut Pcg64, rows: usize, width: usize) -> Aligned<F> {
        let mut numbers = Aligned::zeros(rows * row_stride(width));
        for row in numbers.chunks_exact_mut(row_stride(width)) {
            row[..width].fill_with(|| F::of(rng.uniform(-1.0, 1.0)));
        }
        numbers
    }

    fn gradients_equal_naive_sums<F: Real>(tolerance: f64) {
        on_every_machine::<F>(|run| {
            let mut rng = Pcg64::from_seed(0);
            for ((rows, width, n_inputs), adds) in SIZES.into_iter().zip([false, true].repeat(3)) {
                let (stride, of_inputs) = (row_stride(width), row_stride(n_inputs));
                let outputs = matrix::<F>(&mut rng, rows, width);
                let inputs = matrix::<F>(&mut rng, rows, n_inputs);
                let transposed = matrix::<F>(&mut rng, width, n_inputs);
                let (gradients, weights) =
                    (matrix::<F>(&mut rng, rows, 1), matrix::<F>(&mut rng, 1, width));
                let [mut of_biases, mut of_weights, mut of_hidden] = [
                    matrix::<F>(&mut rng, 1, width),
                    matrix::<F>(&mut rng, width, n_inputs),
                    matrix::<F>(&mut rng, rows, n_inputs),
                ];
                let before: Vec<F> = of_biases.iter().chain(&*of_weights).copied().collect();
                let gate = Gate {
                    rows,
                    layer: Layer::linear(&[1, n_inputs, width, 1], 0)[1],
                    inputs: &inputs,
                    outputs: &outputs,
                    gradients: &gradients,
                    weights: &weights,
                };
                let out = [&mut *of_biases, &mut *of_weights, &mut *of_hidden];
                run(Backward { gate, transposed: &transposed, adds, out });
                let delta = |i: usize, j: usize| {
                    let open = f64::from(u8::from(outputs[i * stride + j] > F::zero()));
                    open * gradients[i * PAD].widen() * weights[j].widen()
                };
                let check = |got: F, expected: f64| {
                    let error = (got.widen() - expected).abs();
                    assert!(error < tolerance, "{rows} {width} {n_inputs}: {error}");
                };
                let start = |at: usize| if adds { before[at].widen() } else { 0.0 };
                for j in 0..width {
                    let sum: f64 = (0..rows).map(|i| delta(i, j)).sum();
                    check(of_biases[j], start(j) + sum);
                    for k in 0..n_inputs {
                        let at = j * of_inputs + k;
                        let terms =
                            (0..rows).map(|i| delta(i, j) * inputs[i * of_inputs + k].widen());
                        check(of_weights[at], start(stride + at) + terms.sum::<f64>());
                    }
                }
                for i in 0..rows {
                    for k in 0..n_inputs {
                        let at = i * of_inputs + k;
                        let terms =
                            (0..width).map(|j| delta(i, j) * transposed[j * of_inputs + k].widen());
                        let open = inputs[at] > F::zero();
                        check(of_hidden[at], if open { terms.sum() } else { 0.0 });
                    }
                }
            }
        });
    }

    #[test]
    fn single_precision_gradients_equal_naive_sums() {
        gradients_equal_naive_sums::<f32>(2e-5);
    }

    #[test]
    fn double_precision_gradients_equal_naive_sums() {
        gradients_equal_naive_sums::<f64>(1e-13);
    }
}
