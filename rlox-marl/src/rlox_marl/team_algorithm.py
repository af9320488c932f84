"""Base of the algorithms of several agents: their envs, and acting."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from rlox.algorithm import Algorithm
from rlox.config.model import UNSET
from rlox.deployment import PolicyData, TeamData
from rlox.envs import fixed_env_count, is_team, make_team_env
from rlox.errors import ConfigError
from rlox.nn import torch_threads
from rlox.protocols import MultiAgentObs, MultiAgentVecEnv

__all__ = ["TeamAlgorithm"]


class TeamAlgorithm(Algorithm):
    """An algorithm of several agents."""

    actor: Any
    """What acts: a :class:`rlox_marl.acting.TeamActor`, or what has its methods."""

    def _has_team(self) -> bool:
        """Return whether the env is of several agents.

        Raises:
            ConfigError: there is no env.
        """
        cfg, source = self.config, self.env_source
        if source is None:
            raise ConfigError("there is no env; pass its id or a callable as env_id, or env_fn=")
        return is_team(source, backend=cfg.env_backend, env_kwargs=cfg.env_kwargs or None)

    def make_envs(self, **options: Any) -> MultiAgentVecEnv:
        """Return the envs, which :meth:`close` frees if they are made here.

        Args:
            options: of :func:`rlox.envs.make_team_env`.

        Raises:
            ConfigError: ``n_agents`` is another number than the env's.
            EnvError: the envs cannot be built.
        """
        cfg, source = self.config, self.env_source
        env = make_team_env(
            source,
            n_envs=cfg.n_envs,
            backend=cfg.env_backend,
            env_kwargs=cfg.env_kwargs or None,
            **options,
        )
        if fixed_env_count(source) is None:
            self.resources.callback(env.close)
        found = len(env.possible_agents)
        if cfg.n_agents not in (None, found):
            raise ConfigError(
                f"n_agents is {cfg.n_agents}, but the env has {found} agents "
                f"({', '.join(env.possible_agents)}); leave n_agents out, or change the env"
            )
        self.config = cfg.replace(n_agents=found)
        return env

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
            state: what one agent remembers: what this method returned with the last actions,
                ``None`` at the beginning. If it is left out, each observation is an episode's
                first.
            episode_start: bool or (B,) bools, whether an episode begins with the observation.
            action_masks: see :func:`rlox.networks.predict.predict`.

        Returns:
            The action or actions; if ``state`` is given, a pair of them and the next state.

        Raises:
            ValueError: there is no agent of that number, or ``state`` is of several agents.
        """
        memory = {"state": state, "episode_start": episode_start, "action_masks": action_masks}
        with torch_threads(self.config.torch_threads):
            return self.actor.predict(obs, deterministic, agent_idx, **memory)

    def predict_team(
        self,
        obs: MultiAgentObs,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.NDArray[Any] | None = None,
    ) -> Any:
        """Return the actions of all agents, by group; see :class:`rlox.envs.playing.TeamPlayer`.

        Args:
            obs: of N envs.
            deterministic: as in :meth:`predict`.
            state: what the agents remember, as in :meth:`predict`.
            episode_start: (N,) whether an env's episode begins; ``None`` if none does.

        Returns:
            The actions; if ``state`` is given, a pair of them and the next state.

        Raises:
            ValueError: the observations are not of the team that was trained, or ``state`` or
                ``episode_start`` is of other envs.
        """
        with torch_threads(self.config.torch_threads):
            return self.actor.predict_team(
                obs, deterministic, state=state, episode_start=episode_start
            )

    def policy_data(self) -> PolicyData | TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`."""
        data: PolicyData | TeamData = self.actor.policy_data(self.name)
        return data
