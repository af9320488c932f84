"""Datasets by name: NumPy files, HDF5 in D4RL's layout, Parquet, Arrow, and Minari datasets.

Each format has a writer, and a reader that returns the known columns, in one piece or several, and
two texts: the metadata as JSON, and a digest. No reader unpickles anything, or allocates the memory
that a file declares before checking that it is available. The texts are arrays of text in NumPy
files, attributes in HDF5, and schema metadata in Parquet and Arrow.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile
from rlox.errors import DatasetError, import_extra, suggest
from rlox.files import open_regular, require_memory_for, target_of

from rlox_offline.datasets.columns import (
    DIGEST,
    KEY,
    NAMES,
    Array,
    Columns,
    Digest,
    Pieces,
    Texts,
    checked,
    known_columns,
    metadata_text,
    require_loading,
)
from rlox_offline.datasets.dataset import PIECE_ROWS, Dataset, StreamedDataset, require_metadata
from rlox_offline.datasets.hdf5 import open_hdf5, write_hdf5
from rlox_offline.datasets.minari import minari_pieces, write_minari
from rlox_offline.datasets.protocol import OfflineDataset

MINARI = "minari:"
"""Prefix for Minari datasets."""

STREAM = "stream:"
"""Prefix for datasets that should not be loaded into memory."""

PARQUET_WIDTHS = {"INT64": 8, "DOUBLE": 8, "FLOAT": 4}
"""Minimum bytes per value; 1 for other types."""

READ_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError,
    RuntimeError, SyntaxError, TypeError, ValueError, lzma.LZMAError, struct.error,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Exceptions that the libraries raise on damaged files."""


@contextmanager
def _opened(source: str | Path, rows: int | None) -> Iterator[tuple[Pieces, dict[str, Any]]]:
    """Open a dataset's pieces and metadata, and add its name to errors in the block.

    Args:
        source: see :func:`load_dataset`.
        rows: rows per piece; ``None`` makes one piece.

    Raises:
        DatasetError: there is no such dataset, or it cannot be read or is not suitable.
        OSError: the disk is full.
    """
    name, path = str(source), Path(source)
    file_format = None if name.startswith(MINARI) else _format_of(path)
    if file_format is not None and not path.is_file():
        raise DatasetError(f"dataset '{path}' does not exist")
    try:
        if file_format is None:
            pieces, metadata = minari_pieces(name.removeprefix(MINARI), rows)
        else:
            found, texts = file_format.open(path, rows)
            pieces, metadata = checked(found, texts), json.loads(metadata_text(texts))
        yield pieces, require_metadata(metadata)
    except DatasetError as error:
        raise DatasetError(f"dataset '{name}': {error}") from None
    except READ_ERRORS as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise DatasetError(f"dataset '{name}' cannot be read: {error}") from None


def load_dataset(source: str | Path, *, normalize: bool | None = None, **known: Any) -> Dataset:
    """Load a dataset.

    Args:
        source: a file ``.npz``, ``.h5`` or ``.hdf5`` (D4RL's layout), ``.parquet``, ``.arrow`` or
            ``.feather``, or ``"minari:<id>"``, a Minari dataset on this machine.
        normalize: see :class:`Dataset`.
        known: further metadata, such as ``act_low`` and ``act_high``; overrides the file's.

    Raises:
        DatasetError: there is no such dataset, or it is damaged or not suitable for learning.
        MissingDependencyError: the format's library is not installed.
    """
    with _opened(source, None) as (pieces, metadata):
        dataset = Dataset(next(pieces), normalize=normalize, **{**metadata, **known})
        next(pieces, None)  # to the end, where the digest is compared
        return dataset


def stream_dataset(
    source: str | Path, *, folder: str | Path | None = None, **options: Any
) -> StreamedDataset:
    """Open a dataset that need not fit into memory.

    Args:
        source: a file or ``"minari:<id>"``, as in :func:`load_dataset`.
        folder: folder for a temporary copy of the transitions, about as large as the arrays would
            be in memory; ``None`` takes the system's folder for temporary files.
        options: further arguments of :class:`StreamedDataset`; they override the file's metadata.

    Raises:
        DatasetError: there is no such dataset, or it is damaged or not suitable for learning.
        MissingDependencyError: the format's library is not installed.
        OSError: the disk is full.
    """
    with _opened(source, PIECE_ROWS) as (pieces, metadata):
        return StreamedDataset(pieces, folder=folder, **{**metadata, **options})


