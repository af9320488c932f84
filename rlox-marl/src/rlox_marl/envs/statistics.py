"""Episode statistics of teams: an episode ends with its env."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.envs.running import EpisodeStatistics
from rlox.protocols import AgentGroup

__all__ = ["TeamStatistics"]


class TeamStatistics:
    """Returns and lengths of the last finished episodes of N envs of several agents.

    An agent's return is all that it is paid in an episode, also while it waits for its turn; that
    of an agent that never joins is 0. A team's return is the mean over its agents.

    Args:
        groups: the env's agents.
        n_envs: number of envs N.
        window: number of episodes that the means cover.
    """

    def __init__(self, groups: Sequence[AgentGroup], n_envs: int, window: int = 100) -> None:
        self._groups = tuple(groups)
        self._team = EpisodeStatistics(n_envs, window)
        self._agents = {
            agent: EpisodeStatistics(n_envs, window) for group in groups for agent in group.agents
        }

    def add(
        self, rewards: Mapping[str, npt.NDArray[Any]], episode_ended: npt.NDArray[np.bool_]
    ) -> None:
        """Add T vector steps.

        Args:
            rewards: by group, (T, N, A).
            episode_ended: (T, N) whether an env's episode ended with the step.
        """
        for group in self._groups:
            for column, agent in enumerate(group.agents):
                self._agents[agent].add(rewards[group.name][:, :, column], episode_ended)
        everybody = [np.asarray(rewards[group.name], np.float64) for group in self._groups]
        self._team.add(np.concatenate(everybody, axis=2).mean(axis=2), episode_ended)

    def forget(self) -> None:
        """Drop the running episodes: all envs have been reset."""
        for one in (self._team, *self._agents.values()):
            one.forget(slice(None))

    @property
    def finished(self) -> int:
        """Number of episodes finished so far, of envs."""
        return self._team.finished

    @property
    def mean_return(self) -> float:
        """Mean over the window's episodes and over agents; NaN before the first."""
        return self._team.mean_return

    @property
    def mean_length(self) -> float:
        """Mean length of the window's episodes in env steps; NaN before the first."""
        return self._team.mean_length

    @property
    def agent_returns(self) -> dict[str, float]:
        """Mean return of each agent over the window's episodes; NaN before the first."""
        return {agent: one.mean_return for agent, one in self._agents.items()}

    def metrics(self) -> dict[str, Any]:
        """Return what an iteration reports of them, and of each agent ``return/<agent>``."""
        returns = {f"return/{agent}": one for agent, one in self.agent_returns.items()}
        return {**self._team.metrics(), "agents": returns}

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the windows."""
        agents = {agent: one.state_dict() for agent, one in self._agents.items()}
        return {"team": self._team.state_dict(), "agents": agents}

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is that of the statistics of as many envs and of the same agents."""
        return self._team.fits(state["team"]) and set(state["agents"]) == set(self._agents)

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the windows, and the running sums when the envs go on where they were."""
        self._team.load_state_dict(state["team"], keep_running=keep_running)
        for agent, one in self._agents.items():
            one.load_state_dict(state["agents"][agent], keep_running=keep_running)
