//! Random draws and initial weights.

use rlox_kernels::rng::Pcg64;

/// A draw from the standard normal distribution.
///
/// Source: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
#[expect(clippy::cast_possible_truncation, reason = "actions and weights are single precision")]
pub fn normal(rng: &mut Pcg64) -> f32 {
    // In (0, 1], where the logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.next_double()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * rng.next_double()).cos()) as f32
}

/// A draw from the categorical distribution of `log_probs`, and its log-probability.
pub fn categorical(log_probs: &[f32], rng: &mut Pcg64) -> (i64, f32) {
    let mut left = rng.next_double();
    let mut last = (0, f32::NAN);
    for (action, &log_prob) in (0..).zip(log_probs) {
        let probability = f64::from(log_prob).exp();
        left -= probability;
        if left < 0.0 {
            return (action, log_prob);
        }
        // A remainder from rounding belongs to the last possible action.
        if probability > 0.0 {
            last = (action, log_prob);
        }
    }
    last
}

/// A matrix (`n_out`, `n_in`), row after row, whose rows or columns are orthogonal and `gain` long.
///
/// Source: Saxe, `McClelland`, Ganguli, "Exact Solutions to the Nonlinear Dynamics of Learning in
/// Deep Linear Neural Networks", 2014.
pub fn orthogonal(n_out: usize, n_in: usize, gain: f64, rng: &mut Pcg64) -> Vec<f32> {
    let (n_vectors, dim) = (n_out.min(n_in), n_out.max(n_in));
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(n_vectors);
    while vectors.len() < n_vectors {
        let mut vector: Vec<f64> = (0..dim).map(|_| f64::from(normal(rng))).collect();
        for other in &vectors {
            let overlap = dot(&vector, other);
            vector.iter_mut().zip(other).for_each(|(x, y)| *x -= overlap * y);
        }
        let norm = dot(&vector, &vector).sqrt();
        vectors.push(vector.into_iter().map(|x| x / norm).collect());
    }
    let element = |row: usize, column: usize| {
        if n_out <= n_in { vectors[row][column] } else { vectors[column][row] }
    };
    #[expect(clippy::cast_possible_truncation, reason = "weights are single precision")]
    let single = |x: f64| (gain * x) as f32;
    (0..n_out)
        .flat_map(|row| (0..n_in).map(move |column| (row, column)))
        .map(|(row, column)| single(element(row, column)))
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_draws_have_mean_0_and_variance_1() {
        let mut rng = Pcg64::from_seed(0);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(normal(&mut rng))).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        // Five standard errors: 1/√n of the mean, √2/√n of the variance.
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.023, "{mean} {variance}");
    }

    #[test]
    fn categorical_draws_are_as_frequent_as_probable() {
        let mut rng = Pcg64::from_seed(0);
        let log_probs = [0.2_f32.ln(), 0.5_f32.ln(), 0.3_f32.ln(), f32::NEG_INFINITY];
        let mut counts = [0.0_f64; 4];
        for _ in 0..100_000 {
            let (action, log_prob) = categorical(&log_probs, &mut rng);
            counts[usize::try_from(action).unwrap()] += 1e-5;
            assert_eq!(log_prob, log_probs[usize::try_from(action).unwrap()]);
        }
        for (count, expected) in counts.into_iter().zip([0.2, 0.5, 0.3, 0.0]) {
            assert!((count - expected).abs() < 0.008, "{counts:?}");
        }
    }

    #[test]
    fn orthogonal_matrices_are() {
        for (n_out, n_in) in [(64, 4), (2, 64), (5, 5)] {
            let matrix = orthogonal(n_out, n_in, 2.0, &mut Pcg64::from_seed(1));
            let vector = |i: usize| -> Vec<f64> {
                let all = 0..n_out.max(n_in);
                let place = |j| if n_out <= n_in { i * n_in + j } else { j * n_in + i };
                all.map(|j| f64::from(matrix[place(j)])).collect()
            };
            for i in 0..n_out.min(n_in) {
                for j in 0..=i {
                    let expected = if i == j { 4.0 } else { 0.0 };
                    assert!((dot(&vector(i), &vector(j)) - expected).abs() < 1e-5);
                }
            }
        }
    }
}
