"""Loading and saving of datasets by file name or Minari id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlox.errors import DatasetError, suggest
from rlox.offline.dataset import OfflineDataset

from rlox_offline.datasets.dataset import Dataset, require_metadata
from rlox_offline.datasets.digests import checked, metadata_in, texts_of
from rlox_offline.datasets.files import FORMATS, FileFormat, reading
from rlox_offline.datasets.minari import minari_pieces, read_minari, write_minari
from rlox_offline.datasets.streamed import PIECE_ROWS, StreamedDataset

__all__ = [
    "MINARI",
    "STREAM",
    "load_dataset",
    "open_dataset",
    "require_format",
    "save_dataset",
    "stream_dataset",
]

MINARI = "minari:"
"""What the name of a Minari dataset begins with."""

STREAM = "stream:"
"""What stands before the name of a dataset that is not to be loaded into memory."""


def load_dataset(source: str | Path, *, normalize: bool | None = None, **known: Any) -> Dataset:
    """Load a dataset.

    Args:
        source: a file ``.npz``, ``.h5`` or ``.hdf5`` (D4RL's layout), ``.parquet``, ``.arrow`` or
            ``.feather``, or ``"minari:<id>"``, a Minari dataset on this machine.
        normalize: see :class:`Dataset`.
        known: what else is known, such as ``act_low`` and ``act_high``; wins over the file's.

    Raises:
        DatasetError: there is no such dataset, or it is damaged or cannot be learnt from.
        MissingDependencyError: the library that reads the format is not installed.
    """
    name, path = str(source), _existing(source)
    with reading(name):
        if path is None:
            columns, metadata = read_minari(name.removeprefix(MINARI))
            pieces = iter([columns])
        else:
            columns, texts = _format_of(path).read(path)
            pieces, metadata = checked(iter([columns]), texts), metadata_in(texts)
        known = {**require_metadata(metadata), **known}
        dataset = Dataset(next(pieces), normalize=normalize, **known)
        next(pieces, None)  # to the end, where the digest is compared
        return dataset


def stream_dataset(
    source: str | Path, *, folder: str | Path | None = None, **options: Any
) -> StreamedDataset:
    """Open a dataset that need not fit into memory.

    Args:
        source: a file or ``"minari:<id>"``, as in :func:`load_dataset`.
        folder: where the transitions go meanwhile, which take about as much room as the arrays do
            in memory; ``None`` takes the system's folder for temporary files.
        options: of :class:`StreamedDataset`; they win over what the file knows.

    Raises:
        DatasetError: there is no such dataset, or it is damaged or cannot be learnt from.
        MissingDependencyError: the library that reads the format is not installed.
        OSError: the disk is full.
    """
    name, path = str(source), _existing(source)
    with reading(name):
        if path is None:
            pieces, metadata = minari_pieces(name.removeprefix(MINARI))
        else:
            pieces, texts = _format_of(path).read_pieces(path, PIECE_ROWS)
            pieces, metadata = checked(pieces, texts), metadata_in(texts)
        known = {**require_metadata(metadata), **options}
        return StreamedDataset(pieces, folder=folder, **known)


def save_dataset(dataset: Dataset, target: str | Path) -> None:
    """Write a dataset with its metadata; :func:`load_dataset` reads it back equal.

    Args:
        dataset: what to write; the observations are written as they were recorded.
        target: a file or ``"minari:<id>"``, as in :func:`load_dataset`; a file is replaced.

    Raises:
        DatasetError: the format is unknown, there is a Minari dataset of that name, or the dataset
            is not in memory.
        MissingDependencyError: the library that writes the format is not installed.
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
    file_format.write(path, dataset.columns, texts_of(dataset.columns, dataset.metadata()))


def open_dataset(dataset: OfflineDataset | str | Path | None) -> OfflineDataset | None:
    """Return the dataset of that name, or what is one already.

    A name that begins with ``"stream:"`` is opened by :func:`stream_dataset`.
    """
    if not isinstance(dataset, (str, Path)):
        return dataset
    name = str(dataset)
    if name.startswith(STREAM):
        return stream_dataset(name.removeprefix(STREAM))
    return load_dataset(dataset)


def require_format(name: str) -> None:
    """Refuse a name under which no dataset can be saved.

    Raises:
        DatasetError: its suffix is unknown.
    """
    if not name.startswith(MINARI):
        _format_of(Path(name))


def _existing(source: str | Path) -> Path | None:
    """Return the path of an existing file of a known format; ``None`` for a Minari dataset."""
    if str(source).startswith(MINARI):
        return None
    path = Path(source)
    _format_of(path)
    if not path.is_file():
        raise DatasetError(f"dataset '{path}' does not exist")
    return path


def _format_of(path: Path) -> FileFormat:
    if path.suffix not in FORMATS:
        raise DatasetError(
            f"dataset '{path}' has the suffix '{path.suffix}'{suggest(path.suffix, FORMATS)}; "
            f"expected {', '.join(FORMATS)}, or '{MINARI}<id>'"
        )
    return FORMATS[path.suffix]
