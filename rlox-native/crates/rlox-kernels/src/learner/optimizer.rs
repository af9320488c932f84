//! Optimisers of a flat array of parameters, in torch's formulas.

use super::Real;
use crate::error::{KernelError, Result, check_len};

/// How parameters move along a gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Kingma and Ba 2015, algorithm 1, as `torch.optim.Adam`: `eps` is added to the root of the
    /// second moment after its bias correction.
    Adam {
        /// Decay of the first and the second moment.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        eps: f64,
    },
    /// `torch.optim.RMSprop`: `eps` is added to the root of the second moment.
    RmsProp {
        /// Decay of the second moment.
        alpha: f64,
        /// Added to the root of the second moment.
        eps: f64,
    },
}

/// What an optimiser keeps from step to step.
#[derive(Debug)]
pub struct Moments<'a, F> {
    /// Steps taken.
    pub step: u64,
    /// Running mean of the gradients; empty for [`Optimizer::RmsProp`].
    pub first: &'a mut [F],
    /// Running mean of their squares.
    pub second: &'a mut [F],
}

impl<F> Moments<'_, F> {
    pub(super) fn check(&self, optimizer: Optimizer, n_parameters: usize) -> Result<()> {
        let first = if let Optimizer::Adam { .. } = optimizer { n_parameters } else { 0 };
        check_len("first moments", self.first.len(), "parameters", first)?;
        check_len("second moments", self.second.len(), "parameters", n_parameters)
    }
}

impl Optimizer {
    pub(super) fn check(self) -> Result<()> {
        let (decays, eps) = match self {
            Self::Adam { betas, eps } => (betas, eps),
            Self::RmsProp { alpha, eps } => ([alpha, alpha], eps),
        };
        for value in decays {
            crate::error::check_range("decay", value, 0.0, 1.0)?;
        }
        if !(eps.is_finite() && eps >= 0.0) {
            return Err(KernelError::NonFinite { name: "eps", index: 0 });
        }
        Ok(())
    }

    /// Takes one step down `gradients`.
    #[inline(always)]
    pub(super) fn step<F: Real>(
        self,
        parameters: &mut [F],
        gradients: &[F],
        moments: &mut Moments<'_, F>,
        learning_rate: f64,
    ) {
        moments.step += 1;
        match self {
            Self::Adam { betas: [beta_1, beta_2], eps } => {
                #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
                let step = moments.step as f64;
                let inverse_root = F::of(1.0 / (1.0 - beta_2.powf(step)).sqrt());
                let size = F::of(learning_rate / (1.0 - beta_1.powf(step)));
                let (keep_1, take_1) = (F::of(beta_1), F::of(1.0 - beta_1));
                let (keep_2, take_2) = (F::of(beta_2), F::of(1.0 - beta_2));
                let eps = F::of(eps);
                let moments = moments.first.iter_mut().zip(moments.second.iter_mut());
                for ((parameter, &g), (first, second)) in
                    parameters.iter_mut().zip(gradients).zip(moments)
                {
                    *first = keep_1 * *first + take_1 * g;
                    *second = keep_2 * *second + take_2 * g * g;
                    *parameter = *parameter - size * *first / (second.sqrt() * inverse_root + eps);
                }
            }
            Self::RmsProp { alpha, eps } => {
                let (keep, take, eps) = (F::of(alpha), F::of(1.0 - alpha), F::of(eps));
                let size = F::of(learning_rate);
                for ((parameter, &g), second) in
                    parameters.iter_mut().zip(gradients).zip(moments.second.iter_mut())
                {
                    *second = keep * *second + take * g * g;
                    *parameter = *parameter - size * g / (second.sqrt() + eps);
                }
            }
        }
    }
}

/// Scales `gradients` down to the Euclidean norm `largest` where they are longer.
#[inline(always)]
pub(super) fn clip_norm<F: Real>(gradients: &mut [F], largest: f64) {
    // Sixteen sums in turn, so that the compiler works on whole vectors.
    let mut sums = [F::zero(); 16];
    let (chunks, rest) = gradients.as_chunks::<16>();
    for chunk in chunks {
        for (sum, &g) in sums.iter_mut().zip(chunk) {
            *sum = *sum + g * g;
        }
    }
    for (sum, &g) in sums.iter_mut().zip(rest) {
        *sum = *sum + g * g;
    }
    let norm = sums.iter().map(|sum| sum.widen()).sum::<f64>().sqrt();
    let factor = F::of(largest / (norm + 1e-6));
    // Not `min`, which would hide a factor that is no number.
    let factor = if factor >= F::one() { F::one() } else { factor };
    for g in gradients {
        *g = *g * factor;
    }
}
