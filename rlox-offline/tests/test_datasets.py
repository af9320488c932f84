"""Datasets from every format are equal, and bad ones are refused with a reason."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import data
import gymnasium
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather
from rlox.errors import DatasetError
from rlox_offline.datasets import Dataset, load_dataset, save_dataset, stream_dataset

NATIVE = pytest.mark.skipif(
    find_spec("rlox_native") is None, reason="what is streamed goes through the native buffer"
)
LOADERS = [load_dataset, pytest.param(stream_dataset, marks=NATIVE)]


def require_equal(left: Dataset, right: Dataset) -> None:
    """Compare columns bit by bit, and the metadata."""
    assert left.metadata() == right.metadata()
    assert left.columns.keys() == right.columns.keys()
    for name, column in left.columns.items():
        assert column.dtype == right.columns[name].dtype
        np.testing.assert_array_equal(column, right.columns[name])


@pytest.mark.parametrize(
    ("suffix", "make"), [*zip(data.FORMATS, [data.discrete, data.continuous] * 2, strict=True)]
)
def test_every_format_gives_back_what_was_saved(suffix: str, make: Any, tmp_path: Path) -> None:
    """Columns, types and metadata."""
    dataset = make(env_id="Pendulum-v1", random_return=-1200.0, expert_return=-150)
    path = tmp_path / "new" / f"data{suffix}"
    save_dataset(dataset, path)
    require_equal(dataset, load_dataset(path))


@pytest.fixture
def minari_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minari's folder for this test."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


@pytest.mark.usefixtures("minari_folder")
@pytest.mark.filterwarnings("ignore")
def test_minari_gives_back_what_was_created() -> None:
    """With the env's bounds and the reference scores."""
    columns = data.columns(act_dim=1)
    columns |= {name: np.tanh(columns[name]) for name in ("obs", "next_obs")}  # in the env's space
    ends = columns["terminated"] | columns["truncated"]
    # Minari keeps one row of observations per episode, so next_obs is the next row's
    follows = np.concatenate([columns["obs"][1:], columns["obs"][-1:]])
    columns["next_obs"] = np.where(ends[:, None], columns["next_obs"], follows)
    known = {"act_low": -2.0, "act_high": 2.0, "env_id": "Pendulum-v1"}
    dataset = Dataset(columns, **known, random_return=-1200.0, expert_return=-150.0)
    save_dataset(dataset, "minari:pendulum/test-v0")
    require_equal(dataset, load_dataset("minari:pendulum/test-v0"))
    shuffled = Dataset({**columns, "next_obs": columns["obs"]}, **known)
    with pytest.raises(DatasetError, match="next_obs of row 0 is not obs of row 1"):
        save_dataset(shuffled, "minari:pendulum/shuffled-v0")
    with pytest.raises(DatasetError, match="already"):
        save_dataset(dataset, "minari:pendulum/test-v0")
    with pytest.raises(DatasetError, match=r"no local .* 'pendulum/none-v0' \(there are: pendulum"):
        load_dataset("minari:pendulum/none-v0")


@pytest.mark.usefixtures("minari_folder")
@pytest.mark.filterwarnings("ignore")
def test_minari_episodes_that_were_broken_off_are_cut() -> None:
    """Minari marks neither termination nor truncation where recording stopped."""
    import minari
    from minari.data_collector import EpisodeBuffer

    env = gymnasium.make("CartPole-v1")
    buffers = [
        EpisodeBuffer(
            observations=env.observation_space.sample()[None] + np.zeros((4, 1), np.float32),
            actions=np.array([0, 1, 0]),
            rewards=np.ones(3),
            terminations=np.array([False, False, terminated]),
            truncations=np.zeros(3, bool),
        )
        for terminated in (True, False)
    ]
    minari.create_dataset_from_buffers("cartpole/cut-v0", buffers, env=env)
    dataset = load_dataset("minari:cartpole/cut-v0")
    assert (len(dataset), dataset.n_episodes()) == (6, 2)
    assert dataset.columns["terminated"].tolist() == [False, False, True, False, False, False]
    assert dataset.columns["truncated"].tolist() == [False, False, False, False, False, True]
    assert (dataset.n_actions, dataset.env_id) == (2, "CartPole-v1")


