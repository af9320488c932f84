//! Parameters that stay the same in several calls.

use super::update::Learner;
use rlox_kernels::error::{Result, check_len};

impl Learner<f32> {
    /// Copies parameters for [`act`](Self::act), [`values`](Self::values) and
    /// [`remember`](Self::remember), which take them if they are given none. Any call with parameters
    /// forgets them.
    ///
    /// # Errors
    /// [`KernelError::Shape`](rlox_kernels::KernelError::Shape) where the length does not fit.
    pub fn hold(&mut self, parameters: &[f32]) -> Result<()> {
        self.check_parameters(Some(parameters))?;
        self.packed.load(&self.shape, parameters);
        self.packed.held = true;
        Ok(())
    }

    /// Checks that there are parameters, given or held.
    pub(super) fn check_parameters(&self, given: Option<&[f32]>) -> Result<()> {
        let expected = self.shape.n_parameters();
        match given {
            Some(given) => check_len("parameters", given.len(), "the networks", expected),
            None if self.packed.held => Ok(()),
            None => check_len("parameters", 0, "the networks, for none are held", expected),
        }
    }
}
