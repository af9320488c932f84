"""The offline dataset against slices of its arrays; its errors, statistics and streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import OfflineDatasetBuffer


def recording(lengths, obs_shape=(2,), seed=0):
    """The parts of a dataset with episodes of these lengths."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    ends = np.zeros(n, bool)
    ends[np.cumsum(lengths) - 1] = True
    by_truncation = rng.random(n) < 0.5
    return {
        "obs": rng.normal(3, 2, (n, *obs_shape)).astype(np.float32),
        "next_obs": rng.normal(3, 2, (n, *obs_shape)).astype(np.float32),
        "actions": np.arange(n, dtype=np.float32)[:, None],
        "rewards": rng.integers(-4, 9, n).astype(np.float32),
        "terminated": ends & ~by_truncation,
        "truncated": ends & by_truncation,
    }


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    shape=st.sampled_from([(1,), (2,), (2, 3)]),
    flat=st.booleans(),
    batch_size=st.integers(1, 20),
    seq_len=st.integers(1, 12),
    seed=st.integers(0, 2**64 - 1),
)
def test_draws_are_slices_of_the_arrays(lengths, shape, flat, batch_size, seq_len, seed):
    """Transitions and trajectories begin at NumPy's draws and end with their episode."""
    parts = recording(lengths, shape)
    given_ = {k: v.ravel() if flat else v for k, v in parts.items()}
    data = OfflineDatasetBuffer(**given_, obs_dim=shape if flat else None)
    first = np.random.default_rng(seed).integers(len(data), size=batch_size)
    batch = data.sample(batch_size, seed)
    assert batch.keys() == parts.keys()
    for key, array in batch.items():
        np.testing.assert_array_equal(array, parts[key][first], err_msg=key, strict=True)

    pieces = data.sample_trajectories(batch_size, seq_len, seed)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    for row, start in enumerate(first):
        episode = np.searchsorted(bounds, start, side="right")
        begin, end = bounds[episode - 1], bounds[episode]
        there = min(seq_len, end - start)
        for key in ("obs", "actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(
                pieces[key][row, :there], parts[key][start : start + there]
            )
            assert not pieces[key][row, there:].any()
        assert pieces["mask"][row].tolist() == [True] * there + [False] * (seq_len - there)
        assert pieces["timesteps"][row, :there].tolist() == list(
            range(start - begin, start - begin + there)
        )
        to_go = [parts["rewards"][k:end].sum() for k in range(start, start + there)]
        assert pieces["returns_to_go"][row, :there].tolist() == to_go
    assert pieces["returns_to_go"].dtype == np.float32
    assert pieces["timesteps"].dtype == np.int64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalized_observations_have_the_exposed_statistics(dtype):
    """(obs - obs_mean) / obs_std, for obs, next_obs and trajectories; raw without normalize."""
    parts = recording([40, 60], (3,))
    parts["obs"][:, 1] = 7.0  # constant: divided by the epsilon alone
    data = OfflineDatasetBuffer(**parts, normalize=True, obs_dtype=dtype)
    obs = parts["obs"].astype(np.float64)
    np.testing.assert_allclose(data.obs_mean, obs.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.obs_std, obs.std(0) + 1e-3, rtol=1e-12)
    batch, raw = data.sample(64, seed=1), OfflineDatasetBuffer(**parts).sample(64, seed=1)
    for key in ("obs", "next_obs"):
        assert batch[key].dtype == dtype
        expected = (raw[key].astype(np.float64) - data.obs_mean) / data.obs_std
        np.testing.assert_allclose(batch[key], expected.astype(dtype), rtol=1e-6)
    piece = data.sample_trajectories(1, 1, seed=1)
    np.testing.assert_array_equal(piece["obs"][0, 0], batch["obs"][0])
    assert OfflineDatasetBuffer(**parts).obs_mean is None
    assert OfflineDatasetBuffer(**parts).obs_std is None


def test_stats_of_two_episodes_by_hand():
    """Returns 3 and 5 in 2 and 1 steps."""
    data = OfflineDatasetBuffer(np.zeros((3, 4, 2)), np.zeros((3, 4, 2)), [1, 0, 1], [1, 2, 5],
                                [False, False, True], [0, 1, 0])  # fmt: skip
    assert data.stats() == {
        "n_transitions": 3, "n_episodes": 2, "obs_dim": 8, "act_dim": 1,
        "mean_return": 4.0, "std_return": 1.0, "min_return": 3.0, "max_return": 5.0,
        "mean_episode_length": 1.5, "std_episode_length": 0.5,
        "min_episode_length": 1, "max_episode_length": 2,
    }  # fmt: skip
    assert repr(data) == "OfflineDatasetBuffer of 3 transitions in 2 episodes"


