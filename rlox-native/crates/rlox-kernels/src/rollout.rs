//! Rollouts in the kernels' layout: one row of envs after the other.

use std::ops::Range;

use crate::error::{Result, check_len};
use crate::number::{Flag, Float};

/// A rollout of `n_steps` rows of `n_envs`: element `(t, env)` is at `t * n_envs + env`. A single
/// trajectory has one env.
#[derive(Debug, Clone, Copy)]
pub struct TimeMajor<'a, F, D> {
    /// Rewards, `n_steps * n_envs`.
    pub rewards: &'a [F],
    /// `V(s_t)`, `n_steps * n_envs`.
    pub values: &'a [F],
    /// Whether step t reached a terminal state, `n_steps * n_envs`.
    pub terminated: &'a [D],
    /// Whether the episode was cut after step t, `n_steps * n_envs`.
    pub truncated: &'a [D],
    /// V of the episode's true last observation, `n_steps * n_envs`; read only where truncated and
    /// not terminated, arbitrary elsewhere.
    pub final_values: &'a [F],
    /// V of the observation after the last step, `n_envs`.
    pub last_values: &'a [F],
}

impl<'a, F: Float, D: Flag> TimeMajor<'a, F, D> {
    /// The elements `at`, with `next_values` as the values after them.
    pub(crate) fn elements(&self, at: Range<usize>, next_values: &'a [F]) -> Self {
        Self {
            rewards: &self.rewards[at.clone()],
            values: &self.values[at.clone()],
            terminated: &self.terminated[at.clone()],
            truncated: &self.truncated[at.clone()],
            final_values: &self.final_values[at],
            last_values: next_values,
        }
    }

    /// Checks every length and returns the number of steps.
    pub(crate) fn check(&self) -> Result<usize> {
        let (len, n_envs) = (self.rewards.len(), self.last_values.len());
        let n_steps = len.checked_div(n_envs).unwrap_or(0);
        check_len("rewards", len, "whole rows of last_values", n_steps * n_envs)?;
        check_len("values", self.values.len(), "rewards", len)?;
        check_len("terminated", self.terminated.len(), "rewards", len)?;
        check_len("truncated", self.truncated.len(), "rewards", len)?;
        check_len("final_values", self.final_values.len(), "rewards", len)?;
        Ok(n_steps)
    }

    /// Whether the episode was terminated or truncated in the step of element `at`.
    #[inline]
    pub(crate) fn ends(&self, at: usize) -> bool {
        self.terminated[at].is_set() | self.truncated[at].is_set()
    }

    /// Value of the state after the step of element `at`: 0 after termination, the value of the
    /// final observation after truncation, and `next` otherwise.
    #[inline]
    pub(crate) fn successor(&self, at: usize, next: F) -> F {
        let (terminated, truncated) = (self.terminated[at].is_set(), self.truncated[at].is_set());
        successor(terminated, truncated, self.final_values[at], next)
    }
}

/// Value of the state after a step; see [`TimeMajor::successor`].
#[inline]
pub(crate) fn successor<F: Float>(terminated: bool, truncated: bool, last: F, next: F) -> F {
    F::select(terminated, F::default(), F::select(truncated, last, next))
}

/// The rows of each block of `width` envs; the last block may be narrower.
pub(crate) fn columns<F>(elements: &mut [F], n_envs: usize, width: usize) -> Vec<Vec<&mut [F]>> {
    let n_steps = elements.len() / n_envs;
    let mut blocks: Vec<_> =
        (0..n_envs.div_ceil(width)).map(|_| Vec::with_capacity(n_steps)).collect();
    for row in elements.chunks_exact_mut(n_envs) {
        for (block, part) in blocks.iter_mut().zip(row.chunks_mut(width)) {
            block.push(part);
        }
    }
    blocks
}
