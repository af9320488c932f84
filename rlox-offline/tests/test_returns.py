"""Discounted returns of a dataset's transitions, against sums written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import data
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import DatasetError
from rlox_offline.datasets import Dataset, save_dataset, stream_dataset
from rlox_offline.datasets.columns import discounted_returns

END = st.sampled_from(["on", "on", "terminated", "truncated", "both"])
STEPS = st.lists(st.tuples(st.floats(-10, 10, width=32), END), min_size=1, max_size=20)


def rows_of(steps: list[tuple[float, str]]) -> dict[str, Any]:
    """Return the columns; the recording's end cuts its last episode."""
    ends = np.array([end for _, end in steps])
    terminated = (ends == "terminated") | (ends == "both")
    truncated = (ends == "truncated") | (ends == "both")
    truncated[-1] |= not terminated[-1]
    rewards = np.array([reward for reward, _ in steps], np.float32)
    return {"rewards": rewards, "terminated": terminated, "truncated": truncated}


def summed(rows: dict[str, Any], row: int, gamma: float, scale: float, shift: float) -> float:
    """Return Σ γᵏ r from one row on, repeating a cut episode's last reward until γᵏ vanishes."""
    total, discount = 0.0, 1.0
    for at in range(row, len(rows["rewards"])):
        reward = scale * float(rows["rewards"][at]) + shift
        total += discount * reward
        discount *= gamma
        if rows["terminated"][at]:
            return total
        if rows["truncated"][at]:
            return total + sum(discount * gamma**k * reward for k in range(2_000))
    raise AssertionError("the last episode has no end")


@given(STEPS, st.floats(0, 0.98), st.floats(0.1, 3), st.floats(-2, 2), st.integers(1, 7))
def test_returns_are_the_discounted_sums(
    steps: list[tuple[float, str]], gamma: float, scale: float, shift: float, block: int
) -> None:
    """With scaled rewards, terminations and cuts, and blocks of any size."""
    rows = rows_of(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlox_offline.datasets.columns.BLOCK_ROWS", block)
        found = discounted_returns(rows, gamma, scale, shift)
    assert found.dtype == np.float32
    expected = [summed(rows, row, gamma, scale, shift) for row in range(len(steps))]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_an_episode_without_success_is_worth_that_for_ever() -> None:
    """The rule of Cal-QL's code: every row has r / (1 - γ) if all rewards are r."""
    rows = rows_of([(-1.0, "on"), (-1.0, "on"), (-1.0, "truncated"), (5.0, "terminated")])
    np.testing.assert_allclose(discounted_returns(rows, 0.99), [-100, -100, -100, 5], rtol=1e-6)


@pytest.mark.parametrize("streamed", [False, True])
def test_samples_hold_the_returns_of_their_rows(streamed: bool, tmp_path: Path) -> None:
    """They complement the dataset's sample for the same seed, in memory and in a file."""
    columns = {**data.columns(), "rewards": np.arange(120, dtype=np.float32)}
    dataset: Any = Dataset(columns)
    if streamed:
        pytest.importorskip("rlox_native", reason="the transitions go through the native buffer")
        save_dataset(dataset, tmp_path / "data.npz")
        dataset = stream_dataset(tmp_path / "data.npz", folder=tmp_path, memory=300)
    view = dataset.with_returns(0.9, 2.0, -1.0)
    assert len(view) == 120
    drawn, plain = view.sample(300, 7), dataset.sample(300, 7)
    for name, column in plain.items():
        np.testing.assert_array_equal(drawn[name], column)
    expected = discounted_returns(columns, 0.9, 2.0, -1.0)
    np.testing.assert_array_equal(drawn["returns_to_go"], expected[drawn["rewards"].astype(int)])


@pytest.mark.parametrize("streamed", [False, True])
def test_episodes_out_of_order_have_no_returns(streamed: bool, tmp_path: Path) -> None:
    """A gap within an episode prevents returns, but no other use."""
    columns = data.columns()
    columns["obs"][53:] += 1
    columns["next_obs"][53:] += 1
    dataset: Any = Dataset(columns)
    if streamed:
        pytest.importorskip("rlox_native", reason="the transitions go through the native buffer")
        save_dataset(dataset, tmp_path / "data.npz")
        dataset = stream_dataset(tmp_path / "data.npz")
    with pytest.raises(DatasetError, match=r"row 53 does not begin with .* of row 52; mark"):
        dataset.with_returns(0.9)
    columns["truncated"][52] = True
    assert len(Dataset(columns).with_returns(0.9)) == 120


def test_cut_episodes_need_a_discount() -> None:
    """Without one their returns are unknown; other episodes' are sums."""
    rows = rows_of([(1.0, "on"), (2.0, "terminated")])
    assert discounted_returns(rows, 1.0).tolist() == [3.0, 2.0]
    with pytest.raises(DatasetError, match="choose a gamma below 1"):
        discounted_returns(rows_of([(1.0, "on"), (2.0, "truncated")]), 1.0)


def test_one_transition_has_a_return() -> None:
    """A recording of a single row has no next row to compare."""
    columns = {name: column[:1] for name, column in data.columns().items()}
    assert Dataset(columns).with_returns(0.5).returns_to_go == 2 * columns["rewards"]
