//! The learner's networks, implemented again without blocks or vectors.

/// A network's outputs and the parameters after its own.
pub(crate) fn mlp<'a>(
    mut parameters: &'a [f64],
    inputs: &[f64],
    hidden: &[usize],
    outputs: usize,
    activation: fn(f64) -> f64,
) -> (Vec<f64>, &'a [f64]) {
    let mut x = inputs.to_vec();
    for (l, &width) in hidden.iter().chain(&[outputs]).enumerate() {
        let (weights, rest) = parameters.split_at(width * x.len());
        let (biases, rest) = rest.split_at(width);
        let dot = |row: &[f64]| row.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>();
        let sums = weights.chunks(x.len()).zip(biases).map(|(row, bias)| dot(row) + bias);
        x = sums.map(|sum| if l < hidden.len() { activation(sum) } else { sum }).collect();
        parameters = rest;
    }
    (x, parameters)
}
