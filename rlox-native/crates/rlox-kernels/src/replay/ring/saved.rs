//! A ring as a whole: saved, and restored.

use super::Ring;
use crate::error::{KernelError, Result, check_len};
use crate::replay::batch::{Batch, Transitions};

impl Ring {
    /// Copies every stored transition, in the order of the slots, and whether each has its next
    /// observation.
    ///
    /// # Errors
    /// [`KernelError::Shape`] where `out` has another length than the buffer,
    /// [`KernelError::DType`] where it has another type.
    pub fn export(&self, out: &mut Batch<'_>, has_next_obs: &mut [bool]) -> Result<()> {
        check_len("rewards", out.rewards.len(), "the buffer", self.len())?;
        check_len("has_next_obs", has_next_obs.len(), "the buffer", self.len())?;
        let next_obs = out.next_obs.take();
        self.check_out(out, self.len())?;
        if let Some(next_obs) = &next_obs {
            self.layout().obs.check("next_obs", next_obs.as_values(), "the buffer", self.len())?;
        }
        out.next_obs = next_obs;
        self.gather(0..self.len(), out);
        for (slot, has_next_obs) in has_next_obs.iter_mut().enumerate() {
            *has_next_obs = self.has_next_obs(slot);
        }
        Ok(())
    }

    /// Checks that [`Ring::import`] can take these, and makes room for their frames.
    pub(in crate::replay) fn check_import(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
    ) -> Result<()> {
        let n = self.check(rows)?;
        check_len("has_next_obs", has_next_obs.len(), "rewards", n)?;
        let corrupt = |name, reason| Err(KernelError::Corrupt { name, reason });
        if n > self.layout().capacity {
            return corrupt("rewards", "there are more transitions than the capacity");
        }
        let full = n == self.layout().capacity;
        if !full && !n.is_multiple_of(self.layout().n_step.n_envs) {
            return corrupt("rewards", "there are steps of some envs without those of the others");
        }
        if position >= self.layout().capacity || !(full || position == n) {
            return corrupt(
                "position",
                "the next slot follows the last one, or lies in a full ring",
            );
        }
        self.reserve_frames(n)
    }
}
