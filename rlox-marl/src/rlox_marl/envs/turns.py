"""One turn-based PettingZoo env (AEC) with checked steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from rlox_marl.envs.checks import Where, flag, number
from rlox_marl.envs.one_env import (
    Outcome,
    Spaces,
    read_state,
    require_names,
    require_same,
)

__all__ = ["TurnsOne"]


class TurnsOne:
    """A turn-based env: one agent acts in each step, the others wait.

    A step pays every agent what it adds to the agent's cumulative reward, so that the sum from one
    action of an agent to its next is what ``env.last()`` says then. Steps of agents that have
    ended, which the AEC interface asks for, are done within the step.

    Args:
        env: is stepped and closed.
        spaces: its agents and spaces.
        where: names the env in errors.
    """

    def __init__(self, env: Any, spaces: Spaces, where: Where) -> None:
        self.where, self.spaces = where, spaces
        self._env = env
        self._gone: set[str] = set()
        self._state: npt.NDArray[Any] | None = None
        self._paid: dict[str, float] = {}

    def reset(self, seed: int | None) -> Outcome:
        """Begin an episode; see :class:`~rlox_marl.envs.one_env.OneEnv`."""
        where = self.where
        where.step = 0
        self._state = None
        self._env.reset(seed=seed)
        require_same(self.spaces, self._env, where)
        self._gone = set()
        self._paid = {}
        out = self._outcome(Outcome(), None)
        if not out.living:
            raise where.error("env.agents", None, "is empty; let the episode begin with an agent")
        out.rewards = {}
        return out

    def step(self, actions: Mapping[str, Any]) -> Outcome:
        """Take the action of the agent whose turn it is.

        Raises:
            EnvError: an agent, a reward, a flag or an observation is missing, unannounced or wrong.
        """
        self.where.step += 1
        ((actor, action),) = actions.items()
        self._env.step(action)
        return self._outcome(Outcome(), actor)

    def _outcome(self, out: Outcome, actor: str | None) -> Outcome:
        where, env = self.where, self._env
        if actor is not None:
            self._paid[actor] = 0.0
        before = set(self._paid)
        self._look(out)
        vanished = before - self._gone - set(env.agents)
        if vanished:
            raise where.error(
                "env.agents", None, f"lost '{min(vanished)}', which neither terminated nor was "
                "truncated; say which of the two ended it",
            )  # fmt: skip
        for _ in range(2 * len(self.spaces.agents)):
            if not env.agents or env.agent_selection not in self._gone:
                break
            env.step(None)
            self._look(out)
        living = tuple(
            agent
            for agent in require_names(where, env.agents, self.spaces)
            if agent not in self._gone
        )
        if living and env.agent_selection not in living:
            raise where.error(
                "env.agent_selection", None, f"is '{env.agent_selection}', which is not in the "
                f"episode; in it are {', '.join(living)}",
            )  # fmt: skip
        for agent in living:
            self.spaces.observe(where, agent, env.observe(agent), out)
        self.spaces.take_masks(env.infos, out)
        out.living = living
        out.active = (env.agent_selection,) if living else ()
        self._state = out.state = read_state(env, self.spaces, where, out, self._state)
        return out

    def _look(self, out: Outcome) -> None:
        """Note rewards and ends since the last look."""
        where, env = self.where, self._env
        for agent in require_names(where, env.agents, self.spaces):
            for field, table in (
                ("rewards", env._cumulative_rewards),
                ("terminations", env.terminations),
                ("truncations", env.truncations),
            ):
                if agent not in table:
                    raise where.error(field, agent, "is missing; the agent is in env.agents")
            if agent in self._gone:
                continue
            total = number(where, "the reward", agent, env._cumulative_rewards[agent])
            paid = total - self._paid.get(agent, 0.0)
            out.rewards[agent] = out.rewards.get(agent, 0.0) + paid
            self._paid[agent] = total
            terminated = flag(where, "terminations", agent, env.terminations[agent])
            truncated = flag(where, "truncations", agent, env.truncations[agent])
            if terminated:
                out.terminated.add(agent)
            if truncated:
                out.truncated.add(agent)
            if terminated or truncated:
                self._gone.add(agent)
                self.spaces.observe(where, agent, env.observe(agent), out)

    def close(self) -> None:
        """Close the env."""
        self._env.close()
