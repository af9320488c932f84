"""Observations of any space as rows of one array, and back, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import SpaceError
from rlox.replay.codecs import ReplayObservations
from rlox.spaces.rows import ObservationRows, map_leaves, split

LEAVES = [
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(-1, 1, (), np.float64),
    spaces.Box(0, 255, (5, 4, 3), np.uint8),
    spaces.Box(0, 255, (3,), np.uint8),
    spaces.Discrete(7, start=-2),
    spaces.MultiDiscrete([3, 5]),
    spaces.MultiBinary(4),
]
leaf = st.sampled_from(LEAVES)
nested = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=5,
)


@given(nested, st.integers(1, 5), st.integers(0, 2**16))
def test_rows_give_back_every_bit(space: Any, count: int, seed: int) -> None:
    """Packing and unpacking is the identity in the kept dtypes; rows have the declared shape."""
    space.seed(seed)
    samples = [split(space, space.sample()) for _ in range(count)]
    obs = map_leaves(lambda *leaves: np.stack(leaves), *samples)
    kept = ObservationRows(space).stored(obs)
    observations = ReplayObservations(space)
    rows = observations.pack(obs)
    assert rows.shape == (count, *observations.shape)
    back = observations.unpack(rows.astype(observations.dtype))

    def equal(a: Any, b: Any) -> bool:
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    same = map_leaves(equal, kept, back)
    assert all(same.values()) if isinstance(same, dict) else same


def test_plain_observations_are_their_own_rows() -> None:
    """Vectors are float32, images uint8, whole numbers int64."""
    expected = [((3,), "float32"), ((5, 4, 3), "uint8"), ((1,), "int64"), ((2,), "int64")]
    made = [ReplayObservations(LEAVES[i]) for i in (0, 2, 4, 5)]
    assert [(o.shape, o.dtype) for o in made] == expected


def test_leaves_of_one_dtype_share_it() -> None:
    """Vectors lie side by side as float32, images as uint8; a part is where its leaf is."""
    goals = ReplayObservations(spaces.Dict({"a": LEAVES[0], "b": LEAVES[6], "c": LEAVES[1]}))
    assert (goals.shape, goals.dtype) == ((8,), "float32")
    assert [goals.part(name) for name in "abc"] == [slice(0, 3), slice(3, 7), slice(7, 8)]
    images = ReplayObservations(spaces.Tuple([LEAVES[2], LEAVES[3]]))
    assert (images.shape, images.dtype) == ((63,), "uint8")
    mixed = ReplayObservations(spaces.Dict({"a": LEAVES[0], "b": LEAVES[4], "c": LEAVES[3]}))
    assert (mixed.shape, mixed.dtype) == ((12 + 8 + 3,), "uint8")
    assert mixed.part("b") == slice(12, 20)
    with pytest.raises(KeyError, match="'d'"):
        goals.part("d")


def test_copies_do_not_change_with_their_source() -> None:
    """What an env writes into its arrays later is not in them."""
    space = spaces.Dict({"a": LEAVES[0], "b": LEAVES[2]})
    obs = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 5, 4, 3), np.uint8)}
    copied = ReplayObservations(space).copy(obs)
    obs["a"][:], obs["b"][:] = 5, 5
    assert copied["a"].max() == copied["b"].max() == 1


def test_spaces_without_arrays_are_refused() -> None:
    """The error names the leaf and the wrapper that helps."""
    with pytest.raises(SpaceError, match=r"got Text\(.*TransformObservation"):
        ReplayObservations(spaces.Dict({"word": spaces.Text(3)}))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_leaves_without_numbers_take_no_columns(dtype: Any) -> None:
    """They come back with their shape, beside leaves of their dtype and of another."""
    space = spaces.Dict(a=spaces.Box(-1, 1, (2, 0)), b=spaces.Box(0, 1, (3,), dtype))
    obs = {"a": np.zeros((4, 2, 0), np.float32), "b": np.ones((4, 3), dtype)}
    observations = ReplayObservations(space)
    assert observations.copy(obs)["a"].shape == (4, 2, 0)
    rows = observations.pack(obs)
    assert (rows.shape, observations.shape) == ((4, 3), (3,))
    back = observations.unpack(rows)
    assert {name: leaf.shape for name, leaf in back.items()} == {"a": (4, 2, 0), "b": (4, 3)}
    np.testing.assert_array_equal(back["b"], obs["b"])
