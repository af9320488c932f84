"""Checks of observations and memories that users pass for whole teams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from rlox.protocols import AgentGroup
from rlox.spaces import ObservationRows, map_leaves

__all__ = ["read_state", "require_shown"]

REMEMBERED = "must be None or what predict_team returned with the last actions"


def require_shown(
    obs: Any, groups: Sequence[AgentGroup], state_space: gymnasium.Space[Any] | None
) -> None:
    """Refuse what no N envs of these groups show.

    Args:
        obs: a :class:`rlox.protocols.MultiAgentObs`, if it is right.
        groups: of the env that was trained on.
        state_space: of the state that critics or the mixing see; ``None`` if they see none.

    Raises:
        ValueError: a field, a group or an agent is missing, or has another shape; the text names
            them.
    """
    fields = ("obs", "active", "masks", "state")
    if not isinstance(obs, Mapping) or not set(fields) <= obs.keys():
        got = list(obs) if isinstance(obs, Mapping) else type(obs).__name__
        raise ValueError(
            f"obs must be what envs show, a dict with {', '.join(fields)}, got {got}; pass what "
            "reset_all or step_all returned"
        )
    for field in ("obs", "active"):
        given = list(obs[field]) if isinstance(obs[field], Mapping) else type(obs[field]).__name__
        if given != [group.name for group in groups]:
            expected = (f"'{group.name}' of {', '.join(group.agents)}" for group in groups)
            raise ValueError(
                f"obs['{field}'] must be a dict by group, {' and '.join(expected)}, got {given}"
            )
    n_envs = len(np.atleast_1d(obs["active"][groups[0].name]))
    for group in groups:
        rows = (n_envs, len(group.agents))
        _require_shape("active", group, obs["active"][group.name], rows)
        expected = ObservationRows(group.observation_space).blank(*rows)
        found = obs["obs"][group.name]
        if isinstance(expected, dict) and not (
            isinstance(found, Mapping) and found.keys() == expected.keys()
        ):
            got = list(found) if isinstance(found, Mapping) else type(found).__name__
            raise ValueError(
                f"obs['obs'] of group '{group.name}' must have the leaves {list(expected)}, got "
                f"{got}"
            )
        map_leaves(
            lambda leaf, one, group=group: _require_shape("obs", group, one, leaf.shape),
            expected,
            found,
        )
    if state_space is not None and np.shape(obs["state"]) != (n_envs, *(state_space.shape or ())):
        shape = None if obs["state"] is None else np.shape(obs["state"])
        raise ValueError(
            f"obs['state'] must have shape {(n_envs, *(state_space.shape or ()))} of the space "
            f"{state_space}, got {shape}"
        )


def _require_shape(field: str, group: AgentGroup, found: Any, shape: tuple[int, ...]) -> None:
    if np.shape(found) != shape:
        raise ValueError(
            f"obs['{field}'] of group '{group.name}' must have shape {shape} for the agents "
            f"{', '.join(group.agents)}, got {np.shape(found)}"
        )


def read_state(
    state: Any,
    episode_start: Any,
    n_envs: int,
    memories: Mapping[str, tuple[int, int]],
    frames: bool,
) -> Mapping[str, Any]:
    """Return what a user passed as the state of all agents of N envs: nothing for ``None``.

    Args:
        state: what ``predict_team`` returned, if it is right.
        episode_start: (N,), if it is right, or ``None``.
        n_envs: number of envs N.
        memories: of each policy that has one, the number of its agents and the memory's size.
        frames: whether frames are stacked.

    Raises:
        ValueError: it is no state of these policies in N envs; the text names the policy.
    """
    if episode_start is not None and np.shape(episode_start) != (n_envs,):
        raise ValueError(
            f"episode_start must have shape ({n_envs},), got {np.shape(episode_start)}"
        )
    if state is None:
        return {}
    names = (["frames"] if frames else []) + (["memory"] if memories else [])
    if not isinstance(state, Mapping) or list(state) != names:
        got = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state {REMEMBERED}, a dict of {names}, got {got}")
    for name, (n_agents, size) in memories.items():
        shape = n_envs * n_agents, size
        found: Any = state["memory"].get(name) if isinstance(state["memory"], Mapping) else None
        if np.shape(found) != shape:
            raise ValueError(
                f"state {REMEMBERED}: the memory of policy '{name}' must have shape {shape}, got "
                f"{None if found is None else tuple(np.shape(found))}"
            )
    return state
