"""Tests of :mod:`rlox.spaces.rows`: rows that a policy acts with, and the env's actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.spaces.rows import ActionRows

BOX = spaces.Box(np.float32([-1, -2]), np.float32([1, 2]))


def test_rows_of_plain_spaces() -> None:
    """What each kind of row means, and that all counts begin at the space's start."""
    cases: list[tuple[spaces.Space[Any], Any, Any]] = [
        (spaces.Discrete(3), np.array([0, 2]), [0, 2]),
        (spaces.Discrete(3, start=-1), np.array([0, 2]), [-1, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 2]]), [[1, 2]]),
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), np.array([[1, 2]]), [[6, 2]]),
        (spaces.MultiDiscrete([[2, 3]]), np.array([[1, 2]]), [[[1, 2]]]),
        (spaces.MultiBinary((2, 2)), np.array([[1, 0, 0, 1]]), [[[1, 0], [0, 1]]]),
        (BOX, np.float32([[0.5, -3.0]]), [[0.5, -2.0]]),
        (spaces.Box(-1, 1, ()), np.float32([[3.0]]), [1.0]),
        (spaces.Box(0, 9, (1, 2), np.int64), np.float32([[2.6, 11.0]]), [[[3, 9]]]),
    ]
    for space, rows, expected in cases:
        actions = ActionRows(space).to_env(rows)
        assert actions.tolist() == np.array(expected, space.dtype).tolist()
        assert actions.dtype == space.dtype
        action = ActionRows(space).take(actions, 0)
        assert space.contains(action)
        assert (type(action) is int) == isinstance(space, spaces.Discrete)


def test_rows_of_nested_spaces() -> None:
    """Columns follow the leaves, and actions come nested as the space is."""
    space = spaces.Dict({"move": BOX, "say": spaces.Tuple([spaces.Discrete(3, start=1)] * 2)})
    rows = ActionRows(space)
    actions = rows.to_env(np.float32([[0.5, 7.0, 0.0, 2.0], [0.0, 0.0, 1.0, 1.0]]))
    assert actions["move"].tolist() == [[0.5, 2.0], [0.0, 0.0]]
    assert [part.tolist() for part in actions["say"]] == [[1, 2], [3, 2]]
    assert rows.take(actions, 0)["say"] == (1, 3)
    assert space.contains(rows.take(actions, 1))


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Discrete(3, start=2), 3),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiBinary(3), 6),
        (BOX, 0),
        (spaces.Dict({"a": BOX, "b": spaces.Discrete(4)}), 4),
    ],
)
def test_masks_have_a_column_for_each_choice(space: spaces.Space[Any], size: int) -> None:
    """Two for each binary number, none for a real one."""
    assert ActionRows(space).mask_size == size


def test_masks_of_numbers_become_bools() -> None:
    """Gymnasium's own masks are int8."""
    masks = ActionRows(spaces.Discrete(3)).check_masks(np.array([[1, 0, 1]], np.int8), 1)
    assert masks.dtype == np.bool_
    assert masks.tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("space", "masks", "message"),
    [
        (spaces.Discrete(3), [[1, 1]], r"shape \(1, 3\) for Discrete\(3\), got \(1, 2\)"),
        (spaces.Discrete(3), [1, 1, 1], r"shape \(1, 3\) for Discrete\(3\), got \(3,\)"),
        (spaces.Discrete(2), [[1, 2]], "0 and 1 only"),
        (spaces.Discrete(2), [[np.nan, 1]], "0 and 1 only"),
        (spaces.Discrete(2), [[0, 0]], "in row 0 forbids every choice of column 0"),
        (spaces.MultiDiscrete([2, 2]), [[1, 0, 0, 0]], "in row 0 forbids every choice of column 1"),
        (BOX, [[1, 1]], "cannot be masked: nothing is discrete"),
    ],
)
def test_wrong_masks_are_refused(space: spaces.Space[Any], masks: Any, message: str) -> None:
    """The error says what would do, or where nothing is left to choose."""
    with pytest.raises(ValueError, match=message):
        ActionRows(space).check_masks(masks, 1)


def test_other_spaces_are_refused() -> None:
    """Text is no action."""
    with pytest.raises(SpaceError, match=r"actions must be Discrete, .* got Text"):
        ActionRows(spaces.Tuple([spaces.Text(3)]))