def test_d4rl_layout_without_next_observations(tmp_path: Path) -> None:
    """The next row of an episode supplies them; a step cut by a timeout has none and is dropped."""
    with h5py.File(tmp_path / "d4rl.hdf5", "w") as file:
        file["observations"] = np.arange(6.0)[:, None]
        file["actions"] = np.zeros((6, 1))
        file["rewards"] = np.arange(6.0)
        file["terminals"] = [False, True, False, False, True, False]
        file["timeouts"] = [False, False, False, True, False, False]
        file["infos/qpos"] = np.zeros((6, 1))
        file["metadata/algorithm"] = "SAC"
    dataset = load_dataset(tmp_path / "d4rl.hdf5", normalize=False)
    # row 3 was cut, and the recording stopped at row 5
    assert dataset.columns["rewards"].tolist() == [0, 1, 2, 4]
    assert dataset.columns["next_obs"][[0, 2], 0].tolist() == [1, 3]
    assert dataset.columns["terminated"].tolist() == [False, True, False, True]
    assert dataset.columns["truncated"].tolist() == [False, False, True, False]
    assert dataset.episode_returns.tolist() == [1, 2, 4]
    assert dataset.initial_obs[:, 0].tolist() == [0, 2, 4]


@given(st.lists(st.sampled_from(["on", "terminated", "truncated"]), min_size=1, max_size=30))
def test_derived_next_observations_are_the_true_ones(kinds: list[str]) -> None:
    """Derived and recorded ones agree in every row used for bootstrapping."""
    n = len(kinds)
    ends = np.array([kind != "on" for kind in kinds])
    # an observation counts the steps since the beginning, and resets skip one
    obs = np.arange(n) + np.concatenate([[0], np.cumsum(ends)[:-1]])
    columns = {
        "obs": obs[:, None].astype(np.float32),
        "actions": np.zeros((n, 1)),
        "rewards": np.arange(n),
        "terminated": [kind == "terminated" for kind in kinds],
        "truncated": [kind == "truncated" for kind in kinds],
    }
    last = n - 1
    kept = [i for i, k in enumerate(kinds) if k == "terminated" or (k == "on" and i < last)]
    if not ends.any() or not kept:
        with pytest.raises(
            DatasetError, match=r"no transition('s next observation is known| ends)"
        ):
            Dataset(columns, normalize=False)
        return
    data_ = Dataset(columns, normalize=False).columns
    live = ~data_["terminated"]
    np.testing.assert_array_equal(data_["next_obs"][live], data_["obs"][live] + 1)
    assert data_["rewards"].tolist() == kept
    assert (data_["terminated"] | data_["truncated"])[-1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rewards": None}, "the column 'rewards' is missing"),
        ({"terminated": None, "truncated": None}, "unknown where episodes end"),
        (
            {"obs": np.full((120, 3), np.nan)},
            "obs holds values that are not .* in row 0",
        ),
        ({"actions": np.zeros((119, 2))}, "actions has 119 rows, but rewards has 120"),
        ({"next_obs": np.zeros((120, 2))}, "obs and next_obs differ in shape"),
        ({"actions": np.full((120, 2), 2.5)}, r"the action 2\.5, which is not in Box\(-2"),
        ({"actions": np.full((120, 2), "a")}, "actions must hold numbers"),
        ({"rewards": np.zeros((120, 2))}, r"rewards must have shape \(120,\)"),
        ({"timeouts": np.zeros(120)}, "'truncated' and 'timeouts' mean the same"),
        ({"obs": np.float64(1.0)}, "obs has no rows, but rewards has 120"),
        ({"truncated": np.full(120, 0.5)}, "truncated must hold 0 and 1 only, got 0.5"),
        ({"actions": np.full(120, -1)}, "discrete actions are counted from 0 on, got -1"),
    ],
)
def test_bad_columns_are_refused(change: dict[str, Any], reason: str) -> None:
    """The error names the column and the expected values."""
    columns = {k: v for k, v in {**data.columns(), **change}.items() if v is not None}
    with pytest.raises(DatasetError, match=reason):
        Dataset(columns, act_low=-2.0, act_high=2.0)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    """Missing, unknown, damaged or pickled files."""
    with pytest.raises(DatasetError, match="does not exist"):
        load_dataset(tmp_path / "none.npz")
    with pytest.raises(DatasetError, match=r"the suffix '\.npy'; did you mean '\.npz'"):
        load_dataset(tmp_path / "data.npy")
    for suffix in data.FORMATS:
        (tmp_path / f"damaged{suffix}").write_bytes(b"no dataset")
        with pytest.raises(DatasetError, match="cannot be read"):
            load_dataset(tmp_path / f"damaged{suffix}")
    np.savez(tmp_path / "pickled.npz", **{**data.columns(), "obs": np.array([{}], object)})
    with pytest.raises(DatasetError, match="cannot be read: Object arrays"):
        load_dataset(tmp_path / "pickled.npz")
    save_dataset(data.continuous(), tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "truncated.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match=r"truncated\.npz' cannot be read"):
        load_dataset(tmp_path / "truncated.npz")


@pytest.mark.parametrize(
    ("load", "suffix"), [(load_dataset, ".parquet"), (stream_dataset, ".arrow")]
)
@pytest.mark.parametrize(
    ("obs", "reason"),
    [
        ([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], "obs must hold lists of one length, got .* 2, 1, 3"),
        ([[1.0, 2.0], None, [3.0, 4.0]], "obs has nulls"),
        ([[1.0, 2.0], [3.0, None], [3.0, 4.0]], "obs has nulls"),
    ],
)
def test_ragged_lists_are_not_reshaped(
    load: Any, obs: Any, reason: str, suffix: str, tmp_path: Path
) -> None:
    """Even if the total number of values fits."""
    columns = {"obs": obs, "actions": [0.0] * 3, "rewards": [0.0] * 3, "terminated": [False] * 3}
    table = pa.table({**columns, "next_obs": [[1.0, 2.0]] * 3})
    path = tmp_path / f"ragged{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path)
    with pytest.raises(DatasetError, match=reason):
        load(path)


@pytest.mark.parametrize("load", LOADERS)
def test_integer_observations_stay_as_they_are(load: Any, tmp_path: Path) -> None:
    """Normalising them is refused; files need no option either."""
    columns = data.columns()
    columns |= {name: columns[name].astype(np.uint8) for name in ("obs", "next_obs")}
    save_dataset(Dataset(columns), tmp_path / "bytes.npz")
    dataset = load(tmp_path / "bytes.npz")
    assert dataset.sample(4, seed=0)["obs"].dtype == np.uint8
    assert dataset.obs_mean is None
    with pytest.raises(DatasetError, match=r"of uint8 cannot be .*; pass normalize=False"):
        load(tmp_path / "bytes.npz", normalize=True)


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"act_low": -2.0}, "act_low and act_high belong together"),
        ({"act_low": 2.0, "act_high": -2.0}, "act_low must be below act_high"),
        ({"act_low": [-2.0] * 3, "act_high": [2.0] * 3}, r"must be numbers or have shape \(2,\)"),
        ({"n_actions": -1}, "n_actions must be at least 1, got -1"),
    ],
)
def test_bad_bounds_are_refused(known: Any, reason: str) -> None:
    """Each message states the expected value."""
    with pytest.raises(DatasetError, match=reason):
        Dataset(data.columns(), **known)


