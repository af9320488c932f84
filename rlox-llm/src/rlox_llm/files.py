"""Rows of datasets: JSONL and Parquet files, and datasets of Hugging Face."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlox.errors import DatasetError, import_extra

__all__ = ["read_rows"]

LINES = (".jsonl", ".json", ".ndjson")


def read_rows(rows: Any) -> Any:
    """Return the rows of a file or of a dataset as a list of mappings; other rows as they are.

    Args:
        rows: the path of a JSONL file (``.jsonl``, ``.json``), of a Parquet file (``.parquet``) or
            of a folder that ``datasets`` saved; a ``datasets.Dataset``; or anything else.

    Raises:
        DatasetError: there is no such file, or it cannot be read.
        MissingDependencyError: reading it takes ``datasets``, which is not installed.
    """
    if isinstance(rows, (str, Path)):
        return _read(Path(rows))
    if hasattr(rows, "column_names") and not isinstance(rows, (Mapping, Sequence)):
        return list(rows)
    return rows


def _read(path: Path) -> list[Any]:
    if not path.exists():
        raise DatasetError(
            f"dataset '{path}' does not exist; expected the path of a JSONL or Parquet file; a "
            "single text goes into a list"
        )
    try:
        read = _lines if path.is_file() and path.suffix in LINES else _with_datasets
        found = read(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{path}' is no JSONL or Parquet file: {error}") from None
    for i, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise DatasetError(
                f"row {i} of '{path}' is {type(row).__name__}, expected a JSON object in each line"
            )
    return found


def _lines(path: Path) -> list[Any]:
    """Return what the lines hold; str.splitlines() would split at characters of texts, too."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def _with_datasets(path: Path) -> list[Any]:
    datasets = import_extra("datasets", f"the dataset '{path}'", "hf")
    if path.is_dir():
        return list(datasets.load_from_disk(str(path)))
    if path.suffix != ".parquet":
        raise ValueError(f"its name ends in '{path.suffix}', not in .jsonl or .parquet")
    with tempfile.TemporaryDirectory() as cache:
        return list(datasets.Dataset.from_parquet(str(path), cache_dir=cache, keep_in_memory=True))
