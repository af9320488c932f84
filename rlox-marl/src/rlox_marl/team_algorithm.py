"""Base of the algorithms of several agents: predictions, checkpoints and exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt
from rlox.algorithm import Algorithm
from rlox.config.model import UNSET
from rlox.deployment import PolicyData, TeamData
from rlox.protocols import MultiAgentObs

__all__ = ["TeamAlgorithm", "TeamLearning"]


class TeamLearning(Protocol):
    """What :class:`TeamAlgorithm` asks of an algorithm's learning."""

    def predict(self, obs: Any, deterministic: bool, agent_idx: Any, **memory: Any) -> Any:
        """Return an action of one agent, or actions for a batch."""

    def predict_team(self, obs: MultiAgentObs, deterministic: bool, **memory: Any) -> Any:
        """Return the actions of all agents."""

    def policy_data(self) -> PolicyData | TeamData:
        """Return what acts as data."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that determines how training goes on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""


class TeamAlgorithm(Algorithm):
    """An algorithm of several agents, which acts and is saved as its ``learning`` is."""

    learning: TeamLearning

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
        """Return an action of one agent, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape), as the env gives it to the agent.
            deterministic: the mode of the action distribution or the action of the highest value,
                rather than a sample or, with probability ε, a uniform action.
            agent_idx: which of the env's agents; or (B,) of them.
            state: of one agent's memory; see :meth:`rlox_marl.acting.TeamActor.predict`, and of an
                env of one agent ``ActorCritic.predict``.
            episode_start: of one agent's memory; see there.
            action_masks: see there.
        """
        memory = {"state": state, "episode_start": episode_start, "action_masks": action_masks}
        return self.learning.predict(obs, deterministic, agent_idx, **memory)

    def predict_team(
        self,
        obs: MultiAgentObs,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.NDArray[Any] | None = None,
    ) -> Any:
        """Return the actions of all agents of N envs; see ``TeamActor.predict_team``."""
        return self.learning.predict_team(
            obs, deterministic, state=state, episode_start=episode_start
        )

    def policy_data(self) -> PolicyData | TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`."""
        return self.learning.policy_data()

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, envs, memories, and the buffer if there is one."""
        return self.learning.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.learning.load_state_dict(state)
