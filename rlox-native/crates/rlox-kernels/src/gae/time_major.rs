//! One step after the other: the layout of rollouts.

use super::{Discount, Estimates, Factors, Flag, Float, add};
use crate::error::{Result, check_len};

/// A rollout of `n_steps` rows of `n_envs`: element `(t, env)` is at `t * n_envs + env`.
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
    /// V of the episode's true last observation, `n_steps * n_envs`; counts only where truncated
    /// and not terminated, and may hold anything elsewhere.
    pub final_values: &'a [F],
    /// V of the observation after the last step, `n_envs`.
    pub last_values: &'a [F],
}

/// Estimates advantages and returns of a time-major rollout of `input.last_values.len()` envs.
///
/// # Errors
/// [`KernelError::Shape`](crate::KernelError::Shape) where a length does not fit.
pub fn gae_time_major<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    discount: Discount,
    output: &mut Estimates<'_, F>,
) -> Result<()> {
    let (len, n_envs) = (input.rewards.len(), input.last_values.len());
    let n_steps = len.checked_div(n_envs).unwrap_or(0);
    check_len("rewards", len, "whole rows of last_values", n_steps * n_envs)?;
    check_len("values", input.values.len(), "rewards", len)?;
    check_len("terminated", input.terminated.len(), "rewards", len)?;
    check_len("truncated", input.truncated.len(), "rewards", len)?;
    check_len("final_values", input.final_values.len(), "rewards", len)?;
    output.check(len)?;

    let factors = discount.factors();
    let mut next_advantages = vec![F::default(); n_envs];
    let mut next_values = input.last_values;
    for start in (0..n_steps).rev().map(|step| step * n_envs) {
        let at = start..start + n_envs;
        let row = TimeMajor {
            rewards: &input.rewards[at.clone()],
            values: &input.values[at.clone()],
            terminated: &input.terminated[at.clone()],
            truncated: &input.truncated[at.clone()],
            final_values: &input.final_values[at.clone()],
            last_values: next_values,
        };
        let advantages = &mut output.advantages[at.clone()];
        trace_row(row, factors, &mut next_advantages, advantages);
        add(advantages, row.values, &mut output.returns[at]);
        next_values = row.values;
    }
    Ok(())
}

/// Computes one row of advantages from the row after it, `next_advantages`, which it replaces.
///
/// A function of its own, so that the compiler knows the rows it writes to be distinct from all
/// others and works on whole vectors of envs.
#[inline(never)]
fn trace_row<F: Float, D: Flag>(
    row: TimeMajor<'_, F, D>,
    factors: Factors<F>,
    next_advantages: &mut [F],
    advantages: &mut [F],
) {
    let values = row.values.iter().zip(row.last_values).zip(row.final_values);
    let ends = row.terminated.iter().zip(row.truncated);
    let results = advantages.iter_mut().zip(next_advantages);
    for (
        (((&value, &next_value), &final_value), &reward),
        ((terminated, truncated), (advantage, next_advantage)),
    ) in values.zip(row.rewards).zip(ends.zip(results))
    {
        let (terminated, truncated) = (terminated.is_set(), truncated.is_set());
        let next_value = F::select(truncated, final_value, next_value);
        let next_value = F::select(terminated, F::default(), next_value);
        let delta = factors.delta(reward, next_value, value);
        let trace = factors.trace * *next_advantage;
        *next_advantage = delta + F::select(terminated | truncated, F::default(), trace);
        *advantage = *next_advantage;
    }
}
