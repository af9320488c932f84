//! The seven functions against their naive twins, on every instruction set and in both precisions.

use pulp::{Arch, Scalar, Simd, WithSimd};
use rlox_kernels::rng::Pcg64;

use super::*;

/// Instruction sets to test, if available: with 32 registers, with 16 and without vectors.
#[derive(Debug, Clone, Copy)]
enum Machine {
    Widest,
    Narrow,
    Scalar,
}

impl Machine {
    const ALL: [Self; 3] = [Self::Widest, Self::Narrow, Self::Scalar];

    fn run<O: WithSimd>(self, operation: O) -> O::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Narrow if pulp::x86::V3::try_new().is_some() => {
                let narrow = pulp::x86::V3::try_new().expect("asked before");
                Simd::vectorize(narrow, operation)
            }
            Self::Scalar => Simd::vectorize(Scalar::new(), operation),
            _ => Arch::new().dispatch(operation),
        }
    }
}

/// Rows, inputs and outputs of a layer.
const SIZES: [(usize, usize, usize); 12] = [
    (1, 1, 1),
    (1, 16, 64),
    (3, 20, 65),
    (4, 128, 4),
    (9, 3, 70),
    (62, 33, 100),
    (64, 50, 7),
    (20, 256, 1),
    (33, 130, 80),
    (130, 24, 72),
    (200, 8, 256),
    (256, 9, 64),
];

/// A random layer with all inputs of its functions.
struct Case<F> {
    layer: Layer,
    parameters: Vec<F>,
    packed: PackedLayer<F>,
    rows: usize,
    inputs: Aligned<F>,
    input_stride: usize,
    outputs: Aligned<F>,
    deltas: Aligned<F>,
    gradients: Aligned<F>,
    next: Aligned<F>,
    /// Whether gradients are added, outputs rectified and input gradients masked.
    flag: bool,
}

/// Results of the functions: outputs, input gradients, gradients of weights and of biases; the last
/// three again, for masked outer products; accumulated outputs, and outputs of a few rows.
type Written<F> = [Aligned<F>; 9];

/// Random numbers in rows of [`row_stride`], with zeros as padding.
fn matrix<F: Real>(rng: &mut Pcg64, rows: usize, width: usize) -> Aligned<F> {
    let mut numbers = Aligned::zeros(rows * row_stride(width));
    for row in numbers.chunks_exact_mut(row_stride(width)) {
        row[..width].fill_with(|| F::of(rng.uniform(-1.0, 1.0)));
    }
    numbers
}

impl<F: Real> Case<F> {
    fn new(
        rng: &mut Pcg64,
        (rows, n_in, n_out): (usize, usize, usize),
        first: bool,
        flag: bool,
    ) -> Self {
        let sizes = [1, n_in, n_out, 1];
        let mut layer =
            Layer::linear(if first { &sizes[1..] } else { &sizes }, 0)[usize::from(!first)];
        layer.gated = layer.can_be_gated();
        let mut packed = PackedLayer::new(layer, true);
        let parameters: Vec<F> = (0..layer.end()).map(|_| F::of(rng.uniform(-1.0, 1.0))).collect();
        packed.load(layer, &parameters);
        // The rows of a network's inputs have no padding.
        let (inputs, input_stride) = if first {
            let mut inputs = Aligned::zeros(rows * n_in);
            inputs.fill_with(|| F::of(rng.uniform(-1.0, 1.0)));
            (inputs, n_in)
        } else {
            (matrix(rng, rows, n_in), row_stride(n_in))
        };
        let [outputs, deltas] = [(); 2].map(|()| matrix(rng, rows, n_out));
        let (gradients, next) = (matrix(rng, rows, 1), matrix(rng, 1, n_out));
        Self {
            layer,
            parameters,
            packed,
            rows,
            inputs,
            input_stride,
            outputs,
            deltas,
            gradients,
            next,
            flag,
        }
    }

