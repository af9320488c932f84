"""One parallel PettingZoo env with checked steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from rlox_marl.envs.checks import Where, flag, members, number
from rlox_marl.envs.one_env import (
    Outcome,
    Spaces,
    infos_of,
    read_state,
    require_names,
    require_parts,
    require_same,
)

__all__ = ["ParallelOne"]


class ParallelOne:
    """A parallel env: all agents in the episode act in each step.

    An agent joins by appearing in ``env.agents``, and leaves it in the step that terminates or
    truncates it, with its last observation in that step.

    Args:
        env: is stepped and closed.
        spaces: its agents and spaces.
        where: names the env in errors.
    """

    def __init__(self, env: Any, spaces: Spaces, where: Where) -> None:
        self.where, self.spaces = where, spaces
        self._env = env
        self._living: tuple[str, ...] = ()
        self._state: npt.NDArray[Any] | None = None

    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode; see :class:`~rlox_marl.envs.one_env.OneEnv`."""
        where = self.where
        where.step = 0
        self._state = None
        returned = self._env.reset(seed=seed)
        obs, infos = require_parts(where, "env.reset", ("observations", "infos"), returned)
        require_same(self.spaces, self._env, where)
        living = require_names(where, self._env.agents, self.spaces)
        if not living:
            raise where.error("env.agents", None, "is empty; let the episode begin with an agent")
        members(where, "the observation", obs, living, living, "is in env.agents")
        return self._outcome(Outcome(), obs, infos, living, living)

    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the actions of all agents; see :class:`~rlox_marl.envs.one_env.OneEnv`.

        Raises:
            EnvError: an agent, a reward, a flag or an observation is missing, unannounced or wrong.
        """
        where, before = self.where, self._living
        where.step += 1
        parts = ("observations", "rewards", "terminations", "truncations", "infos")
        returned = self._env.step(dict(actions))
        obs, rewards, terminations, truncations, infos = require_parts(
            where, "env.step", parts, returned
        )
        living = require_names(where, self._env.agents, self.spaces)
        known = {*before, *living}
        out = Outcome()
        for agent, value in members(where, "the reward", rewards, before, known, "acted").items():
            out.rewards[agent] = number(where, "the reward", agent, value)
        for field, given, ended in (
            ("terminations", terminations, out.terminated),
            ("truncations", truncations, out.truncated),
        ):
            flags = members(where, field, given, before, known, "acted")
            ended.update(a for a, value in flags.items() if flag(where, field, a, value))
        gone = out.terminated | out.truncated
        for agent in known:
            if agent in gone and agent in living:
                raise where.error(
                    "env.agents", None, f"still holds '{agent}', which terminated or was "
                    "truncated; remove it in the same step",
                )  # fmt: skip
            if agent not in gone and agent not in living:
                raise where.error(
                    "env.agents", None, f"lost '{agent}', which neither terminated nor was "
                    "truncated; say which of the two ended it",
                )  # fmt: skip
        members(where, "the observation", obs, known, known, "is in the episode, or ended here")
        return self._outcome(out, obs, infos, known, living)

    def _outcome(self, out: Outcome, obs: Any, infos: Any, seen: Any, living: Any) -> Outcome:
        where = self.where
        for agent in seen:
            self.spaces.observe(where, agent, obs[agent], out)
        self.spaces.take_masks(infos_of(where, infos), out)
        out.living = out.active = self._living = living
        self._state = out.state = read_state(self._env, self.spaces, where, out, self._state)
        return out

    def close(self) -> None:
        """Close the env."""
        self._env.close()
