//! Transitions that are pushed into or sampled from a buffer.

use std::ops::Range;

use super::layout::{Field, Layout};
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
    /// The observations that the steps led to, `n * obs.len`; `None` if unknown.
    pub next_obs: Option<Values<'a>>,
}

impl<'a> Transitions<'a> {
    /// The transitions of some rows.
    pub(super) fn part(&self, rows: Range<usize>, layout: &Layout) -> Self {
        let values = |values: Values<'a>, field: Field| {
            values.part(rows.start * field.len..rows.end * field.len)
        };
        Self {
            obs: values(self.obs, layout.obs),
            actions: values(self.actions, layout.action),
            rewards: &self.rewards[rows.clone()],
            terminated: &self.terminated[rows.clone()],
            truncated: &self.truncated[rows.clone()],
            next_obs: self.next_obs.map(|next_obs| values(next_obs, layout.obs)),
        }
    }
}

/// Output of `n` sampled transitions, each field in rows.
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
    /// Discounts of the next observations' values, `n`: γ^k after k steps, 0 after a termination.
    pub discounts: Option<&'a mut [f32]>,
}

impl<'a> Batch<'a> {
    /// The rows in blocks of `n`; the last block may be smaller.
    pub(super) fn blocks(&mut self, n: usize, layout: &Layout) -> Vec<Batch<'_>> {
        let mut blocks = Vec::with_capacity(self.rewards.len().div_ceil(n));
        let mut rest = self.reborrow();
        while rest.rewards.len() > n {
            blocks.push(rest.split_off(n, layout));
        }
        blocks.push(rest);
        blocks
    }

    fn reborrow(&mut self) -> Batch<'_> {
        Batch {
            obs: self.obs.reborrow(),
            next_obs: self.next_obs.as_mut().map(ValuesMut::reborrow),
            actions: self.actions.reborrow(),
            rewards: self.rewards,
            terminated: self.terminated,
            truncated: self.truncated,
            discounts: self.discounts.as_deref_mut(),
        }
    }

    /// Splits off the first `n` rows.
    fn split_off(&mut self, n: usize, layout: &Layout) -> Self {
        let obs_size = n * layout.obs.len;
        Batch {
            obs: self.obs.split_off(obs_size),
            next_obs: self.next_obs.as_mut().map(|values| values.split_off(obs_size)),
            actions: self.actions.split_off(n * layout.action.len),
            rewards: self.rewards.split_off_mut(..n).unwrap_or_default(),
            terminated: self.terminated.split_off_mut(..n).unwrap_or_default(),
            truncated: self.truncated.split_off_mut(..n).unwrap_or_default(),
            discounts: self.discounts.as_mut().and_then(|discounts| discounts.split_off_mut(..n)),
        }
    }
}

/// Output of sequences of `seq_len` steps, each field in rows.
#[derive(Debug)]
pub struct Sequences<'a> {
    /// Single-step transitions, `n * seq_len`; zeros for missing steps.
    pub batch: Batch<'a>,
    /// Whether each step is known to be the first of its episode, `n * seq_len`.
    pub is_first: &'a mut [bool],
    /// False for missing steps, `n * seq_len`.
    pub mask: &'a mut [bool],
}
