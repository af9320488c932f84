"""Dataset files: NumPy, HDF5 in D4RL's layout, Parquet and Arrow.

Each format has a reader, which returns the columns it knows and the texts beside them (metadata as
JSON, and a digest), a reader piece by piece, for what exceeds the memory, and a writer. No reader
unpickles anything, or takes the memory that a file asks for before it is known to be there. The
texts are arrays of text in NumPy's files, attributes in HDF5, and the schema's metadata in Parquet
and Arrow.
"""

from __future__ import annotations

import errno
import lzma
import math
import struct
import tokenize
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
from rlox.errors import DatasetError
from rlox.files import open_regular, require_memory_for, target_of

from rlox_offline.datasets.columns import Columns, known_columns
from rlox_offline.datasets.digests import DIGEST, KEY, Texts, require_loading
from rlox_offline.datasets.hdf5 import hdf5_pieces, read_hdf5, write_hdf5
from rlox_offline.datasets.tables import (
    arrow_pieces,
    parquet_pieces,
    read_arrow,
    read_parquet,
    write_arrow,
    write_parquet,
)

__all__ = ["FORMATS", "FileFormat", "Pieces", "reading"]

Pieces = Iterator[Columns]


@dataclass(frozen=True)
class FileFormat:
    """How datasets are kept in one kind of file."""

    read: Callable[[Path], tuple[Columns, Texts]]
    read_pieces: Callable[[Path, int], tuple[Pieces, Texts]]
    """From a path and a number of rows to pieces of about that many rows, and the texts."""
    write: Callable[[Path, Columns, Mapping[str, str]], None]


READ_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
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


def _read_npz(path: Path) -> tuple[Columns, Texts]:
    with path.open("rb") as source, NpzFile(source, allow_pickle=False) as file:
        names = known_columns(file.files)
        texts = _npz_texts(file)
        require_loading(sum(_stored_bytes(file.zip, name) for name in names))
        return {name: file[name] for name in names}, texts


def _npz_pieces(path: Path, rows: int) -> tuple[Pieces, Texts]:
    with path.open("rb") as source, NpzFile(source, allow_pickle=False) as file:
        names = known_columns(file.files)
        texts = _npz_texts(file)
        for name in names:
            _stored_bytes(file.zip, name)

    def pieces() -> Pieces:
        with zipfile.ZipFile(path) as archive:
            columns = {ours: _npy_pieces(archive, name, rows) for name, ours in names.items()}
            for arrays in zip(*columns.values(), strict=True):
                yield dict(zip(columns, arrays, strict=True))

    return pieces(), texts


def _npz_texts(file: Any) -> Texts:
    texts = {}
    for name in (KEY, DIGEST):
        if name in file.files:
            require_memory_for(f"'{name}'", None, _stored_bytes(file.zip, name), "make it smaller")
            text = file[name]
            texts[name] = str(text) if text.shape == () and text.dtype.kind == "U" else text
    return texts


def _stored_bytes(archive: Any, name: str) -> int:
    """Return the size of an array in an archive, if it has as many bytes as its header says."""
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _npy_header(file, name)
        said = math.prod(shape) * dtype.itemsize
        stored = archive.getinfo(f"{name}.npy").file_size - file.tell()
    if said != stored and not dtype.hasobject:
        raise DatasetError(
            f"'{name}' should have {said:,} bytes, by its shape {shape}, but has {stored:,}"
        )
    return stored  # type: ignore[no-any-return]


def _npy_header(file: Any, name: str) -> Any:
    """Return shape, order and dtype of an array in NumPy's format."""
    version = np.lib.format.read_magic(file)
    read_header: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"'{name}' has version {version} of NumPy's format")
    return read_header(file)


def _npy_pieces(archive: zipfile.ZipFile, name: str, rows: int) -> Iterator[npt.NDArray[Any]]:
    """Read an array in an archive from its beginning to its end."""
    with archive.open(f"{name}.npy") as file:
        shape, fortran_order, dtype = _npy_header(file, name)
        if dtype.hasobject:
            raise ValueError(f"'{name}' holds Python objects")
        if fortran_order and len(shape) > 1:
            raise ValueError(f"'{name}' lies column by column, which cannot be read piece by piece")
        n, row_shape = (shape[0], shape[1:]) if shape else (1, ())
        row_size = math.prod(row_shape) * dtype.itemsize
        require_memory_for(
            f"rows of '{name}'", None, min(rows, n) * row_size, "make its rows smaller"
        )
        for start in range(0, n, rows):
            count = min(rows, n - start)
            data = file.read(count * row_size)
            yield np.frombuffer(data, dtype).reshape(count, *row_shape)


def _write_npz(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    arrays: dict[str, Any] = {**columns, **{name: np.array(text) for name, text in texts.items()}}
    with open_regular(target_of(path), "wb") as file:
        np.savez_compressed(file, **arrays)


_NPZ = FileFormat(_read_npz, _npz_pieces, _write_npz)
_HDF5 = FileFormat(read_hdf5, hdf5_pieces, write_hdf5)
_PARQUET = FileFormat(read_parquet, parquet_pieces, write_parquet)
_ARROW = FileFormat(read_arrow, arrow_pieces, write_arrow)

FORMATS = {
    ".npz": _NPZ,
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".parquet": _PARQUET,
    ".arrow": _ARROW,
    ".feather": _ARROW,
}
"""File formats by suffix."""
