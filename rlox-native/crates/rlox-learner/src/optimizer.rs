//! Optimisers for a flat array of parameters, with torch's formulas.

use pulp::Simd;

use super::Real;
use super::inlined::Inlined;
use super::linalg::Gathered;
use rlox_kernels::error::{KernelError, Result, check_len, check_range, check_weight};
use rlox_kernels::threads;

/// Update formula of an optimiser.
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

impl Optimizer {
    fn check(self) -> Result<()> {
        let eps = match self {
            Self::Adam { betas, eps } => {
                for (name, value) in ["betas[0]", "betas[1]"].into_iter().zip(betas) {
                    // A decay of 1 would make the bias correction divide by 0.
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

    /// Its constants for the step after `steps` steps.
    fn constants<F: Real>(self, steps: u64, learning_rate: f64) -> Constants<F> {
        match self {
            Self::Adam { betas: [beta_1, beta_2], eps } => {
                #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
                let step = (steps + 1) as f64;
                Constants {
                    first: Some([beta_1, 1.0 - beta_1].map(F::of)),
                    second: [beta_2, 1.0 - beta_2].map(F::of),
                    inverse_root: F::of(1.0 / (1.0 - beta_2.powf(step)).sqrt()),
                    rate: F::of(learning_rate / (1.0 - beta_1.powf(step))),
                    eps: F::of(eps),
                }
            }
            Self::RmsProp { alpha, eps } => Constants {
                first: None,
                second: [alpha, 1.0 - alpha].map(F::of),
                inverse_root: F::one(),
                rate: F::of(learning_rate),
                eps: F::of(eps),
            },
        }
    }
}

/// Constants of a step, equal for all parameters.
#[derive(Debug, Clone, Copy)]
struct Constants<F> {
    /// Weights of the old and the new value in the first moment; only [`Optimizer::Adam`].
    first: Option<[F; 2]>,
    /// Weights of the old and the new value in the second moment.
    second: [F; 2],
    /// Inverse root of the second moment's bias correction.
    inverse_root: F,
    rate: F,
    eps: F,
}

impl<F: Real> Constants<F> {
    /// Moves parameters along their gradients times `factor`.
    #[inline(always)]
    fn step(&self, gradients: &[F], factor: F, place: Place<'_, F>) {
        let Self { second: [keep_2, take_2], inverse_root, rate, eps, .. } = *self;
        let of_parameters = place.parameters.iter_mut().zip(place.second);
        let of_parameters = of_parameters.zip(gradients.iter().map(|&g| g * factor));
        if let Some([keep_1, take_1]) = self.first {
            for (((parameter, second), g), first) in of_parameters.zip(place.first) {
                *first = keep_1 * *first + take_1 * g;
                *second = keep_2 * *second + take_2 * g * g;
                let spread = second.sqrt() * inverse_root + eps;
                *parameter = *parameter - rate * *first / spread;
            }
        } else {
            for ((parameter, second), g) in of_parameters {
                *second = keep_2 * *second + take_2 * g * g;
                *parameter = *parameter - rate * g / (second.sqrt() + eps);
            }
        }
    }
}

/// Consecutive parameters with their moments.
#[derive(Debug)]
struct Place<'a, F> {
    parameters: &'a mut [F],
    first: &'a mut [F],
    second: &'a mut [F],
}

impl<F> Place<'_, F> {
    /// Splits off the first `n` parameters.
    #[inline(always)]
    fn split_off(&mut self, n: usize) -> Self {
        Self {
            parameters: self.parameters.split_off_mut(..n).unwrap_or_default(),
            // Empty for [`Optimizer::RmsProp`].
            first: self.first.split_off_mut(..n).unwrap_or_default(),
            second: self.second.split_off_mut(..n).unwrap_or_default(),
        }
    }
}

/// Settings of a gradient step.
#[derive(Debug, Clone, Copy)]
pub struct StepRule {
    /// The optimiser.
    pub optimizer: Optimizer,
    /// Step size.
    pub learning_rate: f64,
    /// Bound of the gradient's Euclidean norm; `None` for no bound.
    pub max_grad_norm: Option<f64>,
}

/// Trained parameters and the state of their optimiser.
#[derive(Debug)]
pub struct Learnt<'a, F> {
    /// The parameters in one array.
    pub parameters: &'a mut [F],
    /// Running mean of the gradients; empty for [`Optimizer::RmsProp`].
    pub first: &'a mut [F],
    /// Running mean of their squares.
    pub second: &'a mut [F],
    /// Steps taken.
    pub step: u64,
    /// Settings of their steps.
    pub rule: StepRule,
}

impl<F: Real> Learnt<'_, F> {
    /// Checks the argument `name`, the parameters of `like`.
    pub(super) fn check(
        &self,
        name: &'static str,
        like: &'static str,
        n_parameters: usize,
    ) -> Result<()> {
        check_len(name, self.parameters.len(), like, n_parameters)?;
        let StepRule { optimizer, learning_rate, max_grad_norm } = self.rule;
        optimizer.check()?;
        check_weight("learning_rate", learning_rate)?;
        if let Some(largest) = max_grad_norm {
            check_range("max_grad_norm", largest, 0.0, f64::INFINITY)?;
        }
        let first = if let Optimizer::Adam { .. } = optimizer { n_parameters } else { 0 };
        check_len("first moments", self.first.len(), "parameters", first)?;
        check_len("second moments", self.second.len(), "parameters", n_parameters)?;
        // Up to the largest exact integer in double precision.
        #[expect(clippy::cast_precision_loss, reason = "a larger number stays larger")]
        check_range("step", self.step as f64, 0.0, (1_u64 << 53) as f64)
    }

