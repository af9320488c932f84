"""Observations and steps of teams as named arrays, for processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.protocols import AgentGroup

__all__ = ["pack", "unpack"]

Arrays = dict[str, npt.NDArray[Any]]

BY_ENV = ("state", "final_state", "episode_ended")


def pack(shown: Mapping[str, Any], groups: Sequence[AgentGroup]) -> Arrays:
    """Return the arrays of what envs show, by field, number of the group, and leaf.

    Args:
        shown: a :class:`rlox.protocols.MultiAgentObs` or a
            :class:`rlox.protocols.MultiAgentStep`, or any of their fields.
        groups: of the envs.
    """
    arrays: Arrays = {}
    for field, value in shown.items():
        if field in BY_ENV:
            if value is not None:
                arrays[field] = value
            continue
        for number, group in enumerate(groups):
            if group.name in value:
                leaves = value[group.name]
                named = leaves if isinstance(leaves, dict) else {"": leaves}
                arrays |= {f"{field}:{number}:{leaf}": array for leaf, array in named.items()}
    return arrays


def unpack(answers: Sequence[Arrays], groups: Sequence[AgentGroup]) -> dict[str, Any]:
    """Return what all envs show, from the arrays of some envs each.

    Args:
        answers: of :func:`pack`, in the order of the envs.
        groups: of the envs.
    """
    shown: dict[str, Any] = {"masks": {}, "state": None}
    for name in answers[0]:
        array = np.concatenate([answer[name] for answer in answers])
        field, _, rest = name.partition(":")
        if not rest:
            shown[field] = array
            continue
        number, _, leaf = rest.partition(":")
        by_group = shown.setdefault(field, {})
        group = groups[int(number)].name
        if leaf:
            by_group.setdefault(group, {})[leaf] = array
        else:
            by_group[group] = array
    if "episode_ended" in shown:
        shown.setdefault("final_state", None)
    return shown
