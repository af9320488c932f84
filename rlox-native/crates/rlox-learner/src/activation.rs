//! Activation functions of hidden layers, with their derivatives.

use super::Real;

/// What is applied to every hidden output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Tanh,
    Relu,
}

impl Activation {
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
