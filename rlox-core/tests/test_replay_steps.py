"""Envs stepped for replay: what is counted, and when an iteration ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError
from rlox.replay.collector import ReplaySteps
from rlox.training.progress import Progress


class Lives:
    """Two envs whose games have six steps; the third loses a life."""

    n_envs = 2
    observation_space: Any = spaces.Box(0, 10, (1,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, bad_reward: float = 1.0) -> None:
        self._count, self._bad_reward = 0, bad_reward

    def reset_all(self, seed: Any = None) -> Any:
        """Begin a game."""
        return np.zeros((2, 1), np.float32)

    def step_all(self, actions: Any) -> Any:
        """Go on."""
        self._count += 1
        final = np.full((2, 1), self._count, np.float32)
        ended, life = self._count % 3 == 0, self._count == 3
        self._count %= 6
        step = {
            "obs": np.full((2, 1), self._count, np.float32),
            "rewards": np.array([1.0, self._bad_reward]),
            "terminated": np.full(2, ended),
            "truncated": np.zeros(2, bool),
            "final_obs": final,
        }
        return step | {"life_lost": np.ones(2, bool)} if life else step

    def close(self) -> None:
        """Do nothing."""


def test_a_lost_life_begins_an_episode_and_ends_no_game() -> None:
    """What acts forgets; the statistics count games, also over several blocks of steps."""
    steps = ReplaySteps(RunningEnvs(Lives()))
    _ = steps.envs.obs
    starts = []
    for k in range(12):
        starts.append(bool(steps.episode_start.all()))
        step = steps.step(np.zeros(2, np.int64))
        assert np.array_equal(steps.envs.obs, step["obs"])
        if k % 5 == 0:
            steps.count_episodes()
    steps.count_episodes()
    assert starts == [k % 3 == 0 for k in range(12)]
    found = steps.statistics
    assert (found.finished, found.mean_length, found.mean_return) == (4, 6, 6)


@pytest.mark.parametrize("reward", [np.nan, np.inf])
def test_rewards_must_be_finite(reward: float) -> None:
    """The error names the env and the reward, and the step is not counted."""
    steps = ReplaySteps(RunningEnvs(Lives(reward)))
    _ = steps.envs.obs
    with pytest.raises(EnvError, match=f"env 1 returned the reward {reward}"):
        steps.step(np.zeros(2, np.int64))
    steps.count_episodes()
    assert steps.statistics.finished == 0


def test_an_iteration_ends_at_multiples_of_its_steps() -> None:
    """Rounded up to whole vector steps; an interrupted one goes on."""
    left = [Progress(env_steps=done).vector_steps_left(4, 10) for done in (0, 4, 8, 12)]
    assert left == [3, 2, 1, 3]
    assert Progress(env_steps=10).vector_steps_left(1, 10) == 10
