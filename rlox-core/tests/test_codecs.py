"""Tests of :mod:`rlox.replay.codecs`: what replay buffers keep of observations and actions."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import SpaceError
from rlox.replay.codecs import BoxActions, DiscreteActions, ReplayObservations, make_actions
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
def test_rows_give_back_every_bit(space, count, seed):
    """Packing and unpacking is the identity in the kept dtypes; rows have the declared shape."""
    space.seed(seed)
    samples = [split(space, space.sample()) for _ in range(count)]
    obs = map_leaves(lambda *leaves: np.stack(leaves), *samples)
    kept = ObservationRows(space).stored(obs)
    observations = ReplayObservations(space)
    rows = observations.pack(obs)
    assert rows.shape == (count, *observations.shape)
    back = observations.unpack(rows.astype(observations.dtype))

    def equal(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

    same = map_leaves(equal, kept, back)
    assert all(same.values()) if isinstance(same, dict) else same


def test_leaves_of_one_dtype_share_it():
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


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_leaves_without_numbers_take_no_columns(dtype):
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


def test_every_dimension_of_a_box_has_its_own_scale():
    """-1, 0 and 1 are the lower bound, the middle and the upper bound, dimension by dimension."""
    low, high = np.array([0.0, -3.0], np.float32), np.array([0.5, 1.0], np.float32)
    actions = make_actions(spaces.Box(low, high))
    assert isinstance(actions, BoxActions)
    assert (actions.shape, actions.dtype) == ((2,), "float32")
    given_ = np.array([[-1, -1], [0, 0], [1, 1], [-1, 1]], np.float32)
    expected = np.array([[0, -3], [0.25, -1], [0.5, 1], [0, 1]], np.float32)
    np.testing.assert_allclose(actions.to_env(given_), expected, rtol=1e-6)


@given(st.floats(-1e6, 1e6, width=32), st.floats(0, 1e6, width=32), st.floats(-1, 1, width=32))
def test_actions_of_a_box_stay_in_it(low, width, action):
    """However bounds and actions round, the env's action is within its space, of its type."""
    space = spaces.Box(np.float32(low), np.float32(np.float32(low) + np.float32(width)), (1,))
    taken = BoxActions(space).to_env(np.array([[action]], np.float32))
    assert space.contains(taken[0])


def test_random_actions_cover_the_space():
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
        (spaces.Box(-1.7e308, 1.7e308, (1,), np.float64), "must be bounded, got .*1.7e"),
        (spaces.Box(-1, 1, (2, 2)), "a one-dimensional Box, got"),
        (spaces.Box(0, 3, (2,), np.int64), "must be real numbers, got"),
        (spaces.MultiDiscrete([2, 2]), "must be Discrete or a one-dimensional Box, got"),
    ],
)
def test_other_spaces_are_refused(space, message):
    """The error names the space and the remedy."""
    with pytest.raises(SpaceError, match=message):
        make_actions(space)
