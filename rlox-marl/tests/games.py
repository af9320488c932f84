"""Small games of two agents."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Game(ParallelEnv):
    """Agents with equal spaces that all act in every step."""

    metadata = {"name": "game"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, agents, observation_space, action_space):
        self.possible_agents = agents
        self._spaces = observation_space, action_space

    def observation_space(self, agent):
        return self._spaces[0]

    def action_space(self, agent):
        return self._spaces[1]

    def all(self, value):
        """Return the value of each agent."""
        return dict.fromkeys(self.possible_agents, value)

    def answer(self, obs, rewards, over):
        """Return what a step returns."""
        if over:
            self.agents = []
        return obs, rewards, self.all(over), self.all(False), self.all({})

    def begin(self, obs):
        """Return what a reset returns."""
        self.agents = list(self.possible_agents)
        return obs, self.all({})

    def close(self):
        pass


ONE = spaces.Box(0, 1, (1,), np.float32)


class PenaltyGame(Game):
    """One step with a common reward: 10 for agreeing on either corner, 2 for the middle.

    Claus and Boutilier 1998, "The dynamics of reinforcement learning in cooperative multiagent
    systems", fig. 1, without a penalty.
    """

    def __init__(self):
        super().__init__(["row", "column"], ONE, spaces.Discrete(3))

    def reset(self, seed=None, options=None):
        return self.begin(self.all(np.ones(1, np.float32)))

    def step(self, actions):
        paid = np.diag([10.0, 2.0, 10.0])[actions["row"], actions["column"]]
        return self.answer(self.all(np.ones(1, np.float32)), self.all(float(paid)), True)


class TwoStepGame(Game):
    """The first agent chooses one of two games; then both play it for a common reward.

    Rashid et al. 2018, sec. 5: the first game pays 7 for anything, the second 0, 1, 1 or 8.
    """

    def __init__(self):
        self.state_space = spaces.Box(0, 1, (3,), np.float32)
        super().__init__(["first", "second"], self.state_space, spaces.Discrete(2))

    def state(self):
        return np.eye(3, dtype=np.float32)[self._place]

    def reset(self, seed=None, options=None):
        self._place = 0
        return self.begin(self.all(self.state()))

    def step(self, actions):
        place, paid = self._place, 0.0
        if place == 0:
            self._place = 1 + int(actions["first"])
        else:
            pays = 7.0, 7.0, 7.0, 7.0, 0.0, 1.0, 1.0, 8.0
            paid = pays[4 * (place - 1) + 2 * int(actions["first"]) + int(actions["second"])]
        return self.answer(self.all(self.state()), self.all(paid), place > 0)


class HigherNumber(Game):
    """Both players name one of four numbers at once; the higher one wins."""

    def __init__(self):
        super().__init__(["player_0", "player_1"], ONE, spaces.Discrete(4))

    def reset(self, seed=None, options=None):
        return self.begin(self.all(np.ones(1, np.float32)))

    def step(self, actions):
        won = float(np.sign(int(actions["player_0"]) - int(actions["player_1"])))
        rewards = {"player_0": won, "player_1": -won}
        return self.answer(self.all(np.ones(1, np.float32)), rewards, True)
