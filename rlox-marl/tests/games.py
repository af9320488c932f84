"""Small cooperative games of two agents."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


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


class TwoStepGame(ParallelEnv):
    """The first agent chooses one of two games, which both then play for one common pay.

    Rashid et al. 2018, sec. 5: the first game pays 7 for anything, the second 0, 1, 1 or 8.
    """

    metadata = {"name": "two_step"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self):
        self.possible_agents = ["first", "second"]
        self.state_space = spaces.Box(0, 1, (3,), np.float32)
        self._spaces = spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._spaces[0]

    def action_space(self, agent):
        return self._spaces[1]

    def _all(self, value):
        return dict.fromkeys(self.possible_agents, value)

    def state(self):
        return np.eye(3, dtype=np.float32)[self._place]

    def reset(self, seed=None, options=None):
        self.agents, self._place = list(self.possible_agents), 0
        return self._all(self.state()), self._all({})

    def step(self, actions):
        place, paid = self._place, 0.0
        if place == 0:
            self._place = 1 + int(actions["first"])
        else:
            pays = 7.0, 7.0, 7.0, 7.0, 0.0, 1.0, 1.0, 8.0
            paid = pays[4 * (place - 1) + 2 * int(actions["first"]) + int(actions["second"])]
            self.agents = []
        over = place > 0
        obs = self._all(self.state())
        return obs, self._all(paid), self._all(over), self._all(False), self._all({})

    def close(self):
        pass


class HigherNumber(ParallelEnv):
    """Both players name one of four numbers at once; the higher one wins."""

    metadata = {"name": "higher"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self):
        self.possible_agents = ["player_0", "player_1"]
        self._spaces = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(4)

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
        won = float(np.sign(int(actions["player_0"]) - int(actions["player_1"])))
        self.agents = []
        obs = self._all(np.ones(1, np.float32))
        rewards = {"player_0": won, "player_1": -won}
        return obs, rewards, self._all(True), self._all(False), self._all({})

    def close(self):
        pass
