"""Batches of transitions, and of sequences of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

from rlox.spaces.rows import map_leaves


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions from a replay buffer: tensors, or arrays for a learner that takes them.

    See :attr:`rlox.learners.transitions.ChosenReplayLearner.takes_arrays`.
    """

    obs: Any
    """(B, *shape) float32, uint8 for images or int64 for integers; for a nested space a dict of
    such tensors by leaf name."""
    actions: Tensor
    """(B, 1) int64, or (B, act_dim) float32 in [-1, 1]."""
    rewards: Tensor
    """(B,) rewards; after k steps Σ γⁱ r_i."""
    next_obs: Any
    """Observations after the last of the k steps, like ``obs``; never another episode's."""
    discounts: Tensor
    """(B,) factors of the value of ``next_obs``: γᵏ, and 0 if the task ended."""
    weights: Tensor
    """(B,) weights of the transitions' losses; or (), 1, if all count equally."""
    returns_to_go: Tensor | None = None
    """(B,) discounted returns of the recorded episodes from ``obs`` on; ``None`` if
    the algorithm does not ask for them."""
    indices: npt.NDArray[Any] | None = None
    """(B,) indices of the transitions in the buffer, for new priorities; ``None`` if unknown."""


BatchT = TypeVar("BatchT", bound=Any)

ROWS = ("obs", "actions", "log_probs", "values", "rewards", "terminated", "truncated", "advantages",
        "returns", "action_masks", "episode_starts")  # fmt: skip


def cut_into_sequences(batch: BatchT) -> BatchT:
    """Return the rollout with each part that has its own initial state as a separate env.

    Args:
        batch: a :class:`~rlox.batches.rollout.RolloutBatch` of T steps of N envs, with initial
            states of K*N parts.

    Returns:
        The batch if K is 1, else one of T / K steps of K*N envs.
    """
    n_envs, state = batch.n_envs, batch.initial_state
    if len(state) == n_envs:
        return batch
    parts = len(state) // n_envs

    def cut(leaf: Tensor) -> Tensor:
        return leaf.view(parts, -1, n_envs, *leaf.shape[1:]).transpose(0, 1).flatten(0, 2)

    fields = {name: getattr(batch, name) for name in ROWS}
    fields = {name: None if x is None else map_leaves(cut, x) for name, x in fields.items()}
    return replace(batch, **fields, n_steps=batch.n_steps // parts, n_envs=len(state))


def split_sequences(batch: Any, order: Tensor, size: int) -> list[Tensor]:
    """Return the sequences of each minibatch; a minibatch of a single row joins another.

    Args:
        batch: a :class:`~rlox.batches.rollout.RolloutBatch`.
        order: (N,) its sequences, in the order of visits.
        size: sequences per minibatch; the last has the remainder.
    """
    parts = list(torch.split(order, size))
    if batch.active is None:
        return parts
    lengths = batch.active.view(batch.n_steps, batch.n_envs).sum(0).cpu()
    enough = [int(lengths[part].sum()) > 1 for part in parts]
    if not any(enough):
        return [order]
    kept = [part for part, is_enough in zip(parts, enough, strict=True) if is_enough]
    short = [part for part, is_enough in zip(parts, enough, strict=True) if not is_enough]
    kept[-1] = torch.cat([kept[-1], *short])
    return kept


def sequence_fields(batch: Any, some: Tensor) -> dict[str, Any]:
    """Return the fields of a minibatch of whole sequences.

    Args:
        batch: a :class:`~rlox.batches.rollout.RolloutBatch` with a memory.
        some: (n,) numbers of its sequences.
    """
    rows = torch.arange(batch.n_steps * batch.n_envs, device=some.device)
    rows = rows.view(batch.n_steps, batch.n_envs)
    chosen = rows[:, some].flatten().to(batch.returns.device)
    learnt, active = chosen, None
    if batch.active is not None:
        active = batch.active[chosen]
        learnt = (batch.active.cumsum(0) - 1)[chosen[active]]
    fields: dict[str, Any] = {
        name: _take(getattr(batch, name), chosen)
        for name in ("obs", "actions", "action_masks", "episode_starts")
    }
    for name in ("log_probs", "values", "advantages", "returns"):
        fields[name] = getattr(batch, name)[learnt]
    state = _take(batch.initial_state, some.to(chosen.device))
    return {**fields, "initial_state": state, "active": active}


def _take(field: Any, rows: Tensor) -> Any:
    return None if field is None else map_leaves(lambda leaf: leaf[rows], field)
