//! The networks of an actor-critic, from the arguments that describe them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlox_learner::ActorCritic;

use crate::errors::raise;
use crate::learner_actions::{ActionForm, parse_head};
use crate::memory::{check_memory, check_networks};

/// What Python passes of the actions: `n_actions`, `choices`, `act_dim` and `scaled`.
type ActionArguments<'a> = (Option<usize>, Option<&'a [usize]>, Option<usize>, bool);

/// What Python passes of a memory: its units, and whether policy and value share it.
type MemoryArguments = Option<(usize, bool)>;

/// Returns the networks and the form of the actions.
pub(crate) fn parse_networks(
    obs_dim: usize,
    hidden: &[usize],
    actions: ActionArguments<'_>,
    (critic_dim, memory): (Option<usize>, MemoryArguments),
    activation: &str,
) -> PyResult<(ActorCritic, ActionForm)> {
    let (n_actions, choices, act_dim, scaled) = actions;
    let (head, form) = parse_head(n_actions, choices, act_dim, scaled)?;
    let seen = memory.map_or_else(|| obs_dim.max(critic_dim.unwrap_or(0)), |(units, _)| units);
    check_networks(seen, hidden, head.width(), 2)?;
    let shape = match (activation, critic_dim, memory) {
        ("tanh", None, None) => ActorCritic::new(obs_dim, hidden, head),
        ("relu", None, None) => ActorCritic::relu(obs_dim, hidden, head),
        ("tanh", Some(critic_dim), None) => ActorCritic::apart([obs_dim, critic_dim], hidden, head),
        ("tanh", None, Some((units, shared))) => {
            check_memory(obs_dim, units)?;
            let with_memory =
                if shared { ActorCritic::with_shared_memory } else { ActorCritic::recurrent };
            with_memory(obs_dim, units, hidden, head)
        }
        ("tanh", Some(_), Some(_)) => {
            let text = "give either critic_dim or memory_size: with a memory both see the same";
            return Err(PyValueError::new_err(text));
        }
        ("relu", ..) => {
            let text = "critic_dim and memory_size need activation='tanh', got 'relu'";
            return Err(PyValueError::new_err(text));
        }
        _ => {
            let text = format!("activation must be 'tanh' or 'relu', got '{activation}'");
            return Err(PyValueError::new_err(text));
        }
    };
    let shape = match choices {
        Some(choices) => shape.and_then(|shape| shape.with_choices(choices)),
        None => shape,
    };
    Ok((shape.map_err(raise)?, form))
}
