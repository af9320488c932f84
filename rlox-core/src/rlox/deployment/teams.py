"""Policies of teams as data, and actions from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.config.model import UNSET
from rlox.deployment.policy import Compute, LoadedPolicy, PolicyData
from rlox.errors import ExportError
from rlox.protocols import MultiAgentObs
from rlox.spaces import ActionRows, ObservationRows, map_leaves, map_nested, predict_agents


@dataclass(frozen=True)
class TeamData:
    """A team's policies: one for each agent, or shared by agents of equal spaces."""

    algorithm: str
    """Registered name of the algorithm that trained it."""
    policies: Mapping[str, PolicyData]
    """By name. The inputs of their networks are leaves made by the layer ``of_agent``."""
    agents: Mapping[str, tuple[str, int]]
    """By agent, in the env's order: the name of its policy, and its number among the agents that
    share it."""
    groups: Mapping[str, tuple[str, ...]]
    """Agents of each group of equal spaces, in the order of the columns of
    :class:`rlox.protocols.MultiAgentObs`."""
    remembers_rests: bool = False
    """Whether memories advance while an agent rests, as in the training of action values."""

    def of_agent(self, agent: str) -> PolicyData:
        """Return the policy of one agent, which takes the agent's observations.

        Raises:
            ExportError: there is no agent of that name.
        """
        if agent not in self.agents:
            raise ExportError(
                f"there is no agent '{agent}'; the agents are {', '.join(self.agents)}"
            )
        name, number = self.agents[agent]
        shared = self.policies[name]
        layers = [{"layer": "of_agent", "number": number}, shared.network]
        return replace(shared, network={"layer": "chain", "layers": layers})


class LoadedTeam:
    """Trained policies of a team that act without the algorithm that trained them.

    Args:
        data: the policies.
        read: returns a policy's computable ``network``.
    """

    def __init__(self, data: TeamData, read: Callable[[PolicyData], Compute]) -> None:
        self.data = data
        each = {agent: data.of_agent(agent) for agent in data.agents}
        self.agents = {agent: LoadedPolicy(one, read(one)) for agent, one in each.items()}
        """The policy of each agent, in the env's order."""
        if sorted(agent for group in data.groups.values() for agent in group) != sorted(each):
            raise ValueError("its groups are not of its agents")

    def __repr__(self) -> str:
        return f"<LoadedTeam of '{self.data.algorithm}': {', '.join(self.agents)}>"

    def policy_data(self) -> TeamData:
        """Return the policies as data, so that :func:`rlox.export` writes them."""
        return self.data

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        agent_idx: int | npt.ArrayLike = 0,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action of one agent for one observation, or actions for a batch or by agent.

        Args:
            obs: the agent's observation from the env, a batch (B, *shape), or PettingZoo's dict of
                observations by agent; then ``state``, ``action_masks`` and the result are such
                dicts too.
            deterministic: must be true: a policy file holds the most probable actions.
            agent_idx: number of the env's agent, or (B,) numbers for a batch; unused for a dict.
            state: of one agent's memory; see :meth:`LoadedPolicy.predict`.
            episode_start: see there.
            action_masks: see there.

        Raises:
            ExportError: a sampled action is asked for.
            SpaceError: the policy or the actions take no masks.
            ValueError: there is no agent of that number, ``state`` belongs to several agents, or
                an argument has another shape.
        """
        policies = list(self.agents.values())
        actions, after = predict_agents(
            tuple(self.agents),
            lambda number, some, masks, before, starts: policies[number].predict(
                some, deterministic, state=before, episode_start=starts, action_masks=masks
            ),
            obs, agent_idx, action_masks, None if state is UNSET else state, episode_start,
            remembers=state is not UNSET and any(one.remembers for one in policies),
        )  # fmt: skip
        return actions if state is UNSET else (actions, after)

    def predict_team(
        self,
        obs: MultiAgentObs,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.NDArray[np.bool_] | None = None,
    ) -> Any:
        """Return the actions of all agents of N envs, by group, for :func:`rlox.evaluate`.

        Args:
            obs: of N envs.
            deterministic: must be true.
            state: the agents' memory, as returned with the last actions; ``None`` at the
                beginning. If it is left out, all episodes begin.
            episode_start: (N,) whether an env's episode begins; ``None`` if none does.

        Returns:
            The actions; if ``state`` is given, a pair of them and the next state.

        Raises:
            ExportError: sampled actions are asked for.
            ValueError: the groups differ from the training's, or an observation has another
                shape.
        """
        if not deterministic:
            raise ExportError("a policy file holds the most probable actions: deterministic=True")
        shapes = {name: active.shape[1] for name, active in obs["active"].items()}
        if shapes != {name: len(agents) for name, agents in self.data.groups.items()}:
            raise ValueError(
                f"the numbers of agents by group are {shapes}, and the policies are of "
                f"{', '.join(f'{name} ({len(a)})' for name, a in self.data.groups.items())}"
            )
        before = {} if state is UNSET or state is None else state
        if not isinstance(before, Mapping) or not before.keys() <= self.agents.keys():
            raise ValueError(
                "state must be None or what predict_team returned with the last actions, got "
                f"{list(before) if isinstance(before, Mapping) else type(before).__name__}"
            )
        actions, after = {}, {}
        for group, agents in self.data.groups.items():
            rows = []
            for column, agent in enumerate(agents):
                chosen, following = self._act(
                    group, column, agent, obs, before.get(agent), episode_start
                )
                rows.append(chosen)
                if following:
                    after[agent] = following
            stacked = np.stack(rows, axis=1)
            to_env = ActionRows(self.agents[agents[0]].action_space).to_env
            shape = stacked.shape[:2]
            actions[group] = map_nested(
                lambda leaf, shape=shape: leaf.reshape(*shape, *leaf.shape[1:]),
                to_env(stacked.reshape(-1, *stacked.shape[2:])),
            )
        return actions if state is UNSET else (actions, after or None)

    def _act(
        self,
        group: str,
        column: int,
        agent: str,
        obs: MultiAgentObs,
        before: Mapping[str, Any] | None,
        episode_start: npt.NDArray[np.bool_] | None,
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Return rows of N actions of an agent, and its memory after them."""
        policy = self.agents[agent]
        space = policy.observation_space
        found = map_leaves(lambda leaf: leaf[:, column], obs["obs"][group])
        ObservationRows(space).are_single(found)
        masks = obs["masks"][group][:, column] if group in obs["masks"] else None
        acts = obs["active"][group][:, column]
        known = np.zeros(len(acts), np.bool_)
        if before is not None:
            known = before["known"] if episode_start is None else before["known"] & ~episode_start
        rows, after = policy.act(ObservationRows(space).stored(found), masks, before or {}, ~known)
        if not after:
            return rows, {}
        counts = np.ones_like(acts) if self.data.remembers_rests else acts
        if before is not None:
            after = {
                name: map_leaves(lambda new, old: _chosen(counts, new, old), new, before[name])
                for name, new in after.items()
            }
        return rows, {**after, "known": known | counts}


def _chosen(
    rows: npt.NDArray[np.bool_], new: npt.NDArray[Any], old: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the new rows where asked, else the old ones."""
    return np.where(rows.reshape(-1, *(1,) * (new.ndim - 1)), new, old)
