//! Transitions on their way into a buffer and out of it.

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
    /// The observations that the steps led to, `n * obs.len`; `None` if they are not known.
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

impl<'a> Batch<'a> {
    /// The rows in blocks of `n`, the last of which may have fewer.
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

/// Where sequences of `seq_len` steps are written, each field in rows of them.
#[derive(Debug)]
pub struct Sequences<'a> {
    /// The transitions of one step each, `n * seq_len`; zeros where there are none.
    pub batch: Batch<'a>,
    /// Whether each step is the first of its episode, as far as it is known, `n * seq_len`.
    pub is_first: &'a mut [bool],
    /// Whether there is a step, `n * seq_len`.
    pub mask: &'a mut [bool],
}
