"""The files of :mod:`rlox_offline.datasets.files` piece by piece, for what exceeds the memory."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.errors import import_extra

from rlox_offline.datasets.columns import Columns, known_columns
from rlox_offline.datasets.files import KEY, columns_of_table

__all__ = ["PIECES", "Pieces"]

Pieces = Iterator[Columns]

PieceReader = Callable[[Path, int], tuple[Any, Pieces]]
"""From a path and a number of rows to the metadata and pieces of about that many rows."""


def _npz_pieces(path: Path, rows: int) -> tuple[Any, Pieces]:
    with np.load(path, allow_pickle=False) as file:
        names = known_columns(file.files)
        metadata = json.loads(str(file[KEY])) if KEY in file.files else {}

    def pieces() -> Pieces:
        with zipfile.ZipFile(path) as archive:
            columns = {ours: _npy_pieces(archive, name, rows) for name, ours in names.items()}
            for arrays in zip(*columns.values(), strict=True):
                yield dict(zip(columns, arrays, strict=True))

    return metadata, pieces()


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


def _hdf5_pieces(path: Path, rows: int) -> tuple[Any, Pieces]:
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    with h5py.File(path, "r") as file:
        names = known_columns([n for n, item in file.items() if isinstance(item, h5py.Dataset)])
        metadata = json.loads(file.attrs.get(KEY, "{}"))

    def pieces() -> Pieces:
        with h5py.File(path, "r") as file:
            n = max((len(file[name]) for name in names), default=0)
            for start in range(0, n, rows):
                yield {ours: file[name][start : start + rows] for name, ours in names.items()}

    return metadata, pieces()


def _parquet_pieces(path: Path, rows: int) -> tuple[Any, Pieces]:
    parquet = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet")
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    schema = parquet.read_schema(path)

    def pieces() -> Pieces:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows, columns=list(known_columns(schema.names))):
                yield columns_of_table(pyarrow.Table.from_batches([batch]))

    return json.loads((schema.metadata or {}).get(KEY.encode(), b"{}")), pieces()


def _arrow_pieces(path: Path, rows: int) -> tuple[Any, Pieces]:
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with pyarrow.OSFile(str(path)) as source:
        metadata = pyarrow.ipc.open_file(source).schema.metadata or {}

    def pieces() -> Pieces:
        with pyarrow.OSFile(str(path)) as source:
            file = pyarrow.ipc.open_file(source)
            for i in range(file.num_record_batches):
                table = pyarrow.Table.from_batches([file.get_batch(i)])
                for start in range(0, len(table), rows):
                    yield columns_of_table(table.slice(start, rows))

    return json.loads(metadata.get(KEY.encode(), b"{}")), pieces()


PIECES: dict[str, PieceReader] = {
    ".npz": _npz_pieces,
    ".h5": _hdf5_pieces,
    ".hdf5": _hdf5_pieces,
    ".parquet": _parquet_pieces,
    ".arrow": _arrow_pieces,
    ".feather": _arrow_pieces,
}
"""Readers by suffix."""
