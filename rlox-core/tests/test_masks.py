"""Tests of :mod:`rlox.envs.gymnasium`: masks are the same from every place."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from rlox.envs.gymnasium import GymVecEnv
from rlox.errors import EnvError

PLACES = ("info", "observation", "method")


class Counting(gymnasium.Env):
    """Counts steps; the only possible action is the count, and none is at an episode's end.

    Args:
        length: steps of an episode.
        place: where the mask is given.
    """

    action_space = spaces.Discrete(4)

    def __init__(self, length, place="info"):
        self.length, self.place = length, place
        self.observation_space = spaces.Box(0, 9, (1,))
        if place == "observation":
            self.observation_space = spaces.Dict(
                {
                    "observation": self.observation_space,
                    "action_mask": spaces.Box(0, 1, (4,), np.int8),
                }
            )
        if place == "method":
            self.action_masks = self._mask

    def _mask(self):
        return (np.arange(4) == self.count).astype(np.int8) * (self.count < self.length)

    def _answer(self):
        obs = np.array([self.count], np.float32)
        if self.place == "observation":
            obs = {"observation": obs, "action_mask": self._mask()}
        return obs, {"action_mask": self._mask()} if self.place == "info" else {}

    def reset(self, *, seed=None, options=None):
        """Begin at 0."""
        self.count = 0
        return self._answer()

    def step(self, action):
        """Count on."""
        assert self._mask()[action]
        self.count += 1
        obs, info = self._answer()
        return obs, 1.0, self.count == self.length, False, info


def makers(place):
    """Return what makes envs of different lengths."""
    return [lambda n=n: Counting(n, place) for n in (1, 3, 4)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("vector_class", "mode"),
    [*((SyncVectorEnv, mode) for mode in AutoresetMode), (AsyncVectorEnv, AutoresetMode.SAME_STEP)],
)
def test_masks_go_with_the_observations_to_act_on(place, mode, vector_class):
    """The masks of a new episode's first observation, never those of the last one's end."""
    env = GymVecEnv(vector_class(makers(place), autoreset_mode=mode))
    counts = env.reset_all(0)
    for _ in range(9):
        numbers = counts["observation"] if place == "observation" else counts
        masks = env.action_masks()
        assert masks.dtype == np.bool_
        assert np.array_equal(masks, np.arange(4) == numbers)
        counts = env.step_all(masks.argmax(1))["obs"]
    env.close()


def test_the_mask_is_no_part_of_the_observation():
    """Neither of the space nor of what steps return, final observations included."""
    env = GymVecEnv(lambda: Counting(1, "observation"), 2)
    assert list(env.observation_space.spaces) == ["observation"]
    assert list(env.reset_all(0)) == ["observation"]
    step = env.step_all([0, 0])
    assert step["final_obs"]["observation"].tolist() == [[1.0], [1.0]]
    assert step["obs"]["observation"].tolist() == [[0.0], [0.0]]


def test_gymnasiums_own_masks_are_read():
    """Taxi reports which actions change its state."""
    env = GymVecEnv("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", 2)
    env.reset_all(0)
    masks = env.action_masks()
    assert masks.shape == (2, 6)


class Scripted(gymnasium.Env):
    """Gives the masks it is given: the first with the reset, the others with the steps."""

    observation_space = spaces.Box(0, 1, (1,))

    def __init__(self, masks, action_space):
        self.masks, self.action_space = masks, action_space

    def _info(self):
        mask = self.masks.pop(0)
        return {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        """Give the first mask."""
        return np.zeros(1, np.float32), self._info()

    def step(self, action):
        """Give the next mask."""
        return np.zeros(1, np.float32), 0.0, False, False, self._info()


FULL = np.ones(2, np.int8)


@pytest.mark.parametrize(
    ("masks", "space", "message"),
    [
        ([[1, 1]], spaces.Discrete(2), "must be one array of 0 and 1.*, got list"),
        ([FULL, None], spaces.Discrete(2), r"env 0 gave no info\['action_mask'\]"),
        ([None, FULL], spaces.Discrete(2), "with a step but not with its reset"),
        ([FULL], spaces.Box(0, 1, (2,)), "cannot be masked"),
    ],
)
def test_wrong_masks_are_refused(masks, space, message):
    """Before anything is learnt from them."""
    env = GymVecEnv(Scripted(masks, space))

    def act_once():
        env.reset_all(0)
        env.step_all(np.zeros((1, *space.shape), space.dtype))

    with pytest.raises(EnvError, match=message):
        act_once()
