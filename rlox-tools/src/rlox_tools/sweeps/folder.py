"""The folder of a sweep: its runs and their states."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path

from rlox.cli.runs.folder import RunFolder, checkpoints_in
from rlox.cli.runs.options import RunOptions
from rlox.errors import ConfigError
from rlox.files import read_text, require_plain_folder, write_atomically

Settings = Mapping[str, str]
"""A set's own options in addition to the common ones, spelt as flags."""


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    set_name: str
    """Name of its set of options, ``"learning_rate=1e-3"``; empty without sets."""
    seed: int
    folder: RunFolder

    @property
    def name(self) -> str:
        """Name in the output."""
        return f"{self.set_name} seed {self.seed}".lstrip()

    @property
    def output(self) -> Path:
        """File for its printed output."""
        return Path(f"{self.folder.path}.log")

    @property
    def config(self) -> Path:
        """File of the options that all seeds share."""
        return self.folder.path.parent / "config.yaml"

    def finished(self) -> bool:
        """Return whether the run is finished."""
        return self.begun() and self.folder.read()["status"] == "finished"

    def begun(self) -> bool:
        """Return whether it has a record."""
        return (self.folder.path / "run.json").is_file()

    def resumable(self) -> bool:
        """Return whether it has a checkpoint to go on from; a folder without one is set aside.

        Raises:
            ConfigError: another process trains in the folder, such as one of a killed sweep.
        """
        path = self.folder.path
        if self.begun() and any(s.path.stem != "best" for s in checkpoints_in(path)[0]):
            return True
        if path.exists():  # it ended before anything was saved
            with self.folder.lock():
                path.rename(_unused(path))
        return False


@dataclass(frozen=True)
class Sweep:
    """A folder with ``sweep.json`` and a run folder for each seed, of each set of options."""

    path: Path
    algorithm: str
    seeds: tuple[int, ...]
    sets: tuple[Settings, ...]
    """The empty mapping alone, if all runs have the same options."""
    options: RunOptions

    def folder_of(self, settings: Settings) -> Path:
        """Return the folder of a set's runs and of its ``config.yaml``."""
        return self.path / set_name(settings) if settings else self.path

    def members(self) -> list[Member]:
        """Return all runs, set by set."""
        return [
            Member(set_name(settings), seed, RunFolder(self.folder_of(settings) / f"seed-{seed}"))
            for settings in self.sets
            for seed in self.seeds
        ]

    def start(self) -> None:
        """Write ``sweep.json``."""
        record = {
            "algorithm": self.algorithm,
            "env": self.options.env,
            "seeds": self.seeds,
            "sets": self.sets,
            "command": shlex.join(["rlox", *sys.argv[1:]]),
            "options": self.options.to_dict(),
        }
        text = json.dumps(record, indent=2) + "\n"
        write_atomically(self.path / "sweep.json", text.encode())

    @staticmethod
    def is_in(path: Path) -> bool:
        """Return whether a folder is a sweep's."""
        return (path / "sweep.json").is_file()

    @staticmethod
    def read(path: Path) -> Sweep:
        """Return the sweep in a folder.

        Raises:
            ConfigError: it is damaged, or holds a link or a named pipe.
        """
        require_plain_folder(path)
        try:
            record = json.loads(read_text(path / "sweep.json"))
            seeds = tuple(int(seed) for seed in record["seeds"])
            sets = tuple({str(k): str(v) for k, v in each.items()} for each in record["sets"])
            options = RunOptions.from_dict(record["options"])
            return Sweep(path, str(record["algorithm"]), seeds, sets, options)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"'{path / 'sweep.json'}' is damaged: {error}") from None


def parse_sets(texts: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Return every combination of the values in texts such as ``"gamma=0.9,0.99"``.

    Args:
        texts: an option's name and its values; commas in brackets do not separate values, and
            dashes in the name become underscores.

    Raises:
        ConfigError: a text has another form, or an option or a value is repeated.
    """
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        found = [value.strip() for value in _split(listed)]
        if not (name and equals and all(found)):
            raise ConfigError(
                f"--sweep must look like learning_rate=1e-3,3e-4, an option and its values, "
                f"got {text!r}"
            )
        if name in values or len(set(found)) < len(found):
            raise ConfigError(f"--sweep names an option or a value twice in {text!r}")
        values[name] = found
    return tuple(dict(zip(values, each, strict=True)) for each in product(*values.values()))


def _split(text: str) -> list[str]:
    """Split a text at its commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth < 1:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _unused(path: Path) -> Path:
    """Return the first of ``path.superseded``, ``path.2.superseded``, ... that does not exist."""
    names = (f"{path}{'' if n == 1 else f'.{n}'}.superseded" for n in count(1))
    return next(aside for aside in map(Path, names) if not aside.exists())


def set_name(settings: Settings) -> str:
    """Return a name for a set of options, valid as a folder's name."""
    text = ",".join(f"{name}={value}" for name, value in settings.items())
    return re.sub(r"[^\w.,=+()-]", "_", text)


def set_of(run: Path) -> str | None:
    """Return the name of a run folder's set of options, or ``None``."""
    return run.parent.name if Sweep.is_in(run.parent.parent) else None