def save_dataset(dataset: Dataset, target: str | Path) -> None:
    """Write a dataset with its metadata; :func:`load_dataset` reads it back equal.

    Args:
        dataset: dataset to write; its observations are written without normalisation.
        target: a file or ``"minari:<id>"``, as in :func:`load_dataset`; a file is replaced.

    Raises:
        DatasetError: the format is unknown, the Minari dataset already exists, or the dataset is
            not in memory.
        MissingDependencyError: the format's library is not installed.
    """
    if not isinstance(dataset, Dataset):
        raise DatasetError(
            f"only a Dataset can be saved, got {type(dataset).__name__}; load_dataset(source) "
            "returns one of a source"
        )
    if str(target).startswith(MINARI):
        write_minari(str(target).removeprefix(MINARI), dataset)
        return
    path = Path(target)
    file_format = _format_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = Digest(metadata := json.dumps(dataset.metadata()))
    digest.add(dataset.columns)
    file_format.write(path, dataset.columns, {KEY: metadata, DIGEST: digest.text()})


def open_dataset(dataset: OfflineDataset | str | Path | None) -> OfflineDataset | None:
    """Open a dataset by name; anything but a name is returned unchanged.

    Names that begin with ``"stream:"`` are opened by :func:`stream_dataset`.
    """
    if not isinstance(dataset, (str, Path)):
        return dataset
    name = str(dataset)
    if name.startswith(STREAM):
        return stream_dataset(name.removeprefix(STREAM))
    return load_dataset(dataset)


def require_format(name: str) -> None:
    """Refuse a name with an unknown file format.

    Raises:
        DatasetError: the suffix is unknown.
    """
    if not name.startswith(MINARI):
        _format_of(Path(name))


def _format_of(path: Path) -> FileFormat:
    if path.suffix not in FORMATS:
        raise DatasetError(
            f"dataset '{path}' has the suffix '{path.suffix}'{suggest(path.suffix, FORMATS)}; "
            f"expected {', '.join(FORMATS)}, or '{MINARI}<id>'; rlox dataset convert reads .csv"
        )
    return FORMATS[path.suffix]


def _open_npz(path: Path, rows: int | None) -> tuple[Pieces, Texts]:
    with path.open("rb") as source, NpzFile(source, allow_pickle=False) as file:
        names, texts = known_columns(file.files), _npz_texts(file)
        n_bytes = sum(_stored_bytes(file.zip, name) for name in names)
        if rows is None:
            require_loading(n_bytes)
            return iter([{name: file[name] for name in names}]), texts

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
    """Return the bytes of an array in an archive, after comparing them with its header."""
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
    """Return the shape, order and dtype of an array in NumPy's format."""
    version = np.lib.format.read_magic(file)
    read_header: Any = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"'{name}' has version {version} of NumPy's format")
    return read_header(file)


def _npy_pieces(archive: zipfile.ZipFile, name: str, rows: int) -> Iterator[Array]:
    """Read an array in an archive sequentially, ``rows`` rows at a time."""
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


def _schema_texts(schema: Any) -> Texts:
    metadata = schema.metadata or {}
    return {
        name: metadata[key].decode() for name in (KEY, DIGEST) if (key := name.encode()) in metadata
    }


def _columns_of(table: Any) -> Columns:
    """Return the known columns of an Arrow table, by our names."""
    names = known_columns(table.column_names)
    table = table.select(list(names))
    table.validate(full=True)  # e.g. refuses offsets beyond the values
    return {ours: _rows(name, table[name].combine_chunks()) for name, ours in names.items()}


def _rows(name: str, column: Any) -> Array:
    """Return an Arrow column of numbers, or of equally long lists of numbers, as an array."""
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


def _to_table(pyarrow: Any, columns: Columns, texts: Mapping[str, str]) -> Any:
    arrays = {}
    for name, column in columns.items():
        array = pyarrow.array(column.reshape(-1))
        for length in reversed(column.shape[1:]):
            array = pyarrow.FixedSizeListArray.from_arrays(array, length)
        arrays[name] = array
    return pyarrow.table(arrays).replace_schema_metadata(dict(texts))


