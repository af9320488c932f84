//! Time-major layout, that of rollouts.

use super::{Discount, Estimates, Factors, Flag, Float, TimeMajor, add};
use crate::error::Result;
use crate::rollout::{columns, successor};
use crate::threads::{self, Meter};

/// Elements per pass over consecutive rows; a tile's inputs and outputs fit the first-level cache.
const TILE: usize = 512;

/// Largest number of envs per block of a thread's work: memory is read ahead better in longer rows.
const BLOCK: usize = 512;

/// Below this number of envs, several passes go over a tile of rows each.
const FEW: usize = 64;

static COST: Meter = Meter::new();

/// Estimates advantages and returns of a time-major rollout of `input.last_values.len()` envs.
///
/// # Errors
/// [`KernelError::Shape`](crate::KernelError::Shape) if a length does not fit.
pub fn gae_time_major<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    discount: Discount,
    output: &mut Estimates<'_, F>,
) -> Result<()> {
    let n_steps = input.check()?;
    let len = input.rewards.len();
    output.check(len)?;

    let n_envs = input.last_values.len();
    let factors = discount.factors();
    if n_envs < FEW {
        COST.timed(len, || trace_rows(input, n_steps, factors, output));
        return Ok(());
    }
    let helpers = COST.helpers(len);
    // An env's results do not depend on the width of its block.
    let width = n_envs.div_ceil(helpers + 1).clamp(FEW, BLOCK);
    let advantages = columns(output.advantages, n_envs, width).into_iter();
    let returns = columns(output.returns, n_envs, width).into_iter();
    let blocks = advantages.zip(returns).enumerate();
    let each = |(block, (advantages, returns))| {
        trace_columns(input, block * width, factors, advantages, returns);
    };
    match helpers {
        0 => COST.timed(len, || blocks.for_each(each)),
        _ => threads::for_each(blocks.collect(), helpers, each),
    }
    Ok(())
}

/// [`trace_rows`] for the block of envs from `first` on, row by row.
fn trace_columns<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    first: usize,
    factors: Factors<F>,
    advantages: Vec<&mut [F]>,
    returns: Vec<&mut [F]>,
) {
    let n_envs = input.last_values.len();
    let mut following = [F::default(); BLOCK];
    let rows = advantages.into_iter().zip(returns).enumerate().rev();
    for (step, (advantages, returns)) in rows {
        let n = advantages.len();
        let at = step * n_envs + first..step * n_envs + first + n;
        let next_values = input.values.get(at.start + n_envs..at.end + n_envs);
        let next_values = next_values.unwrap_or(&input.last_values[first..first + n]);
        let row = input.elements(at, next_values);
        estimate_row(row, factors, &mut following[..n], advantages, returns);
    }
}

/// Estimates a row in one pass; `following` holds the next row's advantages and is overwritten with
/// this row's.
///
/// A separate function, like [`trace`], so that the compiler knows that its outputs alias nothing
/// else.
#[inline(never)]
fn estimate_row<F: Float, D: Flag>(
    row: TimeMajor<'_, F, D>,
    factors: Factors<F>,
    following: &mut [F],
    advantages: &mut [F],
    returns: &mut [F],
) {
    let values = row.values.iter().zip(row.last_values).zip(row.final_values);
    let flags = row.terminated.iter().zip(row.truncated);
    let results = following.iter_mut().zip(advantages).zip(returns);
    for (((values, &reward), (terminated, truncated)), ((following, advantage), estimate)) in
        values.zip(row.rewards).zip(flags).zip(results)
    {
        let ((&value, &next), &final_value) = values;
        let (terminated, truncated) = (terminated.is_set(), truncated.is_set());
        let next = successor(terminated, truncated, final_value, next);
        let ends = terminated | truncated;
        let trace = F::select(ends, F::default(), factors.trace * *following);
        *following = factors.delta(reward, next, value) + trace;
        *advantage = *following;
        *estimate = *following + value;
    }
}

