//! Log-probabilities and entropies of a block of actions, and their gradients.

use pulp::Simd;

use super::Real;
use super::actor_critic::{ActorCritic, Head, parts, parts_mut};
use super::linalg::{BLOCK_ROWS, padded};

/// ½ ln 2π.
const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_7;

/// The gathered actions of a block's rows.
#[derive(Debug, Clone)]
pub(super) struct Chosen<F> {
    /// Categorical: the actions of each row, one per choice.
    pub(super) indices: Vec<usize>,
    /// Gaussian: the components of each row's action.
    pub(super) components: Vec<F>,
    /// Categorical: whether each action was possible, in rows of the head's width.
    pub(super) possible: Vec<bool>,
}

/// The policy's distribution in each row of a block.
#[derive(Debug, Clone)]
pub(super) struct Distribution<F> {
    head: Head,
    /// Categorical: number of actions of each choice.
    choices: Vec<usize>,
    /// Categorical: log-probabilities of all actions. Gaussian: (a - μ) / σ. Rows of the head's
    /// width.
    table: Vec<F>,
    /// Categorical: the exponentials of `table`. Scaled Gaussian: ln σ of each row.
    probabilities: Vec<F>,
    /// ln σ and its gradient accumulated so far.
    pub(super) log_std: Vec<F>,
    pub(super) log_std_gradient: Vec<F>,
    /// ln π(a|s) of each row.
    pub(super) log_probs: Vec<F>,
    /// H[π(·|s)] of each row, in nats.
    pub(super) entropies: Vec<F>,
    /// Categorical: entropy of each choice, in rows of choices.
    entropies_of_choices: Vec<F>,
}

impl<F: Real> Distribution<F> {
    pub(super) fn new(shape: &ActorCritic) -> Self {
        let (head, choices) = (shape.head, shape.choices.clone());
        let zeros = |n| vec![F::zero(); n];
        let table = zeros(padded(BLOCK_ROWS * head.width()));
        let probabilities = if let Head::Gaussian(_) = head { Vec::new() } else { table.clone() };
        let deviations = head.n_deviations();
        Self {
            head,
            entropies_of_choices: zeros(BLOCK_ROWS * choices.len()),
            choices,
            table,
            probabilities,
            log_std: zeros(deviations),
            log_std_gradient: zeros(deviations),
            log_probs: zeros(BLOCK_ROWS),
            entropies: zeros(BLOCK_ROWS),
        }
    }