    fn inputs(&self) -> Rows<'_, F> {
        Rows { elements: &self.inputs, rows: self.rows, stride: self.input_stride }
    }

    fn deltas(&self) -> Rows<'_, F> {
        let stride = row_stride(self.layer.outputs);
        Rows { elements: &self.deltas, rows: self.rows, stride }
    }

    fn mask(&self) -> Option<&[F]> {
        (self.flag && !self.layer.first).then_some(&*self.inputs)
    }

    fn gate(&self) -> Gate<'_, F> {
        let Self { layer, rows, inputs, outputs, gradients, next, .. } = self;
        let (layer, rows, weights) = (*layer, *rows, &**next);
        Gate { rows, layer, inputs, outputs, gradients, weights }
    }

    /// Output memory filled with numbers to add to.
    fn memory(&self) -> Written<F> {
        let rng = &mut Pcg64::from_seed(1);
        let Layer { inputs, outputs, .. } = self.layer;
        let (weight_rows, weight_columns) = self.layer.gradient_shape();
        [
            (self.rows, outputs),
            (self.rows, inputs),
            (weight_rows, weight_columns),
            (1, outputs),
            (self.rows, inputs),
            (weight_rows, weight_columns),
            (1, outputs),
            (self.rows, outputs),
            (self.rows, outputs),
        ]
        .map(|(rows, width)| matrix(rng, rows, width))
    }

    fn naive(&self) -> Written<F> {
        let mut out = self.memory();
        let [outputs, of_inputs, weights, biases, masked @ .., sums, of_few] = &mut out;
        let [masked_inputs, masked_weights, masked_biases] = masked;
        let (layer, packed, adds) = (self.layer, &self.packed, self.flag);
        naive::affine(layer, packed, self.inputs(), adds, outputs);
        naive::affine_of_few(layer, &self.parameters, self.inputs(), adds, of_few);
        if layer.first {
            naive::accumulate(layer, packed, self.inputs(), sums);
        }
        naive::affine_backward_inputs(layer, packed, self.deltas(), self.mask(), of_inputs);
        let gradients = [&mut **weights, &mut **biases];
        naive::affine_backward_weights(layer, self.inputs(), self.deltas(), adds, gradients);
        if layer.gated {
            let gradients = [&mut **masked_weights, &mut **masked_biases];
            naive::masked_outer_inputs(self.gate(), packed, masked_inputs);
            naive::masked_outer_weights(self.gate(), adds, gradients);
        }
        out
    }
}

impl<F: Real> WithSimd for &Case<F> {
    type Output = Written<F>;

    fn with_simd<S: Simd>(self, simd: S) -> Written<F> {
        let mut out = self.memory();
        let [outputs, of_inputs, weights, biases, masked @ .., sums, of_few] = &mut out;
        let [masked_inputs, masked_weights, masked_biases] = masked;
        let (layer, packed, adds) = (self.layer, &self.packed, self.flag);
        affine(simd, layer, packed, self.inputs(), adds, outputs);
        affine_of_few(simd, layer, &self.parameters, self.inputs(), adds, of_few);
        if layer.first {
            accumulate(simd, layer, packed, self.inputs(), sums);
        }
        affine_backward_inputs(simd, layer, packed, self.deltas(), self.mask(), of_inputs);
        let gradients = [&mut **weights, &mut **biases];
        affine_backward_weights(simd, layer, self.inputs(), self.deltas(), adds, gradients);
        if layer.gated {
            let memory = &mut GateMemory::new(layer.outputs);
            let gradients = [&mut **masked_weights, &mut **masked_biases];
            masked_outer_inputs(simd, self.gate(), packed, memory, masked_inputs);
            let memories = std::slice::from_mut(memory);
            masked_outer_weights(simd, self.gate(), adds, memories, gradients);
        }
        out
    }
}

fn functions_equal_their_twins<F: Real>(tolerance: f64) {
    let rng = &mut Pcg64::from_seed(0);
    for size in SIZES {
        for (first, flag) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = Case::<F>::new(rng, size, first, flag);
            let expected = case.naive();
            for machine in Machine::ALL {
                for (which, (got, expected)) in machine.run(&case).iter().zip(&expected).enumerate()
                {
                    for (at, (&got, &expected)) in got.iter().zip(&**expected).enumerate() {
                        let error = (got.widen() - expected.widen()).abs();
                        assert!(
                            error < tolerance,
                            "{size:?} {first} {flag} {machine:?} {which} {at}: {got:?} {expected:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn single_precision_equals_the_twins() {
    functions_equal_their_twins::<f32>(4e-5);
}

#[test]
fn double_precision_equals_the_twins() {
    functions_equal_their_twins::<f64>(1e-12);
}

#[test]
fn what_is_no_number_is_not_rectified() {
    let mut case = Case::<f32>::new(&mut Pcg64::from_seed(0), (9, 20, 65), false, true);
    case.inputs.fill(f32::NAN);
    for machine in Machine::ALL {
        let rows = &machine.run(&case)[0];
        let mut rows = rows.chunks_exact(row_stride(65));
        assert!(rows.all(|row| row[..65].iter().all(|value| value.is_nan())), "{machine:?}");
    }
}
