"""Tests of :mod:`rlox.spaces.rows`: nested values, observations, actions and their masks."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import SpaceError
from rlox.spaces.data import space_from_data, space_to_data
from rlox.spaces.rows import (
    MASK_KEY,
    ActionRows,
    ObservationRows,
    join,
    leaf_spaces,
    split,
    without_mask,
)

leaves = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-2, 2)),
    st.builds(lambda n: spaces.Box(-1, 1, (n, 2)), st.integers(1, 3)),
)


def nested_by(make_dict):
    """Return a strategy of spaces, of which this makes those with keys."""
    keys = st.text("abc", min_size=1) | st.integers(0, 3)
    return st.recursive(
        leaves,
        lambda child: st.one_of(
            st.lists(child, min_size=1, max_size=3).map(spaces.Tuple),
            st.dictionaries(keys, child, min_size=1, max_size=3).map(make_dict),
        ),
        max_leaves=6,
    )


nested = nested_by(spaces.Dict)


@given(space=nested, batched=st.booleans())
def test_joining_what_was_split_gives_the_value_back(space, batched):
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


@given(space=nested_by(lambda found: spaces.Dict(list(found.items()))))
def test_spaces_that_are_made_again_keep_their_order(space):
    """Of leaves, and so of columns and masks, though gymnasium sorts the keys of a dict."""
    assert repr(space_from_data(space_to_data(space))) == repr(space)
    masked = spaces.Dict([("z", space), (MASK_KEY, spaces.MultiBinary(2)), ("a", space)])
    assert repr(without_mask(masked)) == repr(spaces.Dict([("z", space), ("a", space)]))


def test_leaves_are_called_by_their_path():
    """Keys and positions are joined by dots; a space that is not nested has one leaf."""
    box, number = spaces.Box(0, 1, (2,)), spaces.Discrete(3)
    space = spaces.Dict({"hand": spaces.Tuple([box, spaces.Dict({"open": number})]), "eye": box})
    assert leaf_spaces(space) == {"eye": box, "hand.0": box, "hand.1.open": number}
    assert leaf_spaces(box) == {"": box}
    value = space.sample()
    assert split(space, value)["hand.1.open"] == value["hand"][1]["open"]


def test_names_that_clash_are_refused():
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
def test_a_value_of_another_form_is_refused(value, message):
    """The error says which part is wrong."""
    number = spaces.Discrete(2)
    space = spaces.Dict({"a": number, "b": spaces.Tuple([number, number])})
    with pytest.raises(ValueError, match=message):
        split(space, value)


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
def test_kept_dtypes(space, dtype):
    """Images stay bytes, whole numbers whole."""
    rows = ObservationRows(space)
    assert rows.empty(5, 2).shape == (5, 2, *(space.shape or ()))
    assert rows.empty(1).dtype == rows.stored(np.array([space.sample()])).dtype == dtype


def test_one_nested_observation_and_a_batch():
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
        ({"camera": np.zeros((4, 4, 3)), "goal": (None,)}, "obs must be numbers, got None"),
        ({"camera": np.zeros((4, 4, 3)), "goal": ("a",)}, "obs must be numbers, got 'a'"),
    ],
)
def test_other_forms_are_refused(obs, message):
    """The error says what was expected."""
    with pytest.raises(ValueError, match=message):
        ObservationRows(SPACE).batch(obs)


BOX = spaces.Box(np.float32([-1, -2]), np.float32([1, 2]))


def test_rows_of_plain_spaces():
    """What each kind of row means, and that all counts begin at the space's start."""
    cases = [
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


def test_rows_of_nested_spaces():
    """Columns follow the leaves, and actions come nested as the space is."""
    space = spaces.Dict({"move": BOX, "say": spaces.Tuple([spaces.Discrete(3, start=1)] * 2)})
    rows = ActionRows(space)
    actions = rows.to_env(np.float32([[0.5, 7.0, 0.0, 2.0], [0.0, 0.0, 1.0, 1.0]]))
    assert actions["move"].tolist() == [[0.5, 2.0], [0.0, 0.0]]
    assert [part.tolist() for part in actions["say"]] == [[1, 2], [3, 2]]
    assert rows.take(actions, 0)["say"] == (1, 3)
    assert space.contains(rows.take(actions, 1))


def test_masks_of_numbers_become_bools():
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
def test_wrong_masks_are_refused(space, masks, message):
    """The error says what would do, or where nothing is left to choose."""
    with pytest.raises(ValueError, match=message):
        ActionRows(space).check_masks(masks, 1)


def test_other_spaces_are_refused():
    """Text is not an action."""
    with pytest.raises(SpaceError, match=r"actions must be Discrete, .* got Text"):
        ActionRows(spaces.Tuple([spaces.Text(3)]))
