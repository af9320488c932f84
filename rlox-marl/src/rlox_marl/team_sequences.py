"""Sequences of a team's steps, and their rows in a replay buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.spaces import ObservationRows
from torch import Tensor

from rlox_marl.views import PolicyView

__all__ = ["TeamActed", "TeamSequences", "row_fields"]

Array = npt.NDArray[Any]
Fields = dict[str, tuple[tuple[int, ...], Any]]


@dataclass(frozen=True)
class TeamActed:
    """What the policies did in N envs."""

    actions: dict[str, Array]
    """By view, (N, A) actions, counted from 0."""
    env_actions: dict[str, Any]
    """By group, as the env takes them."""
    memory: dict[str, Array]
    """By view, (N, A, size) memories before the step; none without memories."""


@dataclass(frozen=True)
class TeamSequences:
    """Sequences of T steps of B envs; A agents in the order of the views, a view's own in parts."""

    obs: dict[str, dict[str, Tensor]]
    """By view, leaves (T, B, A, *shape)."""
    next_obs: dict[str, dict[str, Tensor]]
    """What the steps led to, in the form of ``obs``: the true final observations at ends."""
    next_masks: dict[str, Tensor]
    """By view that is masked, (T, B, A, actions) bool; all True where an episode ended."""
    memory: dict[str, Tensor]
    """By view, (B, A, size) before the first step; size 0 without memories."""
    starts: Tensor
    """(T, B) bool, whether the observation is the first of its episode."""
    actions: Tensor
    """(T, B, A) int64."""
    rewards: Tensor
    """(T, B, A) float32, each agent's own."""
    active: Tensor
    """(T, B, A) bool, the agents that acted."""
    terminated: Tensor
    """(T, B, A) bool, the agents whose task itself ended."""
    next_active: Tensor
    """(T, B, A) bool, the agents whose values count after the step: those that act next, and at
    the end of an episode those that were truncated."""
    state: Tensor | None
    """(T, B, *shape) of the teams, if it is kept."""
    next_state: Tensor | None
    """(T, B, *shape) that the steps led to."""


def row_fields(
    views: tuple[PolicyView, ...], masked: set[str], memory_size: int, state_space: Any
) -> Fields:
    """Return shape and dtype of the fields of a row: a step of one env.

    Args:
        views: of the policies.
        masked: names of the groups whose actions are masked.
        memory_size: units of each agent's memory; 0 for none.
        state_space: of the team's state; ``None`` keeps none.
    """
    n_agents = sum(len(view.columns) for view in views)
    fields: Fields = {"start": ((), np.bool_)}
    for view in views:
        size = len(view.columns)
        for name, leaf in _leaves(view).items():
            fields[f"obs {view.name} {name}"] = ((size, *leaf.shape[1:]), leaf.dtype)
            fields[f"next {view.name} {name}"] = ((size, *leaf.shape[1:]), leaf.dtype)
        if view.group.name in masked:
            n_actions = int(view.group.action_space.n)  # type: ignore[attr-defined]
            fields[f"masks {view.name}"] = ((size, n_actions), np.bool_)
        if memory_size:
            fields[f"memory {view.name}"] = ((size, memory_size), np.float32)
    fields["actions"] = ((n_agents,), np.int64)
    fields["rewards"] = ((n_agents,), np.float32)
    for name in ("active", "terminated", "next_active"):
        fields[name] = ((n_agents,), np.bool_)
    if state_space is not None:
        state: Any = ObservationRows(state_space).empty(1)
        fields["state"] = fields["next_state"] = (state.shape[1:], state.dtype)
    return fields


def _leaves(view: PolicyView) -> dict[str, Array]:
    """Return a row of each leaf that is kept: all but the agents' numbers, which are known."""
    empty: dict[str, Array] = ObservationRows(view.space).empty(1)
    return {name: leaf for name, leaf in empty.items() if name != "agent"}
