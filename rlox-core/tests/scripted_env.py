"""Scripted env with distinct observations."""

from functools import partial

import gymnasium
import numpy as np
from gymnasium import spaces

N_ACTIONS = 3


class ScriptedEnv(gymnasium.Env):
    """Plays its script in a circle, across episodes.

    An observation is (index, episode, step in the episode), so step 0 marks reset observations.
    The reward is the script's plus the action taken.

    Args:
        index: number of this env.
        script: its steps.
    """

    def __init__(self, index, script):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(N_ACTIONS)
        self._index, self._script = index, tuple(script)
        self._position, self._episode, self._step = 0, 0, 0

    def _obs(self):
        return np.array([self._index, self._episode, self._step], np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin the next episode."""
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        return self._obs(), {}

    def step(self, action):
        """Play the next step of the script."""
        reward, terminated, truncated = self._script[self._position % len(self._script)]
        self._position += 1
        self._step += 1
        return self._obs(), reward + float(action), terminated, truncated, {}


def makers(scripts):
    """Return one constructor per script."""
    return [partial(ScriptedEnv, i, script) for i, script in enumerate(scripts)]


def action_of(obs):
    """Return the action that the tests' policy takes: (...,) for observations (..., 3)."""
    return ((obs @ np.array([1, 2, 1])) % N_ACTIONS).astype(np.int64)


def value_of(obs):
    """Return the value that the tests' policy sees; exact in float32, whatever the order."""
    return (obs @ np.array([0.5, 0.25, 0.125])).astype(np.float32)