def test_metadata_of_a_strange_file_are_refused(tmp_path: Path) -> None:
    """Only known names with the right types pass."""
    for text in ('{"normalize": false}', '{"env_id": 3}', "[]"):
        np.savez(tmp_path / "strange.npz", **data.columns(), rlox=np.array(text))
        with pytest.raises(DatasetError, match="metadata"):
            load_dataset(tmp_path / "strange.npz")


def test_normalised_samples_have_the_dataset_statistics() -> None:
    """(obs - mean) / (std + 0.001), for next observations too; the columns stay raw."""
    dataset = data.continuous()
    raw = dataset.columns["obs"].astype(np.float64)
    np.testing.assert_allclose(dataset.obs_mean, raw.mean(0), rtol=1e-6)
    np.testing.assert_allclose(dataset.obs_std, raw.std(0) + 1e-3, rtol=1e-6)
    batch = dataset.sample(64, seed=1)
    expected = data.continuous(normalize=False).sample(64, seed=1)["next_obs"] - dataset.obs_mean
    np.testing.assert_allclose(batch["next_obs"], expected / dataset.obs_std, atol=1e-5)


def test_statistics_are_those_of_the_episodes() -> None:
    """Returns by a plain loop."""
    dataset = data.continuous()
    returns = [float(dataset.columns["rewards"][rows].sum()) for rows in dataset.episodes()]
    np.testing.assert_allclose(dataset.episode_returns, returns, rtol=1e-5)
    stats = dataset.stats()
    assert (stats["n_transitions"], stats["n_episodes"]) == (120, 12)
    assert stats["mean_return"] == pytest.approx(np.mean(returns), rel=1e-5)
    assert dataset.episode_lengths.tolist() == [10] * 12
