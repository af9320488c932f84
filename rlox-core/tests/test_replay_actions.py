"""Actions as replay buffers keep them, and as envs take them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import SpaceError
from rlox.replay.codecs import BoxActions, DiscreteActions, make_actions


def test_every_dimension_of_a_box_has_its_own_scale() -> None:
    """-1, 0 and 1 are the lower bound, the middle and the upper bound, dimension by dimension."""
    low, high = np.array([0.0, -3.0], np.float32), np.array([0.5, 1.0], np.float32)
    actions = make_actions(spaces.Box(low, high))
    assert isinstance(actions, BoxActions)
    assert (actions.shape, actions.dtype) == ((2,), "float32")
    given_ = np.array([[-1, -1], [0, 0], [1, 1], [-1, 1]], np.float32)
    expected = np.array([[0, -3], [0.25, -1], [0.5, 1], [0, 1]], np.float32)
    np.testing.assert_allclose(actions.to_env(given_), expected, rtol=1e-6)


@given(st.floats(-1e6, 1e6, width=32), st.floats(0, 1e6, width=32), st.floats(-1, 1, width=32))
def test_actions_of_a_box_stay_in_it(low: float, width: float, action: float) -> None:
    """However bounds and actions round, the env's action is within its space, of its type."""
    space = spaces.Box(np.float32(low), np.float32(np.float32(low) + np.float32(width)), (1,))
    taken = BoxActions(space).to_env(np.array([[action]], np.float32))
    assert space.contains(taken[0])


def test_random_actions_cover_the_space() -> None:
    """Discrete ones count from 0, whatever the space's start is; continuous ones fill [-1, 1]."""
    discrete = make_actions(spaces.Discrete(3, start=7))
    assert isinstance(discrete, DiscreteActions)
    drawn = discrete.random(np.random.default_rng(0), 1000)
    assert set(drawn) == {0, 1, 2}
    assert set(discrete.to_env(drawn)) == {7, 8, 9}
    box = make_actions(spaces.Box(-2, 2, (2,))).random(np.random.default_rng(0), 1000)
    assert (box.shape, box.dtype) == ((1000, 2), np.float32)
    assert -1 <= box.min() < -0.99
    assert 0.99 < box.max() <= 1


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, np.inf, (1,)), "must be bounded, got .*TransformAction"),
        (spaces.Box(-1, 1, (2, 2)), "a one-dimensional Box, got"),
        (spaces.Box(0, 3, (2,), np.int64), "must be real numbers, got"),
        (spaces.MultiDiscrete([2, 2]), "must be Discrete or a one-dimensional Box, got"),
    ],
)
def test_other_spaces_are_refused(space: spaces.Space[object], message: str) -> None:
    """The error names the space and the remedy."""
    with pytest.raises(SpaceError, match=message):
        make_actions(space)
