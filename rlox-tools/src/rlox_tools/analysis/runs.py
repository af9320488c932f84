"""Run folders: record, options, films and output of each run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rlox.cli.runs.folder import step_unit_of
from rlox.config.files import read_mapping
from rlox.errors import ConfigError, RunError
from rlox.files import open_regular, pairs_as_html, read_text

__all__ = [
    "FILMS",
    "Run",
    "differing_options",
    "open_in_run",
    "read_record",
    "read_run",
]

FILMS = {".mp4": "video/mp4", ".gif": "image/gif"}
"""Media types of the films that a run folder may hold."""

NO_OPTIONS = ("seed",)
"""Entries of a config that distinguish runs of the same options."""


@dataclass(frozen=True)
class Run:
    """A run folder as its files stand.

    The files may be of unknown origin, so every text in them is data: whoever shows it escapes it.
    """

    path: Path
    record: Mapping[str, Any]
    """``run.json``."""
    options: Mapping[str, Any]
    """``config.yaml``; empty for a run that has written none."""

    @property
    def algorithm(self) -> str:
        """Registered name."""
        return str(self.record.get("algorithm"))

    @property
    def env(self) -> str:
        """What it trains on."""
        return str(self.record.get("env"))

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"interrupted"`` or ``"failed"``."""
        return str(self.record.get("status"))

    @property
    def seed(self) -> str:
        """Of all random streams."""
        return str(self.record.get("seed", "-"))

    @property
    def step_unit(self) -> str:
        """What the training is counted in."""
        return step_unit_of(self.record)

    @property
    def steps(self) -> int:
        """Done when the record was written; that of a run under way is of its start."""
        return _whole(self.record.get(self.step_unit))

    @property
    def target(self) -> int:
        """Steps to train for."""
        return _whole(self.record.get("total_timesteps"))

    @property
    def evaluation(self) -> tuple[float, float, int] | None:
        """Mean, standard deviation and episodes of the evaluation at the end."""
        found = self.record.get("evaluation")
        try:
            return float(found["mean"]), float(found["std"]), int(found["n_episodes"])  # type: ignore[index]
        except (TypeError, ValueError, LookupError, OverflowError):
            return None

    def films(self) -> list[Path]:
        """Return the films in the folder, the newest first; links are left out."""
        found = [path for path in _plain_files(self.path) if path.suffix in FILMS]
        return sorted(found, key=lambda path: (path.stat().st_mtime, path), reverse=True)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        unit = self.step_unit.replace("_", " ")
        pairs = {
            "algorithm": self.algorithm,
            "env": self.env,
            "status": self.status,
            "seed": self.seed,
            unit: f"{self.steps:,} of {self.target:,}",
        }
        if self.evaluation is not None:
            mean, std, episodes = self.evaluation
            pairs["return"] = f"{mean:.1f} ± {std:.1f} over {episodes} episodes"
        return pairs_as_html(str(self.path), pairs)


def read_run(path: Path) -> Run:
    """Return the run in a folder.

    Raises:
        RunError: it has no record, or a file is damaged.
    """
    record = read_record(path)
    config = path / "config.yaml"
    try:
        return Run(path, record, read_mapping(config) if config.is_file() else {})
    except ConfigError as error:
        raise RunError(str(error)) from None


def read_record(run: Path) -> Mapping[str, Any]:
    """Return the ``run.json`` of a run folder.

    Raises:
        RunError: there is none, or it is no record of a run.
    """
    try:
        found = json.loads(read_text(run / "run.json"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"'{run / 'run.json'}' cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise RunError(f"'{run / 'run.json'}' is no record of a run")
    return found


def open_in_run(run: Path, name: str) -> BinaryIO:
    """Open a file of a run folder to read its bytes.

    Args:
        run: the folder, which may itself be a link.
        name: path below it.

    Raises:
        OSError: there is none, it is no regular file, or it lies outside, directly or by a link.
    """
    path = run
    for part in Path(name).parts:
        path /= part
        if part == ".." or Path(part).is_absolute() or path.is_symlink():
            raise FileNotFoundError(f"'{name}' is no plain file of the run '{run}'")
    return open_regular(path, "rb")


def differing_options(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the options that are not the same in all runs, seeds aside.

    Returns:
        By name, the value of each run as text, ``"-"`` if it has none.
    """
    names = dict.fromkeys(name for run in runs for name in run.options)
    values = {
        name: [_text(run.options[name]) if name in run.options else "-" for run in runs]
        for name in names
        if name not in NO_OPTIONS
    }
    return {name: texts for name, texts in values.items() if len(set(texts)) > 1}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _plain_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder, however deep, past links."""
    folders = [folder]
    while folders:
        for entry in sorted(folders.pop().iterdir()):
            if entry.is_symlink():
                continue
            if entry.is_dir():
                folders.append(entry)
            elif entry.is_file():
                yield entry
