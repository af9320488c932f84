"""Tests of the reference replay buffers: by hand, and against the Rust buffers where they are."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.kernels.reference import (
    HerReplayBuffer,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)

needs_native = pytest.mark.skipif(
    importlib.util.find_spec("rlox_native") is None, reason="needs rlox-native"
)


def row(k):
    """Return the k-th transition, whose numbers distinguish it from all others."""
    obs = np.array([k, k + 0.25], np.float32)
    return obs, k, -k, k % 3 == 0, k % 2 == 0, obs + 0.5


def filled(cls, n, **options):
    """Return a buffer of four slots after n transitions."""
    buffer = cls(4, 2, 1, seed=0, **options)
    for k in range(n):
        buffer.push(*row(k))
    return buffer


def test_the_oldest_makes_room():
    """Transition k lies in slot k mod capacity."""
    state = filled(ReplayBuffer, 6).state()
    assert state["actions"][:, 0].tolist() == [4, 5, 2, 3]
    assert state["rewards"].tolist() == [-4, -5, -2, -3]
    assert state["next_obs"][:, 0].tolist() == [4.5, 5.5, 2.5, 3.5]
    assert (state["terminated"].tolist(), state["position"].tolist()) == ([0, 0, 0, 1], [2])


def test_a_seed_gives_the_rows_of_numpy():
    """``integers(len, size=B)`` of the seed's generator; without, the buffer's stream goes on."""
    buffer = filled(ReplayBuffer, 4)
    expected = np.random.default_rng(3).integers(4, size=9)
    assert buffer.sample(9, seed=3)["actions"][:, 0].tolist() == expected.tolist()
    rng = np.random.default_rng(0)
    for _ in range(2):
        assert buffer.sample(3)["actions"][:, 0].tolist() == rng.integers(4, size=3).tolist()


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (list, TypeError, "out must be a dict of arrays, got list"),
        (lambda batch: {**batch, "obs": [1]}, TypeError, "obs must be a NumPy array, got list"),
        (lambda batch: {**batch, "obs": np.zeros((3, 2))}, TypeError, "obs must have dtype fl"),
        (lambda batch: {**batch, "obs": batch["obs"][1:]}, ValueError, "obs must have shape .3, 2"),
        (lambda batch: {**batch, "obs": batch["next_obs"]}, ValueError, "next_obs must not share"),
        (lambda batch: {**batch, "x": batch["obs"]}, ValueError, "out must have the keys obs, "),
    ],
)
def test_arrays_that_do_not_fit_are_refused(cls, change, error, message):
    """As the Rust buffers refuse them, and nothing is written."""
    buffer = filled(cls, 4)
    out = buffer.sample(3, seed=0)
    before = out["rewards"].copy()
    with pytest.raises(error, match=f"^{message}"):
        buffer.sample(3, seed=1, out=change(out))
    assert out["rewards"].tolist() == before.tolist()
    assert buffer.sample(3, seed=1, out=out) is out


def test_strata_fall_in_proportion_to_priorities():
    """Priorities 1, 2, 5 of sum 8 in eight strata, α = β = 1: weights 1, 1/2, 1/5; then β = 1/2."""
    buffer = filled(PrioritizedReplayBuffer, 3, alpha=1.0, beta=1.0)
    buffer.update_priorities([0, 1, 1, 2], [1, 9, 2, 5])
    batch = buffer.sample(8)
    assert batch["indices"].tolist() == [0, 1, 1, 2, 2, 2, 2, 2]
    np.testing.assert_allclose(batch["weights"], [1, 0.5, 0.5] + 5 * [0.2], rtol=1e-6)
    buffer.set_beta(0.5)
    np.testing.assert_allclose(buffer.sample(8)["weights"], batch["weights"] ** 0.5, rtol=1e-6)


def test_unknown_next_observations_are_refused():
    """Until the transition without one is gone."""
    buffer = filled(ReplayBuffer, 1)
    buffer.push(*row(1)[:5])
    with pytest.raises(KeyError, match="pushed without next_obs"):
        buffer.sample(1)["next_obs"]
    for k in range(4):
        buffer.push(*row(k))
    assert buffer.sample(1)["next_obs"].shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0], 0, 0, False, False), ValueError, r"obs must have shape \(2,\), got \(1,\)"),
        (([0.0, np.nan], 0, 0, False, False), ValueError, "obs must be finite"),
        (([0.0, 1e39], 0, 0, False, False), ValueError, "obs must fit float32"),
        ((["a", "b"], 0, 0, False, False), TypeError, "obs must hold real numbers"),
        (([0.0, 0.0], 0, np.inf, False, False), ValueError, "reward must be finite"),
    ],
)
def test_a_bad_transition_is_refused(arguments, error, message):
    """By name, and nothing is stored."""
    for cls in (ReplayBuffer, PrioritizedReplayBuffer):
        buffer = cls(4, 2, 1)
        with pytest.raises(error, match=message):
            buffer.push(*arguments)
        assert len(buffer) == 0


@pytest.mark.parametrize("priority", [np.nan, np.inf, 1e39])
def test_a_bad_priority_is_refused(priority):
    """Before anything changes."""
    buffer = filled(PrioritizedReplayBuffer, 2)
    before = buffer.state()
    with pytest.raises(ValueError, match="priorities must be finite"):
        buffer.update_priorities([0, 1], [3.0, priority])
    with pytest.raises(ValueError, match="priority must be finite"):
        buffer.push(*row(2), priority=priority)
    with pytest.raises(ValueError, match=r"indices must lie in \[0, 2\)"):
        buffer.update_priorities([2], [1.0])
    assert_same(before, buffer.state())


def test_the_sizes_of_errors_are_priorities():
    """With either sign, and never so small that a transition is lost."""
    buffer = filled(PrioritizedReplayBuffer, 2, alpha=1.0)
    buffer.push(*row(2), priority=-3.0)
    buffer.update_priorities([0, 1], [-0.5, 0.0])
    assert buffer.state()["priorities"].tolist() == [0.5, 1e-6, 3.0]


def test_a_state_of_other_envs_is_refused():
    """Steps of one env would be taken for those of another."""
    options = {"distance_threshold": 0.1}
    for of_two, of_one in (
        (ReplayBuffer(4, 2, 1, n_envs=2), ReplayBuffer(4, 2, 1)),
        (HerReplayBuffer(4, 2, 1, 1, n_envs=2, **options), HerReplayBuffer(4, 2, 1, 1, **options)),
    ):
        assert (of_two.n_envs, of_one.n_envs) == (2, 1)
        with pytest.raises(ValueError, match="n_envs must be 2 as in the state, got 1"):
            of_one.set_state(of_two.state())
        of_two.set_state({key: array for key, array in of_two.state().items() if key != "n_envs"})


def assert_same(a, b):
    """Check that two dicts have the same keys, types and numbers."""
    assert list(a) == list(b)
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key, strict=True)


@needs_native
@given(
    capacity=st.integers(1, 9),
    actions=st.lists(
        st.sampled_from(
            ["push", "push_batch", "partial", "sample", "seeded", "sequences", "update", "resume"]
        ),
        min_size=10,
        max_size=25,
    ),
    prioritized=st.booleans(),
    n_step=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_rust_does_what_the_reference_does(capacity, actions, prioritized, n_step, seed):
    """The same calls give the same batches and the same states."""
    import rlox_native

    if prioritized:
        classes = PrioritizedReplayBuffer, rlox_native.PrioritizedReplayBuffer
        # with α = 1 and priorities in eighths every sum is exact, in any order
        pair = [
            cls(capacity, 2, 1, alpha=1.0, beta=0.5, n_step=n_step, seed=seed) for cls in classes
        ]
    else:
        classes = ReplayBuffer, rlox_native.ReplayBuffer
        pair = [cls(capacity, 2, 1, n_step=n_step, seed=seed) for cls in classes]
    rng = np.random.default_rng(seed)
    for k, action in enumerate(["push", *actions]):
        if action == "push":
            [buffer.push(*row(k)) for buffer in pair]
        elif action == "partial":
            [buffer.push(*row(k)[:5]) for buffer in pair]
        elif action == "push_batch":
            rows = [
                np.array(values) for values in zip(*(row(k + i) for i in range(5)), strict=True)
            ]
            results = [buffer.push_batch(*rows) for buffer in pair]
        elif action in ("sample", "seeded"):
            results = [buffer.sample(7, k if action == "seeded" else None) for buffer in pair]
            assert_same(*results)
        elif action == "sequences":
            assert_same(*[buffer.sample_sequences(4, 3) for buffer in pair])
            if len(pair[0]) > 2:
                assert_same(
                    *[buffer.sample_sequences(4, 3, k, cross_episodes=True) for buffer in pair]
                )
        elif action == "update" and prioritized:
            indices, priorities = rng.integers(len(pair[0]), size=6), rng.integers(1, 64, 6) / 8
            results = [buffer.update_priorities(indices, priorities) for buffer in pair]
        elif action == "resume":
            states = [buffer.state() for buffer in pair]
            for buffer, state in zip(pair, reversed(states), strict=True):
                buffer.set_state(state)
        assert_same(pair[0].state(), pair[1].state())


def dataset(lengths, seed):
    """Return the parts of a dataset with episodes of these lengths."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    ends = np.isin(np.arange(n), np.cumsum(lengths) - 1)
    return {
        "obs": rng.normal(size=(n, 2)),
        "next_obs": rng.normal(size=(n, 2)),
        "actions": rng.integers(3, size=n),
        "rewards": rng.normal(size=n),
        "terminated": ends,
        "truncated": ends & (rng.random(n) < 0.5),
    }