    /// Computes log-probabilities and entropies from the policy network's `outputs`, in rows of
    /// `stride`.
    #[inline(always)]
    pub(super) fn evaluate<S: Simd>(
        &mut self,
        simd: S,
        outputs: &[F],
        stride: usize,
        rows: usize,
        chosen: &Chosen<F>,
    ) {
        match self.head {
            Head::Categorical(width) => {
                self.normalise(simd, outputs, stride, rows, &chosen.possible);
                let tables = self.table.chunks_exact(width);
                let tables = tables.zip(self.probabilities.chunks_exact(width));
                let results = self.log_probs.iter_mut().zip(&mut self.entropies);
                let choices = &self.choices[..];
                let chosen = chosen.indices.chunks_exact(choices.len()).take(rows);
                let kept = self.entropies_of_choices.chunks_exact_mut(choices.len());
                for ((((log_probs, probabilities), actions), kept), (log_prob, entropy)) in
                    tables.zip(chosen).zip(kept).zip(results)
                {
                    (*log_prob, *entropy) = (F::zero(), F::zero());
                    let tables = parts(log_probs, choices).zip(parts(probabilities, choices));
                    for (((log_probs, probabilities), &action), kept) in
                        tables.zip(actions).zip(kept)
                    {
                        let terms = log_probs.iter().zip(probabilities);
                        *kept = terms.fold(F::zero(), |sum, (&log_p, &p)| sum - p * log_p);
                        *log_prob = *log_prob + log_probs[action];
                        *entropy = *entropy + *kept;
                    }
                }
            }
            Head::Gaussian(width) => {
                let constant = F::of(HALF_LOG_TAU);
                let entropy = self
                    .log_std
                    .iter()
                    .fold(F::zero(), |sum, &log_std| sum + log_std + constant + F::of(0.5));
                let results = self.log_probs.iter_mut().zip(&mut self.entropies);
                let rows = outputs.chunks_exact(stride).take(rows).zip(results);
                let actions = chosen.components.chunks_exact(width);
                for (((means, (log_prob, row_entropy)), actions), standardised) in
                    rows.zip(actions).zip(self.table.chunks_exact_mut(width))
                {
                    *row_entropy = entropy;
                    *log_prob = F::zero();
                    for i in 0..width {
                        let log_std = self.log_std[i];
                        standardised[i] = (actions[i] - means[i]) * (-log_std).exp();
                        *log_prob = *log_prob + gaussian_log_prob(standardised[i], log_std);
                    }
                }
            }
            Head::ScaledGaussian(width) => {
                let constant = F::of(HALF_LOG_TAU) + F::of(0.5);
                let results = self.log_probs.iter_mut().zip(&mut self.entropies);
                let rows = outputs.chunks_exact(stride).take(rows).zip(results);
                let kept = self.table.chunks_exact_mut(width);
                let kept = kept.zip(self.probabilities.chunks_exact_mut(width));
                let actions = chosen.components.chunks_exact(width);
                for (((outputs, (log_prob, entropy)), actions), (standardised, log_stds)) in
                    rows.zip(actions).zip(kept)
                {
                    (*log_prob, *entropy) = (F::zero(), F::zero());
                    for i in 0..width {
                        let log_std = outputs[width + i].tanh();
                        log_stds[i] = log_std;
                        standardised[i] = (actions[i] - outputs[i]) * (-log_std).exp();
                        *log_prob = *log_prob + gaussian_log_prob(standardised[i], log_std);
                        *entropy = *entropy + log_std + constant;
                    }
                }
            }
        }
    }

    /// Writes log-probabilities and probabilities of all actions into the tables.
    #[inline(always)]
    pub(super) fn normalise<S: Simd>(
        &mut self,
        simd: S,
        outputs: &[F],
        stride: usize,
        rows: usize,
        possible: &[bool],
    ) {
        let (width, choices) = (self.head.width(), &self.choices[..]);
        let outputs = outputs.chunks_exact(stride).take(rows).zip(possible.chunks_exact(width));
        for ((logits, possible), row) in outputs.zip(self.table.chunks_exact_mut(width)) {
            let of_choices = parts(logits, choices).zip(parts(possible, choices));
            for ((logits, possible), row) in of_choices.zip(parts_mut(row, choices)) {
                let largest =
                    logits.iter().zip(possible).fold(F::neg_infinity(), |largest, (&z, &p)| {
                        if p { largest.max(z) } else { largest }
                    });
                for (shifted, &logit) in row.iter_mut().zip(logits) {
                    *shifted = logit - largest;
                }
            }
        }
        let used = padded(rows * width);
        self.probabilities[..used].copy_from_slice(&self.table[..used]);
        F::exp_all(simd, &mut self.probabilities[..used]);
        let tables =
            self.table.chunks_exact_mut(width).zip(self.probabilities.chunks_exact_mut(width));
        for ((log_probs, probabilities), possible) in
            tables.zip(possible.chunks_exact(width)).take(rows)
        {
            let tables = parts_mut(log_probs, choices).zip(parts_mut(probabilities, choices));
            for ((log_probs, probabilities), possible) in tables.zip(parts(possible, choices)) {
                normalise_choice(log_probs, probabilities, possible);
            }
        }
    }

