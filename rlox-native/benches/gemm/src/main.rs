//! Time of single-precision products by the learner's tiles and by the crates `gemm`, `matrixmultiply` and
//! `nano-gemm`, one thread each: `cargo run --release`.
//!
//! The sizes are those of gradient steps: rows of a block, terms of a sum, columns. The learner's function
//! also adds the biases; the others compute the product alone. All operands lie in the second-level cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pulp::{Arch, Simd, WithSimd};
use rlox_learner::linalg::{Layer, PackedLayer, Rows, affine, row_stride};

/// Rows, depth and columns.
const SIZES: [(usize, usize, usize); 7] = [
    (64, 64, 64),
    (256, 4, 64),
    (256, 64, 64),
    (128, 256, 256),
    (256, 20, 256),
    (256, 256, 256),
    (256, 256, 2),
];

/// How long each size is measured.
const TIME: Duration = Duration::from_secs(3);

/// One product of the learner.
struct Affine<'a> {
    layer: Layer,
    packed: &'a PackedLayer<f32>,
    inputs: Rows<'a, f32>,
    out: &'a mut [f32],
}

impl WithSimd for Affine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        affine(simd, self.layer, self.packed, self.inputs, false, self.out);
    }
}

/// Numbers in [-0.5, 0.5) that no product makes large.
fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// A matrix in rows of [`row_stride`].
fn padded(rows: usize, columns: usize, elements: &[f32]) -> Vec<f32> {
    let mut matrix = vec![0.0; rows * row_stride(columns)];
    let to = matrix.chunks_exact_mut(row_stride(columns));
    for (to, from) in to.zip(elements.chunks_exact(columns)) {
        to[..columns].copy_from_slice(from);
    }
    matrix
}

/// The first quartile of the times of each call in seconds; the calls take turns, so that a change of
/// the machine's clock meets all.
fn times(repeats: u32, calls: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut samples = vec![Vec::new(); calls.len()];
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        for (call, samples) in calls.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            for _ in 0..repeats {
                call();
            }
            samples.push(start.elapsed().as_secs_f64() / f64::from(repeats));
        }
    }
    for samples in &mut samples {
        samples.sort_by(f64::total_cmp);
    }
    samples.iter().map(|samples| samples[samples.len() / 4]).collect()
}

fn main() {
    println!("| rows × depth × columns | own | gemm | matrixmultiply | nano-gemm |");
    println!("|---|---|---|---|---|");
    for (m, k, n) in SIZES {
        let (a, b) = (numbers(m * k), numbers(k * n));
        // Not a network's first layer, so that few columns are a product of rows with rows.
        let layer = Layer::linear(&[1, k, n], 0)[1];
        let mut parameters = vec![0.0; layer.end()];
        for (i, weight) in parameters[layer.weights..][..n * k].iter_mut().enumerate() {
            *weight = b[i % k * n + i / k];
        }
        let mut packed = PackedLayer::new(layer, false);
        packed.load(layer, &parameters);
        let a_padded = padded(m, k, &a);
        let inputs = Rows { elements: &a_padded, rows: m, stride: row_stride(k) };
        let (mut own, mut by_gemm) = (vec![0.0; m * row_stride(n)], vec![0.0; m * n]);
        let (mut by_matrixmultiply, mut by_nano) = (by_gemm.clone(), by_gemm.clone());
        let plan = nano_gemm::Plan::new_f32(m, n, k);
        let (k_stride, n_stride) = (k as isize, n as isize);
        let arch = Arch::new();
        // A tenth of a millisecond or one call: shorter than what a busy machine lets run at a time.
        let operations = 2.0 * (m * k * n) as f64;
        let repeats = (1e7 / operations).clamp(1.0, 64.0) as u32;
        let times = times(
            repeats,
            &mut [
                &mut || {
                    let out = black_box(&mut own[..]);
                    arch.dispatch(Affine { layer, packed: &packed, inputs, out });
                },
                // SAFETY: the pointers are those of slices of the sizes that go with them.
                &mut || unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        black_box(by_gemm.as_mut_ptr()),
                        1,
                        n_stride,
                        false,
                        a.as_ptr(),
                        1,
                        k_stride,
                        b.as_ptr(),
                        1,
                        n_stride,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm::Parallelism::None,
                    );
                },
                // SAFETY: as above.
                &mut || unsafe {
                    matrixmultiply::sgemm(
                        m,
                        k,
                        n,
                        1.0,
                        a.as_ptr(),
                        k_stride,
                        1,
                        b.as_ptr(),
                        n_stride,
                        1,
                        0.0,
                        black_box(by_matrixmultiply.as_mut_ptr()),
                        n_stride,
                        1,
                    );
                },
                // SAFETY: as above.
                &mut || unsafe {
                    plan.execute_unchecked(
                        m,
                        n,
                        k,
                        black_box(by_nano.as_mut_ptr()),
                        n_stride,
                        1,
                        a.as_ptr(),
                        k_stride,
                        1,
                        b.as_ptr(),
                        n_stride,
                        1,
                        0.0,
                        1.0,
                        false,
                        false,
                    );
                },
            ],
        );
        for others in [&by_gemm, &by_matrixmultiply, &by_nano] {
            let rows = own.chunks_exact(row_stride(n)).zip(others.chunks_exact(n));
            let differs = |(own, other): (&[f32], &[f32])| {
                own.iter().zip(other).any(|(own, other)| (own - other).abs() > 1e-3)
            };
            assert!(!rows.into_iter().any(differs), "the products of {m} × {k} × {n} differ");
        }
        let cells = times
            .iter()
            .map(|time| format!(" {:.1} µs, {:.0} |", time * 1e6, operations / time / 1e9));
        println!("| {m} × {k} × {n} |{}", cells.collect::<String>());
    }
    println!("\nTime, and GFLOP/s.");
}