def test_types_follow_the_arrays_unless_they_are_given():
    """uint8 stays, other observations are float32; whole actions are int64, others float32."""
    parts = recording([4])

    def dtypes(obs, actions, **options):
        given = {"obs": obs, "next_obs": obs, "actions": actions}
        batch = OfflineDatasetBuffer(**parts | given, **options).sample(1)
        return batch["obs"].dtype, batch["actions"].dtype

    obs = np.ones((4, 2))
    assert dtypes(obs.astype(np.uint8), [0, 1, 2, 3]) == (np.uint8, np.int64)
    assert dtypes(obs, [0.0, 1, 2, 3]) == (np.float32, np.float32)
    options = {"obs_dtype": "float64", "act_dtype": "float32"}
    assert dtypes(obs.astype(np.int8), [0, 1, 2, 3], **options) == (np.float64, np.float32)


NAN = np.full((4, 2), np.nan)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"obs": NAN}, ValueError, "obs must be finite, .* at index 0"),
        ({"rewards": [1, 2, np.inf, 3]}, ValueError, "rewards must be finite, .* index 2"),
        ({"rewards": []}, ValueError, "rewards must hold at least 1 number, got 0"),
        ({"obs": np.zeros((5, 2))}, ValueError, r"obs must have shape \(4, 2\) .* got \(5, 2\)"),
        ({"obs": np.zeros(7)}, ValueError, r"obs must hold as many .* of 4 rewards, got shape \[7"),
        ({"obs_dim": 3}, ValueError, r"obs must have shape \(4, 3\) like rewards, got \(4, 2\)"),
        ({"next_obs": np.zeros((4, 3))}, ValueError, r"next_obs must have shape \(4, 2\)"),
        ({"actions": ["a"] * 4}, TypeError, "actions must hold real numbers"),
        ({"truncated": [0] * 4, "terminated": [1, 0, 0, 0]}, ValueError,
         r"the last transition, 3, ends no episode; set truncated\[3\]"),
        ({"obs": np.zeros((4, 2), np.uint8), "next_obs": np.zeros((4, 2)), "normalize": True},
         ValueError, "normalize needs observations of floats, got uint8; pass obs_dtype='float32'"),
        ({"obs_dim": 2**40, "obs": np.zeros(4)}, ValueError, r"obs must have shape \(4, 10995"),
    ],
)  # fmt: skip
def test_a_malformed_dataset_is_refused(change, error, message):
    """The error has the array's name, requirement and value."""
    with pytest.raises(error, match=message):
        OfflineDatasetBuffer(**recording([3, 1]) | change)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, 0), ValueError, "seq_len must be at least 1, got 0"),
        ((1, 1.5), TypeError, "seq_len must be an integer, got float"),
        ((2**20, 2**25), MemoryError, "allocate"),
    ],
)
def test_a_bad_draw_is_refused_and_moves_no_stream(arguments, error, message):
    """Sizes and seed are checked before anything is drawn."""
    data = OfflineDatasetBuffer(**recording([3, 1]))
    before = data.state()["rng"].tolist()
    with pytest.raises(error, match=message):
        data.sample_trajectories(*arguments)
    assert data.state()["rng"].tolist() == before


def test_the_stream_goes_on_from_a_saved_state():
    """The only changing part, for both kinds of draw."""
    data, other = (OfflineDatasetBuffer(**recording([9, 5])) for _ in range(2))
    data.sample(3), data.sample_trajectories(2, 4)
    other.set_state(data.state())
    for _ in range(3):
        np.testing.assert_array_equal(data.sample(5)["actions"], other.sample(5)["actions"])
        pieces = (each.sample_trajectories(5, 3)["actions"] for each in (data, other))
        np.testing.assert_array_equal(*pieces)
    for state, message in (({}, "state must have the keys rng"), ({"rng": np.zeros(6)}, "valid")):
        with pytest.raises(ValueError, match=message):
            data.set_state(state)


def test_more_memory_than_the_machine_has_is_refused_at_once():
    """Before anything is copied."""
    n = 10**7
    obs, zeros = np.broadcast_to(np.float32(0), (n, 10**5)), np.broadcast_to(np.float32(0), n)
    with pytest.raises(MemoryError, match=r"number of transitions = 10000000: .* take 7.* GiB"):
        OfflineDatasetBuffer(obs, obs, zeros, zeros, zeros, zeros)
