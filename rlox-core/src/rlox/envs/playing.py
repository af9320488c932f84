"""Players: a predictor in N envs, step by step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.envs.running import CheckedSteps
from rlox.errors import EnvError, RloxError
from rlox.protocols import MaskingVecEnv, MultiAgentObs, MultiAgentVecEnv, VecEnv

Paid = npt.NDArray[np.float64]


class Player(Protocol):
    """What acts in N envs."""

    n_envs: int
    agents: tuple[str, ...]
    """Names of the A agents of an env; none of one that has a single agent."""

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs, each with its own seed."""

    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs.

        Returns:
            (N,) rewards of the envs, (N, A) rewards of the agents, (N,) whether an episode ended.

        Raises:
            EnvError: the predictor refuses the first observations, such as for their shape.
        """


class _FirstCall:
    """Calls of a predictor; the first shows whether it takes an env's observations."""

    def __init__(self, observations: object) -> None:
        self._observations = observations
        self._accepted = False

    def call(self, predict: Callable[..., Any], obs: Any, **given: Any) -> Any:
        """Return what ``predict`` returns.

        Raises:
            EnvError: the first call refuses the observations.
        """
        try:
            actions = predict(obs, **given)
        except ValueError as error:
            if self._accepted or isinstance(error, RloxError):
                raise
            raise EnvError(
                f"the policy does not act in an env of observations {self._observations}: "
                f"{error}; evaluate it in an env like that of its training"
            ) from error
        self._accepted = True
        return actions


class OnePlayer:
    """A predictor in envs of one agent.

    Args:
        predictor: see :class:`rlox.evaluation.Predictor`.
        env: N envs.
        deterministic: passed to ``predict``.
    """

    agents: tuple[str, ...] = ()

    def __init__(self, predictor: Any, env: VecEnv, deterministic: bool) -> None:
        self.n_envs = env.n_envs
        self._predictor, self._env, self._deterministic = predictor, env, deterministic
        arguments = inspect.signature(predictor.predict).parameters
        masked = isinstance(env, MaskingVecEnv) and "action_masks" in arguments
        self._masking: Any = env if masked else None
        self._stateful = "state" in arguments
        self._steps = CheckedSteps(env)
        self._first = _FirstCall(env.observation_space)

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs."""
        self._obs = self._env.reset_all(seeds)
        self._state: Any = None
        self._starts = np.ones(self.n_envs, np.bool_)

    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs; see :class:`Player`."""
        given: dict[str, Any] = {}
        masks = None if self._masking is None else self._masking.action_masks()
        if masks is not None:
            given["action_masks"] = masks
        if self._stateful:
            given |= {"state": self._state, "episode_start": self._starts}
        actions = self._first.call(
            self._predictor.predict, self._obs, deterministic=self._deterministic, **given
        )
        if self._stateful:
            actions, self._state = actions
        space = self._env.action_space
        if isinstance(space, spaces.Box):
            actions = np.clip(actions, space.low, space.high)
        step = self._env.step_all(actions)
        self._steps.check(step)
        self._obs = step["obs"]
        self._starts = step["terminated"] | step["truncated"]
        return step["rewards"], np.zeros((self.n_envs, 0)), self._starts


class TeamPlayer:
    """A predictor in envs of several agents.

    Args:
        predictor: has ``predict_team(obs, deterministic)``, from a
            :class:`rlox.protocols.MultiAgentObs` to the actions by group. With the arguments
            ``state`` and ``episode_start`` it returns a pair of actions and the state to pass next,
            ``None`` at first.
        env: N envs.
        deterministic: passed to ``predict_team``.
    """

    def __init__(self, predictor: Any, env: MultiAgentVecEnv, deterministic: bool) -> None:
        self.n_envs = env.n_envs
        self.agents = tuple(agent for group in env.groups for agent in group.agents)
        self._predictor, self._env, self._deterministic = predictor, env, deterministic
        self._stateful = "state" in inspect.signature(predictor.predict_team).parameters
        self._first = _FirstCall(
            ", ".join(f"{group.observation_space} of {group.name}" for group in env.groups)
        )

    def begin(self, seeds: Sequence[int]) -> None:
        """Reset all envs."""
        self._obs: MultiAgentObs = self._env.reset_all(seeds)
        self._state: Any = None
        self._starts = np.ones(self.n_envs, np.bool_)

    def step(self) -> tuple[Paid, Paid, npt.NDArray[np.bool_]]:
        """Act once in all envs; an env is paid the mean over its agents. See :class:`Player`."""
        given = {"state": self._state, "episode_start": self._starts} if self._stateful else {}
        actions = self._first.call(
            self._predictor.predict_team, self._obs, deterministic=self._deterministic, **given
        )
        if self._stateful:
            actions, self._state = actions
        self._obs = step = self._env.step_all(actions)
        self._starts = step["episode_ended"]
        rewards = np.concatenate([step["rewards"][g.name] for g in self._env.groups], axis=1)
        return rewards.mean(axis=1), rewards, step["episode_ended"]