def _open_parquet(path: Path, rows: int | None) -> tuple[Pieces, Texts]:
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    parquet = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet")
    open_file = partial(parquet.ParquetFile, path, page_checksum_verification=True)
    with open_file() as file:
        texts = _schema_texts(file.schema_arrow)
        names = list(known_columns(file.schema_arrow.names))
        if rows is None:
            require_loading(_parquet_bytes(file.metadata, set(names)))
            return iter([_columns_of(file.read(columns=names))]), texts

    def pieces() -> Pieces:
        with open_file() as file:
            for batch in file.iter_batches(rows, columns=names):
                yield _columns_of(pyarrow.Table.from_batches([batch]))

    return pieces(), texts


def _parquet_bytes(metadata: Any, names: set[str]) -> int:
    """Return the minimum number of bytes of these columns' values."""
    total = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.split(".")[0] in names:
                total += column.num_values * PARQUET_WIDTHS.get(column.physical_type, 1)
    return total


def _write_parquet(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    parquet = import_extra("pyarrow.parquet", f"writing '{path}'", "parquet")
    parquet.write_table(_to_table(pyarrow, columns, texts), path, write_page_checksum=True)


def _open_arrow(path: Path, rows: int | None) -> tuple[Pieces, Texts]:
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with pyarrow.memory_map(str(path)) as source:
        file = pyarrow.ipc.open_file(source)
        texts = _schema_texts(file.schema)
        if rows is None:
            batches, total = [], 0
            for i in range(file.num_record_batches):
                batches.append(file.get_batch(i))
                total += batches[-1].nbytes
                require_loading(total)
            return iter([_columns_of(pyarrow.Table.from_batches(batches, file.schema))]), texts

    def pieces() -> Pieces:
        with pyarrow.OSFile(str(path)) as source:
            file = pyarrow.ipc.open_file(source)
            for i in range(file.num_record_batches):
                table = pyarrow.Table.from_batches([file.get_batch(i)])
                for start in range(0, len(table), rows):
                    yield _columns_of(table.slice(start, rows))

    return pieces(), texts


def _write_arrow(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, texts)
    import_extra("pyarrow.feather", f"writing '{path}'", "parquet").write_feather(table, str(path))


def read_table(path: Path, patterns: Mapping[str, str]) -> Dataset:
    """Return the dataset in a table whose arrays are spread over columns of numbers.

    Args:
        path: a file ``.csv``, or ``.parquet``.
        patterns: by name of an array, a pattern such as ``"obs_*"`` of the columns that are
            joined to it, in the table's order; columns of known names need none.

    Raises:
        DatasetError: the table cannot be read, no column fits, or a column is missing or wrong.
        MissingDependencyError: pyarrow is not installed.
    """
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    csv = import_extra("pyarrow.csv", f"reading '{path}'", "parquet")
    parquet = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet")
    try:
        table = csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
        for name, pattern in patterns.items():
            parts = fnmatch.filter(table.column_names, pattern)
            if not parts:
                there = ", ".join(table.column_names)
                raise DatasetError(
                    f"no column is called '{pattern}', for {name}; there are {there}"
                )
            if others := ({*NAMES} - {name}) & {*parts}:
                found = ", ".join(sorted(others))
                raise DatasetError(f"'{pattern}', for {name}, takes {found} too; narrow it")
            joined = np.stack([_rows(one, table[one].combine_chunks()) for one in parts], axis=1)
            column = _to_table(pyarrow, {name: joined}, {})[name]
            table = table.drop(parts).append_column(name, column)
        return Dataset(_columns_of(table))
    except DatasetError as error:
        raise DatasetError(f"table '{path}': {error}") from None
    except READ_ERRORS as error:
        raise DatasetError(f"table '{path}' cannot be read: {error}") from None


class FileFormat(NamedTuple):
    """Reader and writer of one file format."""

    open: Callable[[Path, int | None], tuple[Pieces, Texts]]
    """Takes a path and the approximate rows per piece, ``None`` for a single piece; returns pieces
    and texts."""
    write: Callable[[Path, Columns, Mapping[str, str]], None]


HDF5 = FileFormat(open_hdf5, write_hdf5)
ARROW = FileFormat(_open_arrow, _write_arrow)
FORMATS = {
    ".npz": FileFormat(_open_npz, _write_npz),
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".parquet": FileFormat(_open_parquet, _write_parquet),
    ".arrow": ARROW,
    ".feather": ARROW,
}
"""File formats by suffix."""
