"""Small cooperative games of two agents with known optima."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class MatrixGames(ParallelEnv):
    """Games that pay both agents alike; the first agent may choose which one is played.

    Args:
        pays: (G, A, A) of G games, by the actions of both agents. With one game an episode is one
            step; else the first agent's first action, below G, is the number of the game.
    """

    metadata = {"name": "matrix_games"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, pays):
        self.possible_agents = ["first", "second"]
        self._pays = np.array(pays, np.float64)
        self._n_places = len(self._pays) + (len(self._pays) > 1)
        self.state_space = spaces.Box(0, 1, (self._n_places,), np.float32)
        self._action_space = spaces.Discrete(self._pays.shape[1])

    def observation_space(self, agent):
        """Return the space of the place in the game, one-hot."""
        return self.state_space

    def action_space(self, agent):
        """Return the space of an agent's choice."""
        return self._action_space

    def state(self):
        """Return the place in the game, one-hot: the games first, the choice of one last."""
        return np.eye(self._n_places, dtype=np.float32)[self._place]

    def _all(self, value):
        return dict.fromkeys(self.possible_agents, value)

    def reset(self, seed=None, options=None):
        """Begin with the choice of a game, if there are several."""
        self.agents, self._place = list(self.possible_agents), self._n_places - 1
        return self._all(self.state()), self._all({})

    def step(self, actions):
        """Choose a game, or play it."""
        paid, over = 0.0, self._place < len(self._pays)
        if over:
            paid = float(self._pays[self._place, actions["first"], actions["second"]])
            self.agents = []
        else:
            self._place = int(actions["first"])
        obs = self._all(self.state())
        return obs, self._all(paid), self._all(over), self._all(False), self._all({})


def penalty_game(k=0.0):
    """Return the game of Claus and Boutilier 1998, fig. 1, with the penalty k; its best is 10."""
    return MatrixGames([[[10.0, 0.0, k], [0.0, 2.0, 0.0], [k, 0.0, 10.0]]])


def two_step_game():
    """Return the game of Rashid et al. 2018, sec. 5: the first pays 7, the second up to 8."""
    return MatrixGames([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])
