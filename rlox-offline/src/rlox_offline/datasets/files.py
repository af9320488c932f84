"""Dataset files: NumPy, HDF5 in D4RL's layout, Parquet and Arrow.

Each format has a reader, which returns the columns it knows and the metadata, a reader piece by
piece, for what exceeds the memory, and a writer. No reader unpickles anything. The metadata are
JSON: an array of text in NumPy's files, an attribute in HDF5, and the schema's metadata in Parquet
and Arrow.
"""

from __future__ import annotations

import errno
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile
from rlox.errors import DatasetError, import_extra
from rlox.files import open_regular, target_of

from rlox_offline.datasets.columns import Columns, known_columns

__all__ = ["FORMATS", "FileFormat", "Pieces", "reading"]

Pieces = Iterator[Columns]

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
    read_pieces: Callable[[Path, int], tuple[Pieces, Any]]
    """From a path and a number of rows to pieces of about that many rows, and the metadata."""
    write: Callable[[Path, Columns, Mapping[str, Any]], None]


READ_ERRORS = (
    ValueError,
    KeyError,
    OSError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the libraries raise on a damaged file."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Say in errors of the block which dataset they are about.

    Raises:
        DatasetError: the dataset cannot be read, or not be learnt from.
        OSError: the disk is full.
    """
    try:
        yield
    except DatasetError as error:
        raise DatasetError(f"dataset '{name}': {error}") from None
    except READ_ERRORS as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise DatasetError(f"dataset '{name}' cannot be read: {error}") from None


def _read_npz(path: Path) -> tuple[Columns, Any]:
    with path.open("rb") as source, NpzFile(source, allow_pickle=False) as file:
        columns = {name: file[name] for name in known_columns(file.files)}
        return columns, json.loads(str(file[KEY])) if KEY in file.files else {}


def _npz_pieces(path: Path, rows: int) -> tuple[Pieces, Any]:
    with path.open("rb") as source, NpzFile(source, allow_pickle=False) as file:
        names = known_columns(file.files)
        metadata = json.loads(str(file[KEY])) if KEY in file.files else {}

    def pieces() -> Pieces:
        with zipfile.ZipFile(path) as archive:
            columns = {ours: _npy_pieces(archive, name, rows) for name, ours in names.items()}
            for arrays in zip(*columns.values(), strict=True):
                yield dict(zip(columns, arrays, strict=True))

    return pieces(), metadata


def _npy_pieces(archive: zipfile.ZipFile, name: str, rows: int) -> Iterator[npt.NDArray[Any]]:
    """Read an array in an archive from its beginning to its end."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read_header: Any = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"'{name}' has version {version} of NumPy's format")
        shape, fortran_order, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(f"'{name}' holds Python objects")
        if fortran_order and len(shape) > 1:
            raise ValueError(f"'{name}' lies column by column, which cannot be read piece by piece")
        n, row_shape = (shape[0], shape[1:]) if shape else (1, ())
        row_size = math.prod(row_shape) * dtype.itemsize
        for start in range(0, n, rows):
            count = min(rows, n - start)
            data = file.read(count * row_size)
            yield np.frombuffer(data, dtype).reshape(count, *row_shape)


def _write_npz(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    arrays: dict[str, Any] = {**columns, KEY: np.array(json.dumps(metadata))}
    with open_regular(target_of(path), "wb") as file:
        np.savez_compressed(file, **arrays)


def _read_hdf5(path: Path) -> tuple[Columns, Any]:
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    with h5py.File(path, "r") as file:
        datasets = [name for name, item in file.items() if isinstance(item, h5py.Dataset)]
        columns = {name: file[name][()] for name in known_columns(datasets)}
        return columns, json.loads(file.attrs.get(KEY, "{}"))


def _hdf5_pieces(path: Path, rows: int) -> tuple[Pieces, Any]:
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    with h5py.File(path, "r") as file:
        names = known_columns([n for n, item in file.items() if isinstance(item, h5py.Dataset)])
        metadata = json.loads(file.attrs.get(KEY, "{}"))

    def pieces() -> Pieces:
        with h5py.File(path, "r") as file:
            n = max((len(file[name]) for name in names), default=0)
            for start in range(0, n, rows):
                yield {ours: file[name][start : start + rows] for name, ours in names.items()}

    return pieces(), metadata


def _write_hdf5(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    h5py = import_extra("h5py", f"writing '{path}'", "hdf5")
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file.create_dataset(D4RL_NAMES.get(name, name), data=column, compression="gzip")
        file.attrs[KEY] = json.dumps(metadata)


def _metadata_of(schema: Any) -> Any:
    return json.loads((schema.metadata or {}).get(KEY.encode(), b"{}"))


def _columns_of(table: Any) -> Columns:
    """Return the columns of an Arrow table that have a meaning, by our names."""
    names = known_columns(table.column_names)
    return {ours: _rows(name, table[name].combine_chunks()) for name, ours in names.items()}


def _rows(name: str, column: Any) -> npt.NDArray[Any]:
    """Return an Arrow column of numbers, or of lists of numbers of one length, as an array."""
    if column.null_count:
        raise DatasetError(f"{name} has nulls; remove these episodes")
    if not str(column.type).startswith(("list", "large_list", "fixed_size_list")):
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    compute = import_extra("pyarrow.compute", "reading a table", "parquet")
    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    if len(lengths) > 1:
        raise DatasetError(
            f"{name} must hold lists of one length, got lengths {', '.join(map(str, lengths[:3]))}"
        )
    inner = _rows(name, column.flatten())
    return inner.reshape(len(column), *lengths or [0], *inner.shape[1:])


def _to_table(pyarrow: Any, columns: Columns, metadata: Mapping[str, Any]) -> Any:
    arrays = {}
    for name, column in columns.items():
        array = pyarrow.array(column.reshape(-1))
        for length in reversed(column.shape[1:]):
            array = pyarrow.FixedSizeListArray.from_arrays(array, length)
        arrays[name] = array
    return pyarrow.table(arrays).replace_schema_metadata({KEY: json.dumps(metadata)})


def _read_parquet(path: Path) -> tuple[Columns, Any]:
    table = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet").read_table(path)
    return _columns_of(table), _metadata_of(table.schema)


def _parquet_pieces(path: Path, rows: int) -> tuple[Pieces, Any]:
    parquet = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet")
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    schema = parquet.read_schema(path)

    def pieces() -> Pieces:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows, columns=list(known_columns(schema.names))):
                yield _columns_of(pyarrow.Table.from_batches([batch]))

    return pieces(), _metadata_of(schema)


def _write_parquet(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, metadata)
    import_extra("pyarrow.parquet", f"writing '{path}'", "parquet").write_table(table, path)


def _read_arrow(path: Path) -> tuple[Columns, Any]:
    table = import_extra("pyarrow.feather", f"reading '{path}'", "parquet").read_table(path)
    return _columns_of(table), _metadata_of(table.schema)


def _arrow_pieces(path: Path, rows: int) -> tuple[Pieces, Any]:
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with pyarrow.OSFile(str(path)) as source:
        metadata = _metadata_of(pyarrow.ipc.open_file(source).schema)

    def pieces() -> Pieces:
        with pyarrow.OSFile(str(path)) as source:
            file = pyarrow.ipc.open_file(source)
            for i in range(file.num_record_batches):
                table = pyarrow.Table.from_batches([file.get_batch(i)])
                for start in range(0, len(table), rows):
                    yield _columns_of(table.slice(start, rows))

    return pieces(), metadata


def _write_arrow(path: Path, columns: Columns, metadata: Mapping[str, Any]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, metadata)
    import_extra("pyarrow.feather", f"writing '{path}'", "parquet").write_feather(table, str(path))


_NPZ = FileFormat(_read_npz, _npz_pieces, _write_npz)
_HDF5 = FileFormat(_read_hdf5, _hdf5_pieces, _write_hdf5)
_PARQUET = FileFormat(_read_parquet, _parquet_pieces, _write_parquet)
_ARROW = FileFormat(_read_arrow, _arrow_pieces, _write_arrow)

FORMATS = {
    ".npz": _NPZ,
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".parquet": _PARQUET,
    ".arrow": _ARROW,
    ".feather": _ARROW,
}
"""File formats by suffix."""
