"""Loading and saving datasets by name: a file's suffix, or the id of a Minari dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlox.errors import DatasetError, suggest
from rlox.offline.dataset import OfflineDataset

from rlox_offline.datasets.dataset import Dataset, require_metadata
from rlox_offline.datasets.files import FORMATS, FileFormat
from rlox_offline.datasets.minari import read_minari, write_minari

__all__ = ["MINARI", "load_dataset", "open_dataset", "require_format", "save_dataset"]

MINARI = "minari:"
"""What the name of a Minari dataset begins with."""


def load_dataset(source: str | Path, *, normalize: bool = True, **known: Any) -> Dataset:
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
    name = str(source)
    if name.startswith(MINARI):
        columns, metadata = read_minari(name.removeprefix(MINARI))
    else:
        path = Path(source)
        file_format = _format_of(path)
        if not path.is_file():
            raise DatasetError(f"dataset '{path}' does not exist")
        try:
            columns, metadata = file_format.read(path)
        except DatasetError:
            raise
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise DatasetError(f"dataset '{path}' cannot be read: {error}") from None
    try:
        return Dataset(columns, normalize=normalize, **{**require_metadata(metadata), **known})
    except DatasetError as error:
        raise DatasetError(f"dataset '{name}': {error}") from None


def save_dataset(dataset: Dataset, target: str | Path) -> None:
    """Write a dataset with its metadata; :func:`load_dataset` reads it back equal.

    Args:
        dataset: what to write; the observations are written as they were recorded.
        target: a file or ``"minari:<id>"``, as in :func:`load_dataset`; a file is replaced.

    Raises:
        DatasetError: the format is unknown, or there is a Minari dataset of that name.
        MissingDependencyError: the library that writes the format is not installed.
    """
    if str(target).startswith(MINARI):
        write_minari(str(target).removeprefix(MINARI), dataset)
        return
    path = Path(target)
    file_format = _format_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file_format.write(path, dataset.columns, dataset.metadata())


def open_dataset(dataset: OfflineDataset | str | Path | None) -> OfflineDataset | None:
    """Return the dataset of that name, or what is one already."""
    return load_dataset(dataset) if isinstance(dataset, (str, Path)) else dataset


def require_format(name: str) -> None:
    """Refuse a name under which no dataset can be saved.

    Raises:
        DatasetError: its suffix is unknown.
    """
    if not name.startswith(MINARI):
        _format_of(Path(name))


def _format_of(path: Path) -> FileFormat:
    if path.suffix not in FORMATS:
        raise DatasetError(
            f"dataset '{path}' has the suffix '{path.suffix}'{suggest(path.suffix, FORMATS)}; "
            f"expected {', '.join(FORMATS)}, or '{MINARI}<id>'"
        )
    return FORMATS[path.suffix]
