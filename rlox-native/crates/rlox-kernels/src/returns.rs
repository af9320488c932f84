//! Regression targets of a value function: discounted, n-step and λ-returns.
//!
//! With `V'_t` the value of the state that step t led to (0 after termination, the value of the
//! final observation after truncation, `V(s_{t+1})` otherwise):
//!
//! - discounted: `G_t = r_t + γ G_{t+1}`, and `r_t + γ V'_t` at an end of episode or rollout;
//! - n-step: `G_t = r_t + γ r_{t+1} + … + γ^{m-1} r_{t+m-1} + γ^m V'_{t+m-1}`, where m is n, or
//!   less if the episode or the rollout ends before;
//! - λ-return: `G_t = r_t + γ ((1 - λ) V(s_{t+1}) + λ G_{t+1})`, at ends as above.
//!
//! Source: Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018, equations
//! 3.9, 7.1 and 12.2, the last in its recursive form.

use crate::error::{Result, check_len, check_range, check_size};
use crate::gae::Discount;
use crate::number::{Flag, Float};
use crate::rollout::TimeMajor;

/// Writes discounted returns; only the length of `input.values` is used.
///
/// # Errors
/// [`Shape`](crate::KernelError::Shape) if a length does not fit,
/// [`Range`](crate::KernelError::Range) for `gamma` outside `[0, 1]`.
pub fn discounted_returns<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    gamma: f64,
    returns: &mut [F],
) -> Result<()> {
    check_range("gamma", gamma, 0.0, 1.0)?;
    backwards(input, F::from_f64(gamma), returns, |_, next_return| next_return)
}

/// Writes λ-returns.
///
/// # Errors
/// [`Shape`](crate::KernelError::Shape) if a length does not fit.
pub fn lambda_returns<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    discount: Discount,
    returns: &mut [F],
) -> Result<()> {
    let (value_weight, return_weight) =
        (F::from_f64(1.0 - discount.lambda()), F::from_f64(discount.lambda()));
    backwards(input, F::from_f64(discount.gamma()), returns, |next_value, next_return| {
        value_weight * next_value + return_weight * next_return
    })
}

/// Writes `r_t + γ blend(V(s_{t+1}), G_{t+1})`, last row first; at ends the successor's value
/// replaces both.
fn backwards<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    gamma: F,
    returns: &mut [F],
    blend: impl Fn(F, F) -> F,
) -> Result<()> {
    let n_steps = input.check()?;
    check_len("returns", returns.len(), "rewards", input.rewards.len())?;
    let n_envs = input.last_values.len();
    for step in (0..n_steps).rev() {
        let last = step + 1 == n_steps;
        for env in 0..n_envs {
            let at = step * n_envs + env;
            let next = if last {
                input.last_values[env]
            } else {
                blend(input.values[at + n_envs], returns[at + n_envs])
            };
            returns[at] = input.rewards[at] + gamma * input.successor(at, next);
        }
    }
    Ok(())
}

/// Writes n-step returns.
///
/// # Errors
/// [`Shape`](crate::KernelError::Shape) if a length does not fit,
/// [`Range`](crate::KernelError::Range) for `gamma` outside `[0, 1]` or `n` of 0.
pub fn n_step_returns<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    gamma: f64,
    n: usize,
    returns: &mut [F],
) -> Result<()> {
    check_range("gamma", gamma, 0.0, 1.0)?;
    check_size("n", n, usize::MAX)?;
    let n_steps = input.check()?;
    check_len("returns", returns.len(), "rewards", input.rewards.len())?;
    let (n_envs, gamma) = (input.last_values.len(), F::from_f64(gamma));
    // Pass k turns (k-1)-step returns into k-step ones, earliest row first, so that the next row
    // still has those of the previous pass. Pass 0 is the value itself.
    for pass in 0..n.min(n_steps) {
        for step in 0..n_steps {
            let last = step + 1 == n_steps;
            for env in 0..n_envs {
                let at = step * n_envs + env;
                let next = match (last, pass) {
                    (true, _) => input.last_values[env],
                    (false, 0) => input.values[at + n_envs],
                    (false, _) => returns[at + n_envs],
                };
                returns[at] = input.rewards[at] + gamma * input.successor(at, next);
            }
        }
    }
    Ok(())
}
