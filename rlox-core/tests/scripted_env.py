"""Small envs: one that plays a script, one that counts, one that fails, and a wrapper."""

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


class Numbered(gymnasium.Env):
    """Observes the number of the step in any space, pays 1, and is cut after so many steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, length=5):
        self.observation_space, self.length = space, length

    def _obs(self):
        if isinstance(self.observation_space, spaces.Discrete):
            return self.count
        return np.full(self.observation_space.shape, self.count, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        """Begin at 0."""
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        """Count on."""
        self.count += 1
        return self._obs(), 1.0, False, self.count == self.length, {}


class Failing(Numbered):
    """Observes (episode, step of it), and raises an error in one step of all."""

    def __init__(self, fails_at, error, length):
        super().__init__(spaces.Box(-np.inf, np.inf, (2,), np.float32), length)
        self.fails_at, self.error = fails_at, error
        self.episode, self.total = -1, 0

    def _obs(self):
        return np.array([self.episode, self.count], np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin the next episode."""
        self.episode += 1
        return super().reset(seed=seed)

    def step(self, action):
        """Count on, or fail."""
        self.total += 1
        if self.total == self.fails_at:
            raise self.error
        return super().step(action)


class Negated(gymnasium.RewardWrapper):
    """A wrapper as users write them, which does not record its arguments."""

    def reward(self, reward):
        """Turn the sign."""
        return -reward
