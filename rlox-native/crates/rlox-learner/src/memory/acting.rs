//! What is remembered of episodes while actions are drawn.

use pulp::{Arch, Simd, WithSimd};

use crate::update::Learner;
use rlox_kernels::error::{Result, check_len};

impl Learner<f32> {
    /// Takes in one observation of each of N episodes: `states`, N × the size of a state, are those
    /// before, 0 where an episode begins, and become those after. [`Learner::act`] and
    /// [`Learner::values`] take the latter. Parameters are those that are held if none are given.
    ///
    /// # Errors
    /// [`KernelError::Shape`](rlox_kernels::KernelError::Shape) where a length does not fit, or no
    /// parameters are there.
    pub fn remember(
        &mut self,
        parameters: Option<&[f32]>,
        obs: &[f32],
        states: &mut [f32],
    ) -> Result<()> {
        let (obs_dim, size) = (self.shape.obs_dim(), self.shape.state_size());
        let n = obs.len() / obs_dim;
        self.check_parameters(parameters)?;
        check_len("obs", obs.len(), "whole observations", n * obs_dim)?;
        check_len("state", states.len(), "observations * state_size", n * size)?;
        if self.packed.memory.is_some() && n > 0 {
            if let Some(parameters) = parameters {
                self.packed.load_memory(parameters);
            }
            Arch::new().dispatch(Remember { learner: self, obs, states });
        }
        Ok(())
    }
}

/// The arguments of [`Learner::remember`].
struct Remember<'a> {
    learner: &'a mut Learner<f32>,
    obs: &'a [f32],
    states: &'a mut [f32],
}

impl WithSimd for Remember<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Learner { packed, block, .. } = self.learner;
        if let (Some(packed), Some(memory)) = (&packed.memory, &mut block.memory) {
            memory.remember(simd, packed, self.obs, self.states);
        }
    }
}