    /// Takes a step down `gradients`, in parallel parts if there are `helpers`; returns their
    /// clipping factor.
    ///
    /// Consecutive parts are read by one thread, which has also computed their gradients if those
    /// were divided equally.
    #[inline(always)]
    pub(super) fn step<'a, S: Simd>(
        &mut self,
        simd: S,
        helpers: usize,
        gradients: impl IntoIterator<Item = Gathered<'a, F>>,
    ) -> F
    where
        F: 'a,
    {
        let Self { parameters, first, second, step, rule } = self;
        let parts: Vec<_> = gradients.into_iter().flat_map(Gathered::parts).collect();
        let norm = rule.max_grad_norm.map(|largest| (largest, norm(simd, helpers, &parts)));
        let factor = norm.map_or(F::one(), |(largest, norm)| F::of(largest / (norm + 1e-6)));
        // A NaN factor is kept, so that the failure is visible.
        let factor = if factor >= F::one() { F::one() } else { factor };
        let constants: Constants<F> = rule.optimizer.constants(*step, rule.learning_rate);
        *step += 1;
        let places = places(&parts, Place { parameters, first, second });
        let parts = parts.into_iter().zip(places).collect();
        threads::for_each(parts, helpers, |(gradients, mut place)| {
            simd.vectorize(Inlined(
                #[inline(always)]
                || {
                    gradients.each_run(
                        #[inline(always)]
                        |run| constants.step(run, factor, place.split_off(run.len())),
                    );
                },
            ));
        });
        factor
    }
}

/// The parameters and moments of each of `parts`, out of `all`.
fn places<'a, F: Real>(parts: &[Gathered<'_, F>], mut all: Place<'a, F>) -> Vec<Place<'a, F>> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_unstable_by_key(|&i| parts[i].first);
    let mut at = 0;
    let split = order.iter().map(|&i| {
        let Gathered { first, .. } = parts[i];
        let _ = all.split_off(first - at);
        at = first + parts[i].len();
        (i, all.split_off(parts[i].len()))
    });
    let mut places: Vec<_> = split.collect();
    places.sort_unstable_by_key(|&(i, _)| i);
    places.into_iter().map(|(_, place)| place).collect()
}

/// The Euclidean norm of all `parts`, computed in parallel if there are `helpers`.
#[inline(always)]
fn norm<F: Real, S: Simd>(simd: S, helpers: usize, parts: &[Gathered<'_, F>]) -> f64 {
    let mut sums = vec![0.0; parts.len()];
    threads::for_each(parts.iter().zip(&mut sums).collect(), helpers, |(part, sum)| {
        simd.vectorize(Inlined(
            #[inline(always)]
            || *sum = sum_of_squares(*part),
        ));
    });
    sums.iter().sum::<f64>().sqrt()
}

#[inline(always)]
fn sum_of_squares<F: Real>(gradients: Gathered<'_, F>) -> f64 {
    // Interleaved sums, so that the compiler uses whole vectors and no sum waits for another.
    const SUMS: usize = 64;
    let mut sums = [F::zero(); SUMS];
    gradients.each_run(
        #[inline(always)]
        |run| {
            let (chunks, rest) = run.as_chunks::<SUMS>();
            for chunk in chunks {
                for (sum, &g) in sums.iter_mut().zip(chunk) {
                    *sum = *sum + g * g;
                }
            }
            for (sum, &g) in sums.iter_mut().zip(rest) {
                *sum = *sum + g * g;
            }
        },
    );
    sums.iter().map(|sum| sum.widen()).sum()
}
