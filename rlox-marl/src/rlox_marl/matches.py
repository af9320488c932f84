"""Matches of two teams' policies in a game of two players."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from rlox.envs import make_team_env
from rlox.errors import ConfigError
from rlox.protocols import MultiAgentVecEnv


@dataclass(frozen=True)
class MatchResult:
    """Game results from the first player's side."""

    wins: int
    draws: int
    losses: int

    @property
    def score(self) -> float:
        """Share of the points: a win is 1, a draw ½."""
        return (self.wins + self.draws / 2) / (self.wins + self.draws + self.losses)

    @property
    def elo_difference(self) -> float:
        """Elo advantage of the first player; infinite if one side took every point."""
        if self.score in (0.0, 1.0):
            return math.copysign(math.inf, self.score - 0.5)
        return 400.0 * math.log10(self.score / (1.0 - self.score))


def play_match(
    first: Any,
    second: Any,
    env: Any,
    *,
    n_games: int = 200,
    seed: int = 0,
    deterministic: bool = True,
    env_kwargs: dict[str, Any] | None = None,
) -> MatchResult:
    """Let two predictors play each other, with alternating sides.

    The higher return wins.

    Args:
        first: has ``predict_team``, see :class:`rlox.envs.evaluation.TeamPlayer`.
        second: plays the other side.
        env: id or callable of an env with two agents.
        n_games: number of games.
        seed: seed of the games; consecutive pairs, one game per side, share a seed.
        deterministic: passed to ``predict_team``.
        env_kwargs: arguments of the env.

    Raises:
        ConfigError: the env does not have two agents.
        ValueError: ``n_games`` is not positive.
    """
    if n_games < 1:
        raise ValueError(f"n_games must be at least 1, got {n_games}")
    games = make_team_env(env, n_envs=1, env_kwargs=env_kwargs)
    try:
        if len(games.possible_agents) != 2:
            raise ConfigError(
                f"a match needs an env of two agents, got {', '.join(games.possible_agents)}"
            )
        players = first, second
        signs = []
        for k in range(n_games):
            sides = players if k % 2 == 0 else players[::-1]
            difference = _play(games, sides, seed + k // 2, deterministic)
            signs.append(np.sign(difference if k % 2 == 0 else -difference))
    finally:
        games.close()
    return MatchResult(signs.count(1), signs.count(0), signs.count(-1))


def _play(env: MultiAgentVecEnv, sides: tuple[Any, ...], seed: int, deterministic: bool) -> float:
    """Play one game; return the first agent's return minus the second's."""
    shown: Any = env.reset_all([seed])
    starts = np.ones(1, np.bool_)
    states: list[Any] = [None, None]
    returns = dict.fromkeys(env.possible_agents, 0.0)
    while True:
        answers = []
        for k, player in enumerate(sides):
            given: dict[str, Any] = {}
            if "state" in inspect.signature(player.predict_team).parameters:
                given = {"state": states[k], "episode_start": starts}
            found = player.predict_team(shown, deterministic=deterministic, **given)
            if given:
                found, states[k] = found
            answers.append(found)
        shown = env.step_all(_of_both(env, answers))
        starts = shown["episode_ended"]
        for group in env.groups:
            for column, agent in enumerate(group.agents):
                returns[agent] += float(shown["rewards"][group.name][0, column])
        if starts[0]:
            one, other = (returns[agent] for agent in env.possible_agents)
            return one - other


def _of_both(env: MultiAgentVecEnv, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the actions by group, taking each agent's from its side's player."""
    actions = {}
    for group in env.groups:
        sides = [answers[env.possible_agents.index(agent)] for agent in group.agents]
        chosen = [side[group.name][:, column] for column, side in enumerate(sides)]
        actions[group.name] = np.stack(chosen, axis=1)
    return actions
