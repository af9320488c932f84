"""HDF5 files in D4RL's layout, without external data.

An HDF5 file may refer to values in another file, of any kind and anywhere on the machine. Such
values are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlox.errors import DatasetError, import_extra
from rlox.files import require_memory_for

from rlox_offline.datasets.columns import (
    D4RL_NAMES,
    DIGEST,
    KEY,
    Columns,
    Pieces,
    Texts,
    known_columns,
    require_loading,
)

MOST_PER_BYTE, FEW_BYTES = 2**15, 2**12
"""Most bytes that one stored byte can expand to, and the minimum assumed for the stored bytes.
HDF5 fills missing values with zeros, so a tiny file could declare any size."""


def open_hdf5(path: Path, rows: int | None) -> tuple[Pieces, Texts]:
    """Return the columns in pieces of ``rows`` rows, or in one for ``None``, and the texts."""
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    with h5py.File(path, "r") as file:
        columns = _columns(h5py, file)
        texts = {name: file.attrs[name] for name in (KEY, DIGEST) if name in file.attrs}
        if rows is None:
            require_loading(sum(column.nbytes for column in columns.values()))
            return iter([{name: column[()] for name, column in columns.items()}]), texts
        for name, column in columns.items():
            row_bytes = column.nbytes // max(len(column), 1)
            require_memory_for(f"rows of '{name}'", None, rows * row_bytes, "make its rows smaller")
    names = known_columns(list(columns))

    def pieces() -> Pieces:
        with h5py.File(path, "r") as file:
            n = max((len(file[name]) for name in names), default=0)
            for start in range(0, n, rows):
                yield {ours: file[name][start : start + rows] for name, ours in names.items()}

    return pieces(), texts


def write_hdf5(path: Path, columns: Columns, texts: Mapping[str, str]) -> None:
    """Write the columns, compressed and with checksums, and the texts as attributes."""
    h5py = import_extra("h5py", f"writing '{path}'", "hdf5")
    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            file.create_dataset(
                D4RL_NAMES.get(name, name), data=column, compression="gzip", fletcher32=True
            )
        file.attrs.update(texts)


def require_own_data(path: Path) -> int:
    """Return the total bytes of all arrays in an HDF5 file.

    Raises:
        DatasetError: some values are in another file, or not stored at all.
    """
    h5py = import_extra("h5py", f"reading '{path}'", "hdf5")
    total, known = 0, set()
    with h5py.File(path, "r") as file:
        groups = [file]
        while groups:
            group = groups.pop()
            for name in group:
                item = _own(h5py, group, name)
                address = h5py.h5o.get_info(item.id).addr
                if address in known:  # another link to a visited object
                    continue
                known.add(address)
                if isinstance(item, h5py.Dataset):
                    total += _own_bytes(name, item)
                elif isinstance(item, h5py.Group):
                    groups.append(item)
    return total


def _columns(h5py: Any, file: Any) -> dict[str, Any]:
    """Return the known datasets, by the file's names."""
    found = {name: _own(h5py, file, name) for name in known_columns(list(file))}
    columns = {name: item for name, item in found.items() if isinstance(item, h5py.Dataset)}
    for name, column in columns.items():
        if not column.shape:
            raise DatasetError(f"'{name}' must have rows, got one value or none")
        if column.dtype.kind not in "biuf":
            raise DatasetError(f"{name} must hold numbers, got {column.dtype}")
        _own_bytes(name, column)
    return columns


def _own(h5py: Any, group: Any, name: str) -> Any:
    """Return a group's item, refusing links to elsewhere."""
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise DatasetError(
            f"'{name}' is a link to '{link.path}' of {getattr(link, 'filename', 'the same file')!r}"
            "; put the data there instead"
        )
    return group[name]


def _own_bytes(name: str, dataset: Any) -> int:
    """Return the bytes of a dataset, after checking that its file stores all values."""
    if dataset.external or dataset.is_virtual:
        raise DatasetError(f"the values of '{name}' are in another file; put them into this one")
    if dataset.shape is None:
        return 0
    n_bytes = int(dataset.nbytes)
    stored = dataset.id.get_storage_size()
    if n_bytes and (not stored or n_bytes > MOST_PER_BYTE * max(stored, FEW_BYTES)):
        values = f"only {stored:,} bytes of" if stored else "no"
        raise DatasetError(
            f"'{name}' has the shape {dataset.shape}, but {values} values are stored"
        )
    return n_bytes
