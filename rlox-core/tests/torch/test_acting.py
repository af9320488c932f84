"""Tests of :mod:`rlox.networks.predict`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.networks.actor_critics import ContinuousPolicy, DiscretePolicy
from rlox.networks.predict import predict

BOX = spaces.Box(-10, 10, (3,), np.float32)
TORQUE = spaces.Box(np.array([-0.5, -2.0], np.float32), np.array([0.5, 2.0], np.float32))
DISCRETE = DiscretePolicy(3, 4, 8, generator=torch.Generator().manual_seed(0))
GAUSSIAN = ContinuousPolicy(3, 2, 8, log_std=2.0, generator=torch.Generator().manual_seed(0))


class Echo:
    """Acts with the observation itself and keeps what it saw."""

    def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
        """Keep the observations and return the first entries as int64."""
        self.seen = obs
        return obs.flatten(1)[:, 0].long() if obs.ndim > 1 else obs.long()


@pytest.mark.parametrize("obs", [np.zeros(3), [0.0, 0.0, 0.0], np.zeros(3, np.int64)])
def test_one_observation_gives_one_action(obs: Any) -> None:
    """A discrete action is an int, a continuous one an array."""
    assert type(predict(DISCRETE, BOX, spaces.Discrete(4), obs, True)) is int
    action = predict(GAUSSIAN, BOX, TORQUE, obs, True)
    assert isinstance(action, np.ndarray)
    assert (action.shape, action.dtype) == ((2,), np.float32)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_batch_gives_arrays(size: int) -> None:
    """A batch of one stays a batch."""
    obs = np.zeros((size, 3))
    actions = predict(DISCRETE, BOX, spaces.Discrete(4), obs, True)
    assert (actions.shape, actions.dtype) == ((size,), np.int64)
    assert predict(GAUSSIAN, BOX, TORQUE, obs, True).shape == (size, 2)


def test_continuous_actions_are_clipped() -> None:
    """Samples far outside come back at the bounds."""
    actions = predict(GAUSSIAN, BOX, TORQUE, np.zeros((200, 3)), False)
    assert (np.abs(actions) <= [0.5, 2.0]).all()
    assert (np.abs(actions) == [0.5, 2.0]).any(0).all()


def test_deterministic_repeats_and_sampling_varies() -> None:
    """The mode is one action, samples are many."""
    obs = np.zeros((100, 3))
    assert len(set(predict(DISCRETE, BOX, spaces.Discrete(4), obs, True).tolist())) == 1
    assert len(set(predict(DISCRETE, BOX, spaces.Discrete(4), obs, False).tolist())) > 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_space_decides_the_dtype(dtype: Any) -> None:
    """Images stay uint8 and vectors become float32, whatever array the user has."""
    echo: Any = Echo()
    image = spaces.Box(0, 255, (2, 2), np.uint8)
    predict(echo, image, spaces.Discrete(4), np.ones((2, 2), dtype), True)
    assert (echo.seen.dtype, echo.seen.shape) == (torch.uint8, (1, 2, 2))
    predict(echo, BOX, spaces.Discrete(4), np.ones(3, dtype), True)
    assert echo.seen.dtype == torch.float32


def test_discrete_observation_is_a_number() -> None:
    """For a space without dimensions a scalar is one observation and a vector a batch."""
    echo: Any = Echo()
    assert predict(echo, spaces.Discrete(5), spaces.Discrete(5), 3, True) == 3
    batch = predict(echo, spaces.Discrete(5), spaces.Discrete(5), [1, 2], True)
    assert batch.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (2, 2, 3)])
def test_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    """The error says both shapes that would do."""
    with pytest.raises(ValueError, match=r"^obs must have shape \(3,\) or \(B, 3\), got "):
        predict(DISCRETE, BOX, spaces.Discrete(4), np.zeros(shape), True)


def test_no_gradient_and_no_alias() -> None:
    """Acting leaves no graph, and the caller's array is not shared."""
    obs = np.zeros((2, 3), np.float32)
    action = predict(GAUSSIAN, BOX, TORQUE, obs, True)
    action[:] = 7
    assert not obs.any()
