//! Transitions on their way into a buffer and out of it.

use super::values::{Values, ValuesMut};

/// `n` transitions to store, each field in rows.
#[derive(Debug, Clone, Copy)]
pub struct Transitions<'a> {
    /// The observations, `n * obs.len`.
    pub obs: Values<'a>,
    /// The actions, `n * action.len`.
    pub actions: Values<'a>,
    /// The rewards, `n`.
    pub rewards: &'a [f32],
    /// Whether the task ended, `n`.
    pub terminated: &'a [bool],
    /// Whether the episode was cut, `n`.
    pub truncated: &'a [bool],
    /// The observations that the steps led to, `n * obs.len`; `None` where they are not known.
    pub next_obs: Option<Values<'a>>,
}

/// Where `n` sampled transitions are written, each field in rows.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The observations, `n * obs.len`.
    pub obs: ValuesMut<'a>,
    /// The observations that the steps led to, `n * obs.len`.
    pub next_obs: Option<ValuesMut<'a>>,
    /// The actions, `n * action.len`.
    pub actions: ValuesMut<'a>,
    /// The rewards, `n`.
    pub rewards: &'a mut [f32],
    /// Whether the task ended, `n`.
    pub terminated: &'a mut [bool],
    /// Whether the episode was cut, `n`.
    pub truncated: &'a mut [bool],
    /// The factors of the values of the next observations, `n`: γ^k after k steps, and 0 after a
    /// termination.
    pub discounts: Option<&'a mut [f32]>,
}
