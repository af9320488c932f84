"""Damaged and hostile datasets are refused with a reason, or loaded correctly."""

from __future__ import annotations

import io
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import data
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from rlox import files
from rlox.errors import DatasetError
from rlox_offline.datasets import Dataset, load_dataset, save_dataset, stream_dataset
from rlox_offline.datasets.columns import KEY
from rlox_offline.datasets.files import FORMATS

LOADERS = [
    load_dataset,
    pytest.param(
        stream_dataset,
        marks=pytest.mark.skipif(
            find_spec("rlox_native") is None, reason="what is streamed goes through a native buffer"
        ),
    ),
]
FLIPS = 20


def saved(path: Path) -> dict[str, Any]:
    """Save the test's dataset and return its columns."""
    dataset = data.continuous(env_id="Pendulum-v1", random_return=-1200.0)
    save_dataset(dataset, path)
    return dataset.columns


@pytest.mark.parametrize("suffix", data.FORMATS)
def test_a_flipped_bit_is_refused_or_changes_nothing(suffix: str, tmp_path: Path) -> None:
    """Formats have unused bytes, and most leave some values unprotected."""
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"flipped{suffix}"
    columns = saved(whole)
    contents = whole.read_bytes()
    rng = np.random.default_rng(7)
    refused = 0
    for bit in rng.integers(8 * len(contents), size=FLIPS):
        flipped = bytearray(contents)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            loaded = load_dataset(path)
        except DatasetError:
            refused += 1
        else:
            for name, column in columns.items():
                np.testing.assert_array_equal(loaded.columns[name], column, f"{name}, bit {bit}")
    assert refused > FLIPS // 10  # most of a small HDF5 file is unused


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("suffix", data.FORMATS)
def test_edited_values_and_metadata_are_refused(load: Any, suffix: str, tmp_path: Path) -> None:
    """Formats' own checksums cannot detect such edits."""
    path = tmp_path / f"edited{suffix}"
    columns = saved(path)
    other = {**columns, "rewards": columns["rewards"] + 1}
    reader = FORMATS[suffix]
    _, texts = reader.open(path, None)
    reader.write(path, other, texts)
    with pytest.raises(DatasetError, match="its contents have changed since it was saved"):
        load(path)
    reader.write(path, columns, {**texts, KEY: json.dumps({"env_id": "Other-v0"})})
    with pytest.raises(DatasetError, match="its contents have changed since it was saved"):
        load(path)
    reader.write(path, columns, {KEY: json.dumps({"env_id": "Other-v0"})})
    assert load(path).env_id == "Other-v0"  # a file of another tool, without digest


@pytest.mark.parametrize("load", LOADERS)
def test_a_header_that_promises_more_than_there_is(load: Any, tmp_path: Path) -> None:
    """A file of 1.5 kB that declares 24 TB is refused unread."""
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)}
    np.lib.format.write_array_header_1_0(header, shape)
    np.savez(tmp_path / "a.npz", **{**data.columns(), "obs": np.zeros(1)})
    with (
        zipfile.ZipFile(tmp_path / "a.npz") as honest,
        zipfile.ZipFile(tmp_path / "b.npz", "w") as archive,
    ):
        for name in honest.namelist():
            contents = header.getvalue() if name == "obs.npy" else honest.read(name)
            archive.writestr(name, contents)
    with pytest.raises(DatasetError, match=r"'obs' should have 24,000,000,000,000 bytes, .* has 0"):
        load(tmp_path / "b.npz")


