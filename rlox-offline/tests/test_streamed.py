"""A dataset in a file draws what the same dataset in memory draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import data
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import DatasetError
from rlox_offline.datasets import Dataset, StreamedDataset, save_dataset, stream_dataset
from rlox_offline.datasets.columns import _joined, complete, whole_episodes

pytest.importorskip("rlox_native", reason="the transitions go through the native buffer")


def require_same(streamed: StreamedDataset, dataset: Dataset) -> None:
    """Compare draws, statistics and metadata."""
    assert len(streamed) == len(dataset)
    assert streamed.metadata() == dataset.metadata()
    assert streamed.n_terminated == dataset.n_terminated
    assert streamed.stats() == pytest.approx(dataset.stats())
    for name in ("episode_returns", "episode_lengths", "initial_obs", "obs_mean", "obs_std"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(dataset, name), rtol=1e-6)
    ours, theirs = streamed.sample(300, seed=3), dataset.sample(300, seed=3)
    assert ours.keys() == theirs.keys()
    for name, column in ours.items():
        assert column.dtype == theirs[name].dtype
        np.testing.assert_allclose(column, theirs[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("suffix", "make"), [*zip(data.FORMATS, [data.continuous, data.discrete] * 2, strict=True)]
)
def test_every_format_streams(suffix: str, make: Any, tmp_path: Path) -> None:
    """Memory holds a few transitions, so nearly all draws come from the file."""
    dataset = make(env_id="Pendulum-v1", random_return=-1200.0, expert_return=-150)
    save_dataset(dataset, tmp_path / f"data{suffix}")
    streamed = stream_dataset(tmp_path / f"data{suffix}", folder=tmp_path, memory=300)
    assert len(list(tmp_path.iterdir())) == 2
    require_same(streamed, dataset)
    streamed.close()
    assert len(list(tmp_path.iterdir())) == 1


def pieces_of(columns: dict[str, Any], sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Yield pieces of the given sizes, and the rest."""
    edges = np.cumsum([0, *sizes])
    for start, end in zip(edges, [*edges[1:], None], strict=True):
        piece = {name: column[start:end] for name, column in columns.items()}
        if len(piece["rewards"]):
            yield piece


@given(
    st.lists(st.sampled_from(["on", "on", "terminated", "truncated"]), min_size=1, max_size=25),
    st.lists(st.integers(1, 8), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_pieces_come_to_the_whole(
    kinds: list[str], sizes: list[int], with_next: bool, with_truncated: bool
) -> None:
    """For any split of a recording, the columns equal those of the whole."""
    n = len(kinds)
    columns: dict[str, Any] = {
        "obs": np.arange(n, dtype=np.float32)[:, None],
        "actions": np.zeros((n, 1), np.float32),
        "rewards": np.arange(n, dtype=np.float32),
        "terminated": np.array([kind == "terminated" for kind in kinds]),
    }
    if with_truncated:
        columns["truncated"] = np.array([kind == "truncated" for kind in kinds])
    if with_next:
        columns["next_obs"] = columns["obs"] + 0.5
    try:
        expected = complete(columns)
    except DatasetError:
        expected = None
    try:
        found = list(whole_episodes(pieces_of(columns, sizes)))
    except DatasetError:
        found = []
    assert bool(found) == (expected is not None)
    for name, column in (expected or {}).items():
        np.testing.assert_array_equal(np.concatenate([f[name] for f in found]), column)


def test_pieces_of_a_long_episode_are_joined_once() -> None:
    """Joining them again at every piece would take minutes for a million rows."""
    piece = {name: np.zeros(100, np.float32) for name in ("obs", "actions", "rewards")}
    last = {**piece, "terminated": np.arange(100) == 99}
    pieces = [{**piece, "terminated": np.zeros(100, np.bool_)}] * 50 + [last]
    with mock.patch("rlox_offline.datasets.columns._joined", wraps=_joined) as joined:
        assert [len(each["obs"]) for each in whole_episodes(iter(pieces))] == [5_100]
    assert joined.call_count == 1


def test_bad_columns_are_refused(tmp_path: Path) -> None:
    """As in memory, and the temporary file is deleted."""
    np.savez(tmp_path / "bad.npz", **{**data.columns(), "actions": np.zeros((119, 2))})
    with pytest.raises(DatasetError, match="rows, but rewards has"):
        stream_dataset(tmp_path / "bad.npz", folder=tmp_path, act_low=-2.0, act_high=2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]
