//! Env-major layout, that of trajectories.

use std::array;

use super::{Discount, Estimates, Factors, Flag, Float, add};
use crate::error::{KernelError, Result, check_len};
use crate::threads::{self, Meter};

/// Trajectories of equal length, one env after the other: element `(env, t)` is at `env * n_steps +
/// t`. A single trajectory has one env.
#[derive(Debug, Clone, Copy)]
pub struct EnvMajor<'a, F, D> {
    /// Rewards, `n_envs * n_steps`.
    pub rewards: &'a [F],
    /// `V(s_t)`, `n_envs * n_steps`.
    pub values: &'a [F],
    /// Whether the episode ended after step t, `n_envs * n_steps`; every end counts as terminal.
    pub dones: &'a [D],
    /// V of the observation after the last step, `n_envs`.
    pub last_values: &'a [F],
}

/// Envs whose traces are interleaved: a single trace waits for its own multiply and add.
const LANES: usize = 8;

/// Steps per pass over `LANES` envs; a tile's inputs and outputs fit the first-level cache.
const TILE: usize = 128;

/// Envs per block of a thread's work.
const BLOCK: usize = 64;

static COST: Meter = Meter::new();

/// Estimates advantages and returns of env-major trajectories, each `n_steps` long.
///
/// # Errors
/// [`KernelError::Shape`] if a length does not fit.
pub fn gae_env_major<F: Float, D: Flag>(
    input: &EnvMajor<'_, F, D>,
    n_steps: usize,
    discount: Discount,
    output: &mut Estimates<'_, F>,
) -> Result<()> {
    let Some(len) = input.last_values.len().checked_mul(n_steps) else {
        return Err(KernelError::OutOfMemory { name: "n_steps", requested: n_steps });
    };
    check_len("rewards", input.rewards.len(), "len(last_values) * n_steps", len)?;
    check_len("values", input.values.len(), "rewards", len)?;
    check_len("dones", input.dones.len(), "rewards", len)?;
    output.check(len)?;

    let factors = discount.factors();
    let n_envs = input.last_values.len();
    let helpers = if n_envs > BLOCK && len > 0 { COST.helpers(len) } else { 0 };
    if helpers == 0 {
        COST.timed(len, || trace_envs(input, n_steps, factors, output));
        return Ok(());
    }
    let size = BLOCK * n_steps;
    let advantages = output.advantages.chunks_mut(size);
    let outputs = advantages.zip(output.returns.chunks_mut(size));
    let inputs = input.rewards.chunks(size).zip(input.values.chunks(size));
    let ends = input.dones.chunks(size).zip(input.last_values.chunks(BLOCK));
    threads::for_each(inputs.zip(ends).zip(outputs).collect(), helpers, |block| {
        let (((rewards, values), (dones, last_values)), (advantages, returns)) = block;
        let input = EnvMajor { rewards, values, dones, last_values };
        trace_envs(&input, n_steps, factors, &mut Estimates { advantages, returns });
    });
    Ok(())
}

/// Traces all envs, a few side by side.
fn trace_envs<F: Float, D: Flag>(
    input: &EnvMajor<'_, F, D>,
    n_steps: usize,
    factors: Factors<F>,
    output: &mut Estimates<'_, F>,
) {
    let mut first = 0;
    while first < input.last_values.len() {
        let left = input.last_values.len() - first;
        first += match left {
            LANES.. => trace_lanes::<F, D, LANES>(input, n_steps, first, factors, output),
            4.. => trace_lanes::<F, D, 4>(input, n_steps, first, factors, output),
            2.. => trace_lanes::<F, D, 2>(input, n_steps, first, factors, output),
            _ => trace_lanes::<F, D, 1>(input, n_steps, first, factors, output),
        };
    }
}

/// Traces the `N` envs from `first` on, tile by tile from the end, and returns `N`.
fn trace_lanes<F: Float, D: Flag, const N: usize>(
    input: &EnvMajor<'_, F, D>,
    n_steps: usize,
    first: usize,
    factors: Factors<F>,
    output: &mut Estimates<'_, F>,
) -> usize {
    let mut next_values: [F; N] = array::from_fn(|lane| input.last_values[first + lane]);
    let mut next_advantages = [F::default(); N];
    let mut advantages = [[F::default(); TILE]; N];
    let mut ends = [[false; TILE]; N];
    let mut end = n_steps;
    while end > 0 {
        let start = end.saturating_sub(TILE);
        let tile = end - start;
        let at: [_; N] = array::from_fn(|lane| {
            let offset = (first + lane) * n_steps;
            offset + start..offset + end
        });
        // The two outer passes have no dependence between steps and run on whole vectors.
        for lane in 0..N {
            let at = at[lane].clone();
            let values = &input.values[at.clone()];
            for (end, done) in ends[lane].iter_mut().zip(&input.dones[at.clone()]) {
                *end = done.is_set();
            }
            let deltas = &mut advantages[lane][..tile];
            write_deltas(
                factors,
                &input.rewards[at],
                values,
                &ends[lane][..tile],
                next_values[lane],
                deltas,
            );
            next_values[lane] = values[0];
        }
        for step in (0..tile).rev() {
            for lane in 0..N {
                let delta = advantages[lane][step];
                let advantage = factors.advantage(delta, ends[lane][step], next_advantages[lane]);
                advantages[lane][step] = advantage;
                next_advantages[lane] = advantage;
            }
        }
        for (at, advantages) in at.into_iter().zip(&advantages) {
            output.advantages[at.clone()].copy_from_slice(&advantages[..tile]);
            add(&advantages[..tile], &input.values[at.clone()], &mut output.returns[at]);
        }
        end = start;
    }
    N
}

/// Writes `δ_t` of consecutive steps; `next_value` follows the last one. No slice is empty.
#[inline(never)]
fn write_deltas<F: Float>(
    factors: Factors<F>,
    rewards: &[F],
    values: &[F],
    ends: &[bool],
    next_value: F,
    deltas: &mut [F],
) {
    let next_values = values[1..].iter().copied();
    let steps = rewards.iter().zip(values).zip(ends);
    for (delta, (((&reward, &value), &end), next)) in
        deltas.iter_mut().zip(steps.zip(next_values.clone()))
    {
        *delta = factors.delta(reward, F::select(end, F::default(), next), value);
    }
    let last = values.len() - 1;
    let next = if ends[last] { F::default() } else { next_value };
    deltas[last] = factors.delta(rewards[last], next, values[last]);
}