    /// Probabilities of all actions after [`Distribution::normalise`], with their logarithms.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[F], &[F])> {
        let width = self.head.width();
        self.probabilities.chunks_exact(width).zip(self.table.chunks_exact(width))
    }

    /// Writes the gradient with respect to the network's outputs, given those with respect to the
    /// rows' log-probabilities and, the same for all rows, entropies.
    #[inline(always)]
    pub(super) fn backward(
        &mut self,
        log_prob_gradients: &[F],
        entropy_gradient: F,
        chosen: &Chosen<F>,
        stride: usize,
        output_gradients: &mut [F],
    ) {
        let width = self.head.width();
        let rows = output_gradients.chunks_exact_mut(stride).zip(log_prob_gradients).enumerate();
        for (r, (gradients, &log_prob_gradient)) in rows {
            let table = &self.table[r * width..][..width];
            match self.head {
                Head::Categorical(_) => {
                    let (choices, n) = (&self.choices[..], self.choices.len());
                    let probabilities = &self.probabilities[r * width..][..width];
                    let entropies = &self.entropies_of_choices[r * n..][..n];
                    let tables = parts(probabilities, choices).zip(parts(table, choices));
                    let of_choices = parts_mut(gradients, choices).zip(tables).zip(entropies);
                    for (((gradients, (probabilities, table)), &entropy), &action) in
                        of_choices.zip(&chosen.indices[r * n..])
                    {
                        for ((gradient, &p), &log_p) in
                            gradients.iter_mut().zip(probabilities).zip(table)
                        {
                            // ∂ ln π(a)/∂z_i = [i = a] - p_i, ∂H/∂z_i = -p_i (ln p_i + H)
                            let of_entropy = entropy_gradient * (log_p + entropy);
                            *gradient = -p * (log_prob_gradient + of_entropy);
                        }
                        gradients[action] = gradients[action] + log_prob_gradient;
                    }
                }
                Head::Gaussian(_) => {
                    for (i, &standardised) in table.iter().enumerate() {
                        gradients[i] = log_prob_gradient * standardised * (-self.log_std[i]).exp();
                        let of_square = standardised * standardised - F::one();
                        self.log_std_gradient[i] = self.log_std_gradient[i]
                            + log_prob_gradient * of_square
                            + entropy_gradient;
                    }
                }
                Head::ScaledGaussian(_) => {
                    let log_stds = &self.probabilities[r * width..][..width];
                    for (i, (&z, &log_std)) in table.iter().zip(log_stds).enumerate() {
                        gradients[i] = log_prob_gradient * z * (-log_std).exp();
                        let of_log_std = log_prob_gradient * (z * z - F::one()) + entropy_gradient;
                        gradients[width + i] = of_log_std * (F::one() - log_std * log_std);
                    }
                }
            }
        }
    }
}

/// Turns shifted logits and their exponentials into log-probabilities and probabilities.
#[inline(always)]
fn normalise_choice<F: Real>(log_probs: &mut [F], probabilities: &mut [F], possible: &[bool]) {
    for ((log_p, p), &possible) in log_probs.iter_mut().zip(probabilities.iter_mut()).zip(possible)
    {
        // 0 ln 0 is 0: an impossible action adds nothing to the entropy and gets no gradient.
        if !possible {
            (*log_p, *p) = (F::zero(), F::zero());
        }
    }
    let sum = probabilities.iter().fold(F::zero(), |sum, &e| sum + e);
    let (log_sum, factor) = (sum.ln(), sum.recip());
    for (log_p, p) in log_probs.iter_mut().zip(probabilities) {
        *log_p = *log_p - log_sum;
        *p = *p * factor;
    }
}

/// ln N(a; μ, σ) for the standardised component z = (a - μ) / σ.
pub(super) fn gaussian_log_prob<F: Real>(z: F, log_std: F) -> F {
    F::of(-0.5) * z * z - log_std - F::of(HALF_LOG_TAU)
}
