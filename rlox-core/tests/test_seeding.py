"""Tests of :mod:`rlox.seeding`."""

import json

import numpy as np
import pytest
from rlox.errors import CheckpointError, ConfigError
from rlox.seeding import SeedStreams, parse_seeds


def test_streams_do_not_depend_on_each_other():
    """Drawing from one stream leaves the others as they were."""
    lone, busy = SeedStreams(7), SeedStreams(7)
    busy.numpy("other").random(1000)
    assert lone.numpy("envs").random() == busy.numpy("envs").random()


@pytest.mark.parametrize(("seed", "name"), [(8, "envs"), (7, "env"), (7, "")])
def test_other_seed_or_name_gives_other_draws(seed, name):
    """Neighbouring seeds and names share nothing."""
    reference = SeedStreams(7).numpy("envs").integers(0, 2**32, 64)
    other = SeedStreams(seed).numpy(name).integers(0, 2**32, 64)
    assert not np.intersect1d(reference, other).size


def test_seeds_are_stable_and_extend():
    """More seeds of one stream begin with the fewer."""
    streams = SeedStreams(3)
    assert streams.seeds("envs", 2) == streams.seeds("envs", 2) == streams.seeds("envs", 5)[:2]
    assert all(0 <= seed < 2**32 for seed in streams.seeds("envs", 50))
    assert len(set(streams.seeds("envs", 50))) == 50


def test_stream_values_are_pinned():
    """Another platform or release must draw the same numbers.

    The values are NumPy's for ``SeedSequence(42, spawn_key=words)`` with the first four
    little-endian words of sha256("envs"); a change breaks the reproduction of published runs.
    """
    words = (4243546717, 766599953, 4119275242, 783147392)
    expected = np.random.SeedSequence(42, spawn_key=words).generate_state(3).tolist()
    assert SeedStreams(42).seeds("envs", 3) == expected


def test_state_round_trip_continues_every_stream():
    """Restored streams draw what the saved ones draw next, also through JSON."""
    streams = SeedStreams(5)
    streams.numpy("a").random(3)
    streams.numpy("b").standard_normal(5)
    saved = json.loads(json.dumps(streams.state_dict()))
    expected = [streams.numpy(name).random(4).tolist() for name in "ab"]
    other = SeedStreams(99)
    other.load_state_dict(saved)
    assert other.seed == 5
    assert [other.numpy(name).random(4).tolist() for name in "ab"] == expected


@pytest.mark.parametrize(
    "state",
    [
        {"numpy": {}, "torch": {}},
        {"seed": "x", "numpy": {}, "torch": {}},
        {"seed": float("inf"), "numpy": {}, "torch": {}},
        {"seed": 1, "numpy": [], "torch": {}},
        {"seed": 1, "numpy": {"a": 3}, "torch": {}},
        {"seed": 1, "numpy": {"a": {"bit_generator": "MT19937"}}, "torch": {}},
        {"seed": 1, "numpy": {"a": {"bit_generator": "PCG64", "state": {}}}, "torch": {}},
    ],
)
def test_wrong_state_is_a_checkpoint_error(state):
    """Whatever is wrong with a saved state, the error is the same."""
    with pytest.raises(CheckpointError, match="random stream cannot be restored"):
        SeedStreams(0).load_state_dict(state)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0..4", (0, 1, 2, 3, 4)), ("0,3,7", (0, 3, 7)), ("3", (0, 1, 2)), ("3..3", (3,)),
        ("0..2, 9,4..5", (0, 1, 2, 9, 4, 5)), ("4294967295..4294967295", (4294967295,)),
    ],
)  # fmt: skip
def test_seeds_are_ranges_and_numbers(text, seeds):
    """A number alone is a count; ranges include both ends, and the order is kept."""
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text",
    ["", "a", "1.5", "0..", "..3", "3..1", "-1", "0,", "0..1e3", "0..10000", "9" * 11, "0", "0 1"],
)
def test_other_texts_are_no_seeds(text):
    """The error shows the form and the text."""
    with pytest.raises(ConfigError, match=r"^seeds must look like 5, 0\.\.4 or 0,3,7") as caught:
        parse_seeds(text)
    assert repr(text) in str(caught.value)


def test_seed_named_twice_is_refused():
    """One run per seed: the second would go into the first one's folder."""
    with pytest.raises(
        ConfigError, match=r"^each seed may be named once, got 2 twice in '0\.\.3,2'$"
    ):
        parse_seeds("0..3,2")
