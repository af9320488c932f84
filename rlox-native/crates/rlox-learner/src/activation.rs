//! What is applied to the outputs of hidden layers, and its derivative.

use pulp::Simd;

use super::Real;

/// What is applied to every hidden output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Tanh,
    Relu,
}

impl Activation {
    #[inline(always)]
    pub(super) fn apply<F: Real, S: Simd>(self, simd: S, values: &mut [F]) {
        match self {
            Self::Tanh => F::tanh_all(simd, values),
            Self::Relu => {
                for value in values {
                    // What is no number stays none, as it does in torch.
                    *value = if *value < F::zero() { F::zero() } else { *value };
                }
            }
        }
    }

    /// Multiplies gradients with respect to the outputs `y` by the derivative.
    #[inline(always)]
    pub(super) fn differentiate<F: Real>(self, gradients: &mut [F], outputs: &[F]) {
        let pairs = gradients.iter_mut().zip(outputs);
        match self {
            Self::Tanh => {
                for (gradient, &y) in pairs {
                    *gradient = *gradient * (F::one() - y * y);
                }
            }
            Self::Relu => {
                for (gradient, &y) in pairs {
                    *gradient = if y > F::zero() { *gradient } else { F::zero() };
                }
            }
        }
    }
}