@needs_native
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    normalize=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_rust_draws_the_dataset_as_the_reference_does(lengths, normalize, seed):
    """Transitions, trajectories and statistics, over calls of both kinds."""
    import rlox_native

    parts = dataset(lengths, seed)
    pair = [
        cls(**parts, normalize=normalize, seed=seed)
        for cls in (OfflineDatasetBuffer, rlox_native.OfflineDatasetBuffer)
    ]
    for draw in (
        lambda data: data.sample(7),
        lambda data: data.sample_trajectories(5, 4),
        lambda data: data.sample_trajectories(3, 1, seed=1),
        lambda data: data.state(),
    ):
        batches = [draw(data) for data in pair]
        assert list(batches[0]) == list(batches[1])
        for key, array in batches[0].items():
            assert array.dtype == batches[1][key].dtype
            # the moments are sums in another order
            np.testing.assert_allclose(array, batches[1][key], rtol=1e-6, atol=1e-6, err_msg=key)
    stats = [data.stats() for data in pair]
    assert list(stats[0]) == list(stats[1])
    assert stats[0] == pytest.approx(stats[1])
    pair[0].set_state(pair[1].state())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.full((4, 2), np.nan)}, "obs must be finite"),
        ({"obs": np.zeros(7)}, "obs must hold as many numbers for each of 4 rewards"),
        ({"obs_dim": 3}, r"obs must have shape \(4, 3\)"),
        ({"terminated": [1, 0, 0, 0], "truncated": [0] * 4}, "the last transition, 3, ends no"),
        ({"obs": np.zeros((4, 2), np.uint8), "next_obs": np.zeros((4, 2)), "normalize": True},
         "normalize needs observations of floats, got uint8"),
        ({"rewards": []}, "rewards must hold at least 1 number"),
    ],
)  # fmt: skip
def test_a_malformed_dataset_is_refused(change, message):
    """The array is named."""
    with pytest.raises(ValueError, match=message):
        OfflineDatasetBuffer(**dataset([3, 1], 0) | change)


