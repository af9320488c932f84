"""Policies of teams as data for policy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from rlox.deployment import PolicyData, TeamData
from rlox.spaces import ActionRows

from rlox_marl.preprocessing import TeamPreprocessor
from rlox_marl.views import PolicyView

__all__ = ["team_data"]


def team_data(
    algorithm: str,
    networks: Sequence[tuple[PolicyView, dict[str, Any]]],
    agents: Sequence[str],
    observation_spaces: Mapping[str, gymnasium.Space[Any]],
    preprocessor: TeamPreprocessor | None,
    *,
    remembers_rests: bool,
) -> TeamData:
    """Return the policies of a team as data; see :class:`rlox.deployment.Exportable`.

    Args:
        algorithm: registered name of what trained them.
        networks: views, and the layers from what an actor sees to rows of actions.
        agents: names of all, in the env's order.
        observation_spaces: by group, as the env has them.
        preprocessor: makes of observations what is seen; ``None`` changes nothing.
        remembers_rests: see :class:`rlox.deployment.TeamData`.
    """
    policies: dict[str, PolicyData] = {}
    places: dict[str, tuple[str, int]] = {}
    for view, network in networks:
        group = view.group
        policies[view.name] = PolicyData(
            algorithm=algorithm,
            observation_space=observation_spaces[group.name],
            action_space=group.action_space,
            network=network,
            preprocessor=None if preprocessor is None else preprocessor.of_group(group.name),
            takes_masks=ActionRows(group.action_space).mask_size > 0,
        )
        places |= {agent: (view.name, number) for number, agent in enumerate(view.agents)}
    return TeamData(
        algorithm=algorithm,
        policies=policies,
        agents={agent: places[agent] for agent in agents},
        groups={view.group.name: view.group.agents for view, _ in networks},
        remembers_rests=remembers_rests,
    )
