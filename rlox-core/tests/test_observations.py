"""Tests of :mod:`rlox.spaces.rows`: what is kept, and what users may pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.spaces.rows import ObservationRows

SPACE = spaces.Dict(
    {"camera": spaces.Box(0, 255, (4, 4, 3), np.uint8), "goal": spaces.Tuple([spaces.Discrete(3)])}
)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Box(0, 1, (2,), np.float64), np.float32),
        (spaces.Box(0, 9, (2,), np.int64), np.float32),
        (spaces.Box(0, 9, (2, 2), np.uint8), np.uint8),
        (spaces.MultiBinary(2), np.float32),
        (spaces.Discrete(2), np.int64),
        (spaces.MultiDiscrete([2, 2]), np.int64),
    ],
)
def test_kept_dtypes(space: spaces.Space[Any], dtype: Any) -> None:
    """Images stay bytes, whole numbers whole."""
    rows = ObservationRows(space)
    assert rows.empty(5, 2).shape == (5, 2, *(space.shape or ()))
    assert rows.empty(1).dtype == rows.stored(np.array([space.sample()])).dtype == dtype


def test_one_nested_observation_and_a_batch() -> None:
    """As reset returns it, as a vector env does, and already split."""
    rows = ObservationRows(SPACE)
    one = SPACE.sample()
    batch, single = rows.batch(one)
    assert single
    assert {name: leaf.shape for name, leaf in batch.items()} == {
        "camera": (1, 4, 4, 3),
        "goal.0": (1,),
    }
    many = {"camera": np.zeros((5, 4, 4, 3)), "goal": (np.zeros(5, int),)}
    batch, single = rows.batch(many)
    assert not single
    assert batch["camera"].dtype == np.uint8
    again, _ = rows.batch(batch)
    assert all(np.array_equal(again[name], batch[name]) for name in batch)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"camera": np.zeros((4, 4, 3)), "goal": (np.zeros(2),)}, "some leaves of obs are one"),
        ({"camera": np.zeros((4, 4)), "goal": (0,)}, r"shape \(4, 4, 3\) or \(B, 4, 4, 3\), got"),
        (np.zeros(3), "nested as Dict"),
    ],
)
def test_other_forms_are_refused(obs: Any, message: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        ObservationRows(SPACE).batch(obs)


def test_spaces_without_arrays_are_refused() -> None:
    """Text has no fixed shape."""
    with pytest.raises(SpaceError, match=r"observations must be Box, .* got Text"):
        ObservationRows(spaces.Dict({"a": spaces.Text(3)}))