def test_spans_stop_at_the_end_of_an_episode_and_at_the_newest_step():
    """Rewards 1, 2, 4 of two envs in turn, γ = 1/2; env 0 is truncated after 2 steps."""
    buffer = ReplayBuffer(6, 1, 1, n_envs=2, n_step=3, gamma=0.5, seed=0)
    for k, reward in enumerate([1, 2, 4]):
        ids = np.array([[2 * k], [2 * k + 1]])
        ends = [k == 1, False]
        buffer.push_batch(ids, ids, [reward] * 2, [False] * 2, ends, ids + 0.5)
    batch = buffer.sample(200, seed=0)
    spans = zip(batch["actions"][:, 0], batch["rewards"], batch["discounts"], strict=True)
    assert {int(first): (reward, discount) for first, reward, discount in spans} == {
        0: (2.0, 0.25), 1: (3.0, 0.125), 2: (2.0, 0.5), 3: (4.0, 0.25), 4: (4.0, 0.5), 5: (4.0, 0.5)
    }  # fmt: skip


@pytest.mark.parametrize("options", [{"n_step": 0}, {"n_envs": 5}, {"gamma": 1.5}])
def test_impossible_spans_are_refused(options):
    """By name; and so are the steps of some envs alone."""
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        ReplayBuffer(4, 1, 1, **options)
    with pytest.raises(ValueError, match="multiples of 2, got 1"):
        ReplayBuffer(4, 1, 1, n_envs=2).push(0, 0, 0, False, False, 0)


def test_a_sequence_ends_with_its_episode_or_crosses_it():
    """Steps 0 to 4, a termination after 2; two steps are too few for a whole sequence of three."""
    buffer = ReplayBuffer(8, 1, 1, seed=0)
    for k in range(5):
        buffer.push(k, k, k, k == 2, False, k + 0.5)
    for cross, expected in (
        (False, {(0, 1, 2), (1, 2, -1), (2, -1, -1), (3, 4, -1), (4, -1, -1)}),
        (True, {(0, 1, 2), (1, 2, 3), (2, 3, 4)}),
    ):
        batch = buffer.sample_sequences(99, 3, seed=0, cross_episodes=cross)
        steps = np.where(batch["mask"], batch["actions"][..., 0], -1).astype(int)
        assert {tuple(row) for row in steps.tolist()} == expected
        np.testing.assert_array_equal(batch["is_first"], (steps == 0) | (steps == 3))
    with pytest.raises(RuntimeError, match="at least 6 stored transitions, got 5"):
        buffer.sample_sequences(1, 6, cross_episodes=True)


@pytest.mark.parametrize("wrap", [np.array, list])
def test_a_transition_may_come_in_arrays_of_one_element(wrap):
    """As envs that think in batches give it; a bool is no size."""
    buffer = ReplayBuffer(9, 2, 1)
    buffer.push([1, 2], wrap([3.0]), wrap([4.0]), wrap([True]), wrap([0]), [5, 6])
    batch = buffer.sample(1)
    assert (batch["rewards"], batch["terminated"], batch["truncated"]) == (4, True, False)
    with pytest.raises(ValueError, match=r"reward must have shape \(\), got \(2,\)"):
        buffer.push([1, 2], 3.0, np.ones(2), True, False)
    with pytest.raises(TypeError, match="batch_size must be an integer, got bool"):
        buffer.sample(True)