/// Traces all envs, one tile of consecutive rows after the other; for few envs.
fn trace_rows<F: Float, D: Flag>(
    input: &TimeMajor<'_, F, D>,
    n_steps: usize,
    factors: Factors<F>,
    output: &mut Estimates<'_, F>,
) {
    let (len, n_envs) = (input.rewards.len(), input.last_values.len());
    let tile = (TILE / n_envs.max(1)).max(1);
    let mut next_advantages = vec![F::default(); n_envs];
    let mut ends = vec![false; tile.min(n_steps) * n_envs];
    let mut end = n_steps;
    while end > 0 {
        let start = end.saturating_sub(tile);
        let at = start * n_envs..end * n_envs;
        let advantages = &mut output.advantages[at.clone()];
        let ends = &mut ends[..advantages.len()];
        // An element's next value lies one row on in flat memory, so whole vectors are computed for
        // any number of envs. Only the last row's next values lie elsewhere.
        let last_row = len - n_envs;
        let inner = at.start..at.end.min(last_row);
        let (deltas, last_deltas) = advantages.split_at_mut(inner.len());
        let (inner_ends, last_ends) = ends.split_at_mut(inner.len());
        let next_values = &input.values[inner.start + n_envs..inner.end + n_envs];
        write_deltas(input.elements(inner, next_values), factors, inner_ends, deltas);
        if at.end == len {
            let row = input.elements(last_row..len, input.last_values);
            write_deltas(row, factors, last_ends, last_deltas);
        }
        trace(factors, ends, &mut next_advantages, advantages);
        add(advantages, &input.values[at.clone()], &mut output.returns[at]);
        end = start;
    }
}

/// Writes `δ_t` and the ends of episodes; `steps.last_values` holds the value after each element.
///
/// A separate function, like [`trace`], so that the compiler knows that its outputs alias nothing
/// else.
#[inline(never)]
fn write_deltas<F: Float, D: Flag>(
    steps: TimeMajor<'_, F, D>,
    factors: Factors<F>,
    ends: &mut [bool],
    deltas: &mut [F],
) {
    let values = steps.values.iter().zip(steps.last_values).zip(steps.final_values);
    let flags = steps.terminated.iter().zip(steps.truncated);
    let results = deltas.iter_mut().zip(ends);
    for ((((&value, &next), &final_value), &reward), ((terminated, truncated), (delta, end))) in
        values.zip(steps.rewards).zip(flags.zip(results))
    {
        let (terminated, truncated) = (terminated.is_set(), truncated.is_set());
        let next = successor(terminated, truncated, final_value, next);
        *delta = factors.delta(reward, next, value);
        *end = terminated | truncated;
    }
}

/// Turns the errors of consecutive rows into advantages, last row first; `next_advantages` holds
/// the next row's and is overwritten with the first row's.
#[inline(never)]
fn trace<F: Float>(
    factors: Factors<F>,
    ends: &[bool],
    next_advantages: &mut [F],
    advantages: &mut [F],
) {
    match next_advantages.len() {
        1 => return trace_row::<F, 1>(factors, ends, next_advantages, advantages),
        2 => return trace_row::<F, 2>(factors, ends, next_advantages, advantages),
        4 => return trace_row::<F, 4>(factors, ends, next_advantages, advantages),
        8 => return trace_row::<F, 8>(factors, ends, next_advantages, advantages),
        16 => return trace_row::<F, 16>(factors, ends, next_advantages, advantages),
        _ => {}
    }
    let n_envs = next_advantages.len();
    let rows = advantages.chunks_exact_mut(n_envs).zip(ends.chunks_exact(n_envs));
    for (row, ends) in rows.rev() {
        for ((advantage, &end), next) in row.iter_mut().zip(ends).zip(next_advantages.iter_mut()) {
            let trace = F::select(end, F::default(), factors.trace * *next);
            *advantage = *advantage + trace;
            *next = *advantage;
        }
    }
}

/// [`trace`] for `N` envs, few enough to keep the next row in registers.
fn trace_row<F: Float, const N: usize>(
    factors: Factors<F>,
    ends: &[bool],
    next_advantages: &mut [F],
    advantages: &mut [F],
) {
    let mut following = [F::default(); N];
    following.copy_from_slice(next_advantages);
    let rows = advantages.as_chunks_mut::<N>().0.iter_mut().zip(ends.as_chunks::<N>().0);
    for (row, ends) in rows.rev() {
        for env in 0..N {
            row[env] = factors.advantage(row[env], ends[env], following[env]);
            following[env] = row[env];
        }
    }
    next_advantages.copy_from_slice(&following);
}
