//! Transitions that span several steps of their env.
//!
//! R. Sutton, "Learning to Predict by the Methods of Temporal Differences", 1988; as in M. Hessel
//! et al., "Rainbow", 2018, section "Multi-step learning", except that a span ends with its episode
//! or at the newest step, and bootstraps with γ^k from the next observation of its k-th step.

use super::Ring;
use crate::replay::batch::Batch;
use crate::replay::layout::{NStep, TERMINATED, TRUNCATED};

/// Result of a transition that spans several steps.
struct Span {
    /// The sum of γ^i times the i-th reward over its k steps.
    reward: f32,
    /// γ^k, and 0 after a termination.
    discount: f32,
    /// The slot of its last step.
    last: usize,
}

impl Ring {
    /// Copies the transitions that begin in `slots` into `out`, which has passed
    /// [`Ring::check_out`]: observation and action of the first step, all else over up to
    /// [`NStep::n_step`] steps.
    pub(super) fn copy_spans(&self, slots: &[usize], out: &mut Batch<'_>) {
        let mut next_obs = out.next_obs.take();
        self.copy(slots.iter().copied(), out);
        for (row, &slot) in slots.iter().enumerate() {
            let span = self.span(slot);
            let (_, flags) = self.reward_and_flags(span.last);
            out.rewards[row] = span.reward;
            out.terminated[row] = flags & TERMINATED != 0;
            out.truncated[row] = flags & TRUNCATED != 0;
            if let Some(discounts) = &mut out.discounts {
                discounts[row] = span.discount;
            }
            if let Some(next_obs) = &mut next_obs {
                let size = self.parts.obs_row;
                self.copy_next_obs(span.last, &mut next_obs.bytes()[row * size..][..size]);
            }
        }
        out.next_obs = next_obs;
    }

    #[expect(clippy::cast_possible_truncation, reason = "rewards are single precision")]
    fn span(&self, first: usize) -> Span {
        let NStep { n_envs, n_step, gamma } = self.layout().n_step;
        let mut newer = self.newer(first);
        let (mut last, mut reward, mut weight, mut steps) = (first, 0.0, 1.0, 1);
        loop {
            let (r, flags) = self.reward_and_flags(last);
            reward += weight * f64::from(r);
            weight *= gamma;
            let episode_ends = flags & (TERMINATED | TRUNCATED) != 0;
            if episode_ends || steps == n_step || newer < n_envs {
                let discount = if flags & TERMINATED == 0 { weight as f32 } else { 0.0 };
                return Span { reward: reward as f32, discount, last };
            }
            (newer, steps) = (newer - n_envs, steps + 1);
            last = self.after(last, n_envs);
        }
    }
}
