"""Parquet and Arrow files, one column per array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
from rlox.errors import DatasetError, import_extra

from rlox_offline.datasets.columns import Columns, known_columns
from rlox_offline.datasets.digests import DIGEST, KEY, Texts, require_loading

__all__ = [
    "arrow_pieces",
    "parquet_pieces",
    "read_arrow",
    "read_parquet",
    "write_arrow",
    "write_parquet",
]

Pieces = Iterator[Columns]

PARQUET_WIDTHS = {"INT64": 8, "DOUBLE": 8, "FLOAT": 4}
"""Bytes of a value at least; 1 of the other kinds."""


def _schema_texts(schema: Any) -> Texts:
    metadata = schema.metadata or {}
    return {
        name: metadata[key].decode() for name in (KEY, DIGEST) if (key := name.encode()) in metadata
    }


def _columns_of(table: Any) -> Columns:
    """Return the columns of an Arrow table that have a meaning, by our names."""
    names = known_columns(table.column_names)
    table = table.select(list(names))
    table.validate(full=True)  # offsets that lead out of the values, for one
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


def _to_table(pyarrow: Any, columns: Columns, texts: Mapping[str, str]) -> Any:
    arrays = {}
    for name, column in columns.items():
        array = pyarrow.array(column.reshape(-1))
        for length in reversed(column.shape[1:]):
            array = pyarrow.FixedSizeListArray.from_arrays(array, length)
        arrays[name] = array
    return pyarrow.table(arrays).replace_schema_metadata(dict(texts))


def _open_parquet(path: Path) -> Any:
    parquet = import_extra("pyarrow.parquet", f"reading '{path}'", "parquet")
    return parquet.ParquetFile(path, page_checksum_verification=True)


def read_parquet(path: Path) -> tuple[Columns, Texts]:
    """Return the columns and the texts beside them."""
    with _open_parquet(path) as file:
        names = known_columns(file.schema_arrow.names)
        require_loading(_parquet_bytes(file.metadata, set(names)))
        return _columns_of(file.read(columns=list(names))), _schema_texts(file.schema_arrow)


def _parquet_bytes(metadata: Any, names: set[str]) -> int:
    """Return how many bytes the values of these columns take at least."""
    total = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.split(".")[0] in names:
                total += column.num_values * PARQUET_WIDTHS.get(column.physical_type, 1)
    return total


def parquet_pieces(path: Path, rows: int) -> tuple[Pieces, Texts]:
    """Return the columns in pieces of so many rows, and the texts beside them."""
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with _open_parquet(path) as file:
        schema = file.schema_arrow

    def pieces() -> Pieces:
        with _open_parquet(path) as file:
            for batch in file.iter_batches(rows, columns=list(known_columns(schema.names))):
                yield _columns_of(pyarrow.Table.from_batches([batch]))

    return pieces(), _schema_texts(schema)


def write_parquet(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    """Write the columns, with checksums of pages, and the texts in the schema."""
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    parquet = import_extra("pyarrow.parquet", f"writing '{path}'", "parquet")
    parquet.write_table(_to_table(pyarrow, columns, texts), path, write_page_checksum=True)


def read_arrow(path: Path) -> tuple[Columns, Texts]:
    """Return the columns and the texts beside them."""
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with pyarrow.memory_map(str(path)) as source:
        file = pyarrow.ipc.open_file(source)
        batches, total = [], 0
        for i in range(file.num_record_batches):
            batches.append(file.get_batch(i))
            total += batches[-1].nbytes
            require_loading(total)
        table = pyarrow.Table.from_batches(batches, file.schema)
        return _columns_of(table), _schema_texts(file.schema)


def arrow_pieces(path: Path, rows: int) -> tuple[Pieces, Texts]:
    """Return the columns in pieces of at most so many rows, and the texts beside them."""
    pyarrow = import_extra("pyarrow", f"reading '{path}'", "parquet")
    with pyarrow.OSFile(str(path)) as source:
        texts = _schema_texts(pyarrow.ipc.open_file(source).schema)

    def pieces() -> Pieces:
        with pyarrow.OSFile(str(path)) as source:
            file = pyarrow.ipc.open_file(source)
            for i in range(file.num_record_batches):
                table = pyarrow.Table.from_batches([file.get_batch(i)])
                for start in range(0, len(table), rows):
                    yield _columns_of(table.slice(start, rows))

    return pieces(), texts


def write_arrow(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    """Write the columns, and the texts in the schema."""
    pyarrow = import_extra("pyarrow", f"writing '{path}'", "parquet")
    table = _to_table(pyarrow, columns, texts)
    import_extra("pyarrow.feather", f"writing '{path}'", "parquet").write_feather(table, str(path))
