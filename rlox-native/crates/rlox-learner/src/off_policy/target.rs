//! Target networks, which follow the trained parameters.

use pulp::{Arch, Simd, WithSimd};
use rlox_kernels::error::{Result, check_len, check_range};
use rlox_kernels::threads;

use super::continuous::ContinuousLearner;
use crate::Real;
use crate::inlined::Inlined;

impl ContinuousLearner {
    /// Moves a target network's parameters: θ' ← θ' + τ (θ - θ').
    ///
    /// Uses the threads of a gradient step on `rows` rows, whose caches hold `parameters`.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for lengths that differ or `tau` outside [0, 1].
    pub fn follow(
        &self,
        target: &mut [f32],
        parameters: &[f32],
        tau: f64,
        rows: usize,
    ) -> Result<()> {
        check_len("target", target.len(), "parameters", parameters.len())?;
        check_range("tau", tau, 0.0, 1.0)?;
        let helpers = self.policy.helpers(rows);
        Arch::new().dispatch(Follow { helpers, target, parameters, tau });
        Ok(())
    }
}

/// The arguments of [`ContinuousLearner::follow`].
struct Follow<'a> {
    helpers: usize,
    target: &'a mut [f32],
    parameters: &'a [f32],
    tau: f64,
}

impl WithSimd for Follow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { helpers, target, parameters, tau } = self;
        let size = target.len().div_ceil(helpers + 1).max(1);
        let parts = target.chunks_mut(size).zip(parameters.chunks(size)).collect();
        // Both forms follow torch: τ = 1 copies.
        let (near, far) = (f32::of(tau), f32::of(1.0 - tau));
        threads::for_each(parts, helpers, |(target, parameters)| {
            simd.vectorize(Inlined(
                #[inline(always)]
                || {
                    for (target, &learnt) in target.iter_mut().zip(parameters) {
                        let way = learnt - *target;
                        *target = if tau < 0.5 { *target + near * way } else { learnt - far * way };
                    }
                },
            ));
        });
    }
}
