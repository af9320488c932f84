"""Teams learn small games within seconds."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from rlox_marl.mappo import MAPPO


class PenaltyGame(ParallelEnv):
    """One step, one common pay: 10 and 10 for agreeing on a corner, 2 for the middle.

    Claus and Boutilier 1998, "The dynamics of reinforcement learning in cooperative multiagent
    systems", fig. 1, with the penalty k.
    """

    metadata = {"name": "penalty"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, k=0.0):
        self.possible_agents = ["row", "column"]
        self.pays = np.array([[10.0, 0.0, k], [0.0, 2.0, 0.0], [k, 0.0, 10.0]])
        self._spaces = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(3)

    def observation_space(self, agent):
        return self._spaces[0]

    def action_space(self, agent):
        return self._spaces[1]

    def _all(self, value):
        return dict.fromkeys(self.possible_agents, value)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._all(np.ones(1, np.float32)), self._all({})

    def step(self, actions):
        paid = float(self.pays[actions["row"], actions["column"]])
        self.agents = []
        obs = self._all(np.ones(1, np.float32))
        return obs, self._all(paid), self._all(True), self._all(False), self._all({})

    def close(self):
        pass


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share", ["group", "agent"])
def test_the_penalty_game_is_played_at_its_optimum(seed, share) -> None:
    """Without a penalty both agents agree on a corner, in every seed."""
    options = {
        "n_envs": 16, "n_steps": 8, "batch_size": 64, "n_epochs": 4, "learning_rate": 5e-3,
        "hidden": 8, "share_parameters": share,
    }  # fmt: skip
    with MAPPO(PenaltyGame, seed=seed, **options) as algorithm:
        algorithm.train(2_560)
        assert algorithm.evaluate(n_episodes=2).mean_return == 10.0
