"""Datasets in files of columns: NumPy, HDF5 in D4RL's layout, Parquet and Arrow.

Each format has a reader, which returns the columns it knows and the metadata, and a writer. No
reader unpickles anything. The metadata are JSON: an array of text in NumPy's files, an attribute in
HDF5, and the schema's metadata in Parquet and Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rlox.errors import import_extra

from rlox_offline.datasets.columns import Columns, known_columns

__all__ = ["FORMATS", "KEY", "FileFormat", "columns_of_table"]

KEY = "rlox"
"""Name of the metadata in every format."""

D4RL_NAMES = {
    "obs": "observations",
    "next_obs": "next_observations",
    "terminated": "terminals",
    "truncated": "timeouts",
}


@dataclass(frozen=True)
class FileFormat:
    """How datasets are kept in one kind of file."""

    read: Callable[[Path], tuple[Columns, Any]]
    write: Callable[[Path, Columns, Mapping[str, Any]], None]


def _read_npz(path: Path) -> tuple[Columns, Any]:
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in known_columns(file.files)}
        return columns, json.loads(str(file[KEY])) if KEY in file.files else {}


def _write_npz(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    arrays: dict[str, Any] = {**columns, KEY: np.array(json.dumps(metadata))}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _read_hdf5(path: Path) -> tuple[Columns, Any]:
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    with h5py.File(path, "r") as file:
        datasets = [name for name, item in file.items() if isinstance(item, h5py.Dataset)]
        columns = {name: file[name][()] for name in known_columns(datasets)}
        return columns, json.loads(file.attrs.get(KEY, "{}"))


def _write_hdf5(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    h5py = import_extra("h5py", f"writing '{path}'", "hdf5")
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file.create_dataset(D4RL_NAMES.get(name, name), data=column, compression="gzip")
        file.attrs[KEY] = json.dumps(metadata)


def _from_table(table: Any) -> tuple[Columns, Any]:
    text = (table.schema.metadata or {}).get(KEY.encode(), b"{}")
    return columns_of_table(table), json.loads(text)


def columns_of_table(table: Any) -> Columns:
    """Return the columns of an Arrow table that have a meaning, by our names."""
    names = known_columns(table.column_names)
    return {ours: _rows(table[name].combine_chunks()) for name, ours in names.items()}


def _rows(column: Any) -> Any:
    """Return an Arrow column of numbers, or of lists of numbers of one length, as an array."""
    n, lengths = len(column), []
    while hasattr(column, "flatten") and str(column.type).startswith(
        ("list", "large_list", "fixed_size_list")
    ):
        inner = column.flatten()
        # ragged lists show as a length that does not fit, here or when the columns are compared
        lengths.append(len(inner) // max(len(column), 1))
        column = inner
    values = column.to_numpy(zero_copy_only=False)
    return values.reshape(n, *lengths) if values.size == n * int(np.prod(lengths)) else values


def _to_table(pyarrow: Any, columns: Columns, metadata: Mapping[str, Any]) -> Any:
    arrays = {}
    for name, column in columns.items():
        array = pyarrow.array(column.reshape(-1))
        for length in reversed(column.shape[1:]):
            array = pyarrow.FixedSizeListArray.from_arrays(array, length)
        arrays[name] = array
    return pyarrow.table(arrays).replace_schema_metadata({KEY: json.dumps(metadata)})


def _read_parquet(path: Path) -> tuple[Columns, Any]:
    return _from_table(
        import_extra("pyarrow.parquet", f"reading '{path}'", "parquet").read_table(path)
    )


def _write_parquet(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, metadata)
    import_extra("pyarrow.parquet", f"writing '{path}'", "parquet").write_table(table, path)


def _read_arrow(path: Path) -> tuple[Columns, Any]:
    return _from_table(
        import_extra("pyarrow.feather", f"reading '{path}'", "parquet").read_table(path)
    )


def _write_arrow(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, metadata)
    import_extra("pyarrow.feather", f"writing '{path}'", "parquet").write_feather(table, str(path))


_NPZ = FileFormat(_read_npz, _write_npz)
_HDF5 = FileFormat(_read_hdf5, _write_hdf5)
_PARQUET = FileFormat(_read_parquet, _write_parquet)
_ARROW = FileFormat(_read_arrow, _write_arrow)

FORMATS = {
    ".npz": _NPZ,
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".parquet": _PARQUET,
    ".arrow": _ARROW,
    ".feather": _ARROW,
}
"""File formats by suffix."""
