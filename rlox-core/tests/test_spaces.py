"""Tests of :mod:`rlox.spaces.rows`: nested values as flat mappings and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import SpaceError
from rlox.spaces.rows import join, leaf_spaces, map_leaves, split

leaves = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-2, 2)),
    st.builds(lambda n: spaces.Box(-1, 1, (n, 2)), st.integers(1, 3)),
)
nested = st.recursive(
    leaves,
    lambda child: st.one_of(
        st.lists(child, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.text("abc", min_size=1), child, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
)


@given(space=nested, batched=st.booleans())
def test_joining_what_was_split_gives_the_value_back(
    space: spaces.Space[Any], batched: bool
) -> None:
    """One value and a batch of values go the same way."""
    value = (batch_space(space, 3) if batched else space).sample()
    parts = split(space, value)
    back = join(space, parts)
    assert repr(back) == repr(value)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        assert list(parts) == list(leaf_spaces(space))
        assert split(space, parts) == parts
    else:
        assert parts is value


def test_leaves_are_called_by_their_path() -> None:
    """Keys and positions are joined by dots; a space that is not nested has one leaf."""
    box, number = spaces.Box(0, 1, (2,)), spaces.Discrete(3)
    space = spaces.Dict({"hand": spaces.Tuple([box, spaces.Dict({"open": number})]), "eye": box})
    assert leaf_spaces(space) == {"eye": box, "hand.0": box, "hand.1.open": number}
    assert leaf_spaces(box) == {"": box}
    value = space.sample()
    assert split(space, value)["hand.1.open"] == value["hand"][1]["open"]


def test_names_that_clash_are_refused() -> None:
    """A dot in a key may make two leaves one."""
    number = spaces.Discrete(2)
    space = spaces.Dict({"a.b": number, "a": spaces.Dict({"b": number})})
    with pytest.raises(SpaceError, match=r"two leaves of .* are called 'a\.b'; rename a key"):
        leaf_spaces(space)
    with pytest.raises(SpaceError, match="has no leaf"):
        leaf_spaces(spaces.Dict({}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(2), "expected a value nested as Dict.*, got ndarray"),
        ({"a": 1, "c": 1}, r"expected the keys \['a', 'b'\], got \['a', 'c'\]"),
        ({"a": 1}, r"expected the keys \['a', 'b'\], got \['a'\]"),
        ({"a": 1, "b": {0: 1, 1: 1}}, "expected a value nested as Tuple.*, got dict"),
        ({"a": 1, "b": [1]}, "expected a value nested as Tuple.*, got list"),
    ],
)
def test_a_value_of_another_form_is_refused(value: Any, message: str) -> None:
    """The error says which part is wrong."""
    number = spaces.Discrete(2)
    space = spaces.Dict({"a": number, "b": spaces.Tuple([number, number])})
    with pytest.raises(ValueError, match=message):
        split(space, value)


def test_map_leaves_takes_plain_values_and_dicts() -> None:
    """Several values go side by side."""
    assert map_leaves(max, 1, 2) == 2
    assert map_leaves(max, {"a": 1, "b": 5}, {"b": 2, "a": 3}) == {"a": 3, "b": 5}