@pytest.mark.parametrize("suffix", data.FORMATS)
def test_what_there_is_no_memory_for_is_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros compress to a thousandth; the error names the remedy."""
    n = 2_000_000
    columns = {name: np.zeros(n, np.float32) for name in ("obs", "actions", "rewards")}
    columns["truncated"] = np.zeros(n, bool)
    FORMATS[suffix].write(tmp_path / f"zeros{suffix}", columns, {})
    monkeypatch.setattr(files, "available_bytes", lambda: 1 << 24)
    match = r"not enough memory for its arrays: it would take at least .* 16\.0 MiB are .*; stream"
    with pytest.raises(DatasetError, match=match):
        load_dataset(tmp_path / f"zeros{suffix}")


def hostile_hdf5(path: Path, kind: str) -> None:
    """Write a dataset whose observations are not in the file."""
    (path.parent / "secret").write_bytes(b"0123456789abcdef" * 1000)
    columns = data.columns()
    with h5py.File(path.parent / "other.h5", "w") as other:
        other["obs"] = columns["obs"]
    with h5py.File(path, "w") as file:
        obs = columns.pop("obs")
        for name, column in columns.items():
            file[name] = column
        if kind == "external storage":
            external = [(str(path.parent / "secret"), 0, obs.nbytes)]
            file.create_dataset("obs", obs.shape, obs.dtype, external=external)
        elif kind == "external link":
            file["obs"] = h5py.ExternalLink(str(path.parent / "other.h5"), "obs")
        elif kind == "virtual":
            layout = h5py.VirtualLayout(obs.shape, obs.dtype)
            layout[:] = h5py.VirtualSource(str(path.parent / "other.h5"), "obs", obs.shape)
            file.create_virtual_dataset("obs", layout)
        elif kind == "never allocated":
            file.create_dataset("obs", (10**12, 3), "f4", chunks=(1000, 3))
        elif kind == "allocated in part":
            file.create_dataset("obs", (10**12, 3), "f4", chunks=(1000, 3))[0] = 1.0
        elif kind == "scalar":
            file["obs"] = 1.0


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("external storage", "the values of 'obs' are in another file"),
        ("external link", r"'obs' is a link to 'obs' of .*other\.h5"),
        ("virtual", "the values of 'obs' are in another file"),
        ("never allocated", r"'obs' has the shape \(1000000000000, 3\), but no values are stored"),
        ("allocated in part", r"'obs' has the shape .*, but only 12,000 bytes of values"),
        ("scalar", "'obs' must have rows"),
    ],
)
def test_hdf5_files_hold_their_own_values(
    load: Any, kind: str, reason: str, tmp_path: Path
) -> None:
    """Otherwise they could expose any file of the machine as observations."""
    hostile_hdf5(tmp_path / "hostile.h5", kind)
    with pytest.raises(DatasetError, match=reason):
        load(tmp_path / "hostile.h5")


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("value", [np.arange(3), b"\xff", "[" * 100_000])
def test_attributes_of_other_kinds_are_refused(load: Any, value: Any, tmp_path: Path) -> None:
    """Arrays, numbers, bytes and invalid JSON."""
    with h5py.File(tmp_path / "a.h5", "w", track_order=True) as file:
        for name, column in data.columns().items():
            file[name] = column
        if isinstance(value, str) and len(value) > 64_000:  # HDF5's limit for attributes
            value = value[:60_000]
        file.attrs[KEY] = value
    with pytest.raises(DatasetError, match=r"dataset '.*a\.h5'"):
        load(tmp_path / "a.h5")


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_empty_and_odd_tables_are_refused(load: Any, suffix: str, tmp_path: Path) -> None:
    """No rows, nulls only, text, and lists of nothing."""
    n = 4
    honest: dict[str, Any] = {
        "obs": [[1.0]] * n, "actions": [[0.0]] * n, "rewards": [0.0] * n,
        "terminated": [False, False, False, True],
    }  # fmt: skip
    odd: list[dict[str, Any]] = [
        {name: pa.array([], pa.float32()) for name in honest},
        {**honest, "obs": pa.nulls(n)},
        {**honest, "obs": ["a"] * n},
        {**honest, "rewards": [[]] * n},
        {**honest, "actions": [[]] * n},
        {**honest, "obs": [{"x": 1}] * n},
        {"rewards": honest["rewards"]},
    ]
    path = tmp_path / f"odd{suffix}"
    for columns in odd:
        if suffix == ".parquet":
            pq.write_table(pa.table(columns), path)
        else:
            feather.write_feather(pa.table(columns), str(path))
        with pytest.raises(DatasetError, match=r"dataset '.*odd"):
            load(path)


def test_offsets_out_of_the_values_are_refused(tmp_path: Path) -> None:
    """Reading them would expose the process's memory, or crash it."""
    offsets = pa.py_buffer(np.array([0, 2**20, 2], np.int32))
    values = pa.array([1.0, 2.0])
    lists = pa.Array.from_buffers(pa.list_(pa.float64()), 2, [None, offsets], children=[values])
    table = pa.table(
        {"obs": lists, "actions": [[0.0]] * 2, "rewards": [0.0] * 2, "terminated": [False, True]}
    )
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as f,
    ):
        f.write_table(table)
    with pytest.raises(DatasetError, match="cannot be read"):
        load_dataset(tmp_path / "a.arrow")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("load", LOADERS)
def test_minari_is_checked_as_well(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest, the declared space, and the place of the values are checked."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    columns = data.columns(act_dim=1)
    obs = np.tanh(columns["obs"])
    ends = columns["terminated"] | columns["truncated"]
    columns["obs"] = obs
    columns["next_obs"] = np.where(ends[:, None], 0.5, np.concatenate([obs[1:], obs[-1:]]))
    dataset = Dataset(columns, act_low=-2.0, act_high=2.0, env_id="Pendulum-v1")
    save_dataset(dataset, "minari:pendulum/mine-v0")
    assert len(load("minari:pendulum/mine-v0")) == 120
    (path,) = tmp_path.glob("pendulum/mine-v0/**/main_data.hdf5")
    with h5py.File(path, "r+") as file:
        file["episode_3/rewards"][4] += 1
    with pytest.raises(DatasetError, match="its contents have changed since it was saved"):
        load("minari:pendulum/mine-v0")
    with h5py.File(path, "r+") as file:
        file["episode_0/observations"][2, 2] = 9
    with pytest.raises(DatasetError, match="is out of the space that the dataset declares"):
        load("minari:pendulum/mine-v0")
    with h5py.File(path, "r+") as file:
        rewards = file["episode_5/rewards"][()]
        del file["episode_5/rewards"]
        (tmp_path / "secret").write_bytes(bytes(rewards.nbytes))
        file["episode_5"].create_dataset(
            "rewards", rewards.shape, rewards.dtype, external=[(str(tmp_path / "secret"), 0, 800)]
        )
    with pytest.raises(DatasetError, match="the values of 'rewards' are in another file"):
        load("minari:pendulum/mine-v0")
    columns["obs"] = 10 * columns["obs"]
    save = Dataset(columns, act_low=-2.0, act_high=2.0, env_id="Pendulum-v1")
    with pytest.raises(DatasetError):
        save_dataset(save, "minari:pendulum/wrong-v0")
    assert not (tmp_path / "pendulum" / "wrong-v0").exists()
