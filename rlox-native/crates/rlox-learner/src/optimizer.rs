//! Optimisers of a flat array of parameters, in torch's formulas.

use pulp::Simd;

use super::Real;
use rlox_kernels::error::{KernelError, Result, check_len, check_range, check_weight};
use rlox_kernels::threads;

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
    fn check(&self, optimizer: Optimizer, n_parameters: usize) -> Result<()> {
        let first = if let Optimizer::Adam { .. } = optimizer { n_parameters } else { 0 };
        check_len("first moments", self.first.len(), "parameters", first)?;
        check_len("second moments", self.second.len(), "parameters", n_parameters)?;
        // Up to where the bias corrections count in double precision.
        #[expect(clippy::cast_precision_loss, reason = "a larger number stays larger")]
        check_range("step", self.step as f64, 0.0, (1_u64 << 53) as f64)
    }
}

impl Optimizer {
    fn check(self) -> Result<()> {
        let eps = match self {
            Self::Adam { betas, eps } => {
                for (name, value) in ["betas[0]", "betas[1]"].into_iter().zip(betas) {
                    // With 1 the bias correction would divide by 0.
                    if !(0.0..1.0).contains(&value) {
                        return Err(KernelError::Below { name, low: 0.0, bound: 1.0, value });
                    }
                }
                eps
            }
            Self::RmsProp { alpha, eps } => {
                check_range("alpha", alpha, 0.0, 1.0)?;
                eps
            }
        };
        check_weight("eps", eps)
    }

    /// Takes one step down `gradients`, parts of them side by side if there are `helpers`.
    #[inline(always)]
    fn step<F: Real, S: Simd>(
        self,
        simd: S,
        helpers: usize,
        parameters: &mut [F],
        gradients: &[F],
        moments: &mut Moments<'_, F>,
        learning_rate: f64,
    ) {
        moments.step += 1;
        let size = parameters.len().div_ceil(helpers + 1).max(1);
        let parts = parameters.chunks_mut(size).zip(gradients.chunks(size));
        let parts = parts.zip(moments.second.chunks_mut(size));
        match self {
            Self::Adam { betas: [beta_1, beta_2], eps } => {
                #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
                let step = moments.step as f64;
                let inverse_root = F::of(1.0 / (1.0 - beta_2.powf(step)).sqrt());
                let rate = F::of(learning_rate / (1.0 - beta_1.powf(step)));
                let (keep_1, take_1) = (F::of(beta_1), F::of(1.0 - beta_1));
                let (keep_2, take_2) = (F::of(beta_2), F::of(1.0 - beta_2));
                let eps = F::of(eps);
                let parts = parts.zip(moments.first.chunks_mut(size)).collect();
                threads::for_each(parts, helpers, |(((parameters, gradients), second), first)| {
                    simd.vectorize(
                        #[inline(always)]
                        || {
                            let moments = first.iter_mut().zip(second);
                            for ((parameter, &g), (first, second)) in
                                parameters.iter_mut().zip(gradients).zip(moments)
                            {
                                *first = keep_1 * *first + take_1 * g;
                                *second = keep_2 * *second + take_2 * g * g;
                                let spread = second.sqrt() * inverse_root + eps;
                                *parameter = *parameter - rate * *first / spread;
                            }
                        },
                    );
                });
            }
            Self::RmsProp { alpha, eps } => {
                let (keep, take, eps) = (F::of(alpha), F::of(1.0 - alpha), F::of(eps));
                let rate = F::of(learning_rate);
                threads::for_each(parts.collect(), helpers, |((parameters, gradients), second)| {
                    simd.vectorize(
                        #[inline(always)]
                        || {
                            for ((parameter, &g), second) in
                                parameters.iter_mut().zip(gradients).zip(second)
                            {
                                *second = keep * *second + take * g * g;
                                *parameter = *parameter - rate * g / (second.sqrt() + eps);
                            }
                        },
                    );
                });
            }
        }
    }
}

/// How parameters move down a gradient.
#[derive(Debug, Clone, Copy)]
pub struct StepRule {
    /// The optimiser.
    pub optimizer: Optimizer,
    /// Step size.
    pub learning_rate: f64,
    /// Bound of the gradient's Euclidean norm; `None`: not bounded.
    pub max_grad_norm: Option<f64>,
}

impl StepRule {
    pub(super) fn check<F>(&self, moments: &Moments<'_, F>, n_parameters: usize) -> Result<()> {
        self.optimizer.check()?;
        check_weight("learning_rate", self.learning_rate)?;
        if let Some(largest) = self.max_grad_norm {
            check_range("max_grad_norm", largest, 0.0, f64::INFINITY)?;
        }
        moments.check(self.optimizer, n_parameters)
    }

    /// Takes a step of `parameters` down `gradients`, which are clipped.
    #[inline(always)]
    pub(super) fn step<F: Real, S: Simd>(
        &self,
        simd: S,
        helpers: usize,
        parameters: &mut [F],
        gradients: &mut [F],
        moments: &mut Moments<'_, F>,
    ) {
        if let Some(largest) = self.max_grad_norm {
            clip_norm(gradients, largest);
        }
        let Self { optimizer, learning_rate, .. } = *self;
        optimizer.step(simd, helpers, parameters, gradients, moments, learning_rate);
    }
}

/// Scales `gradients` down to the Euclidean norm `largest` if they are longer.
#[inline(always)]
fn clip_norm<F: Real>(gradients: &mut [F], largest: f64) {
    // Sums in turn, so that the compiler works on whole vectors and none waits for the one before.
    const SUMS: usize = 64;
    let mut sums = [F::zero(); SUMS];
    let (chunks, rest) = gradients.as_chunks::<SUMS>();
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
    // A factor that is no number is no reason to return.
    if factor >= F::one() {
        return;
    }
    for g in gradients {
        *g = *g * factor;
    }
}
