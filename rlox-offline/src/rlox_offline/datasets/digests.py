"""Digests of saved datasets, and their metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from rlox.errors import DatasetError
from rlox.files import require_memory_for

from rlox_offline.datasets.columns import Columns, known_columns

__all__ = [
    "DIGEST",
    "KEY",
    "Digest",
    "Texts",
    "checked",
    "metadata_text",
    "require_loading",
    "texts_of",
]

KEY = "rlox"
"""Name of the metadata in every format."""

DIGEST = "rlox_digest"
"""Name of the digest, beside the metadata."""

Texts = dict[str, Any]
"""Metadata and digest by their names in files; in damaged files they need not be text."""


class Digest:
    """SHA-256 of the metadata and of each column's type and values, in pieces of any size.

    Args:
        metadata: as text.
    """

    def __init__(self, metadata: str) -> None:
        self._metadata = metadata
        self._columns: dict[str, Any] = {}

    def add(self, columns: Columns) -> None:
        """Add rows (B, ...) of each column, by any of its names."""
        for name, ours in known_columns(list(columns)).items():
            column = np.ascontiguousarray(columns[name])
            if ours not in self._columns:
                kind = f"{column.dtype.str} {column.shape[1:]}"
                self._columns[ours] = hashlib.sha256(kind.encode())
            self._columns[ours].update(column.reshape(-1).view(np.uint8))

    def text(self) -> str:
        """Return the digest of all that was added, 64 hexadecimal digits."""
        parts = [f"{name} {self._columns[name].hexdigest()}" for name in sorted(self._columns)]
        return hashlib.sha256("\n".join([self._metadata, *parts]).encode()).hexdigest()


def texts_of(columns: Columns, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return what is written beside the columns: the metadata as JSON, and the digest."""
    text = json.dumps(metadata)
    digest = Digest(text)
    digest.add(columns)
    return {KEY: text, DIGEST: digest.text()}


def checked(pieces: Iterator[Columns], texts: Mapping[str, Any]) -> Iterator[Columns]:
    """Yield the pieces; after the last one, refuse contents that are not those that were saved.

    Files of others have no digest, and are not checked. The digest is computed in a thread while a
    piece is used, so whoever changes a piece changes a copy.

    Raises:
        DatasetError: the digest is another one.
    """
    if DIGEST not in texts:
        yield from pieces
        return
    digest = Digest(metadata_text(texts))
    with ThreadPoolExecutor(1) as pool:
        for piece in pieces:
            added = pool.submit(digest.add, piece)
            yield piece
            added.result()
    if digest.text() != texts[DIGEST]:
        raise DatasetError(
            "its contents have changed since it was saved: it is damaged or was edited; load "
            "another copy, or record it again"
        )


def require_loading(n_bytes: int) -> None:
    """Refuse arrays that are too large to be loaded, as read and as they are learnt from.

    Raises:
        MemoryLimitError: there is less memory.
    """
    require_memory_for("its arrays", None, 2 * n_bytes, "stream it, with 'stream:' before its name")


def metadata_text(texts: Mapping[str, Any]) -> str:
    """Return the metadata of a file as JSON, ``"{}"`` if it has none.

    Raises:
        DatasetError: they are not text.
    """
    text = texts.get(KEY, "{}")
    if not isinstance(text, str):
        raise DatasetError(f"the metadata must be text, got {type(text).__name__}")
    return text
