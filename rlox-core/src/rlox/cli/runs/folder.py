"""The folder of one training run."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox.cli.runs.options import code_parts
from rlox.config.composition import local_options
from rlox.config.files import read_mapping
from rlox.errors import CheckpointError, ConfigError
from rlox.files import lock_file, read_text, remove_parts, require_plain_folder, write_atomically
from rlox.training import checkpoint
from rlox.training.checkpoint import installed_versions
from rlox.training.segments import remove_orphans

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm
    from rlox.cli.runs.options import RunOptions

RECORDED: dict[str, tuple[type, ...]] = {
    "status": (str,),
    "step_unit": (str,),
    "resumed": (list,),
    "training_seconds": (int, float),
}
"""Types of the record's values that a resumed run relies on."""

LONGEST = 1e12
"""Upper bound of a training's seconds."""


class RunFolder:
    """``config.yaml``, ``run.json``, ``checkpoints/`` and the loggers' files.

    Args:
        path: a new or empty folder, or an earlier run's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record: dict[str, Any] = {}

    @staticmethod
    def default_path(algorithm: str, env: str, what: int | str) -> Path:
        """Return ``runs/<algorithm>-<env>-<what>-<time>``, where ``what`` is a seed or "sweep"."""
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        env = env.replace("/", "_").replace(":", "_")
        name = f"{algorithm}-{env}-{what}-{stamp}"
        # a second one within a second
        names = chain((name,), (f"{name}-{i}" for i in count(2)))
        return next(path for each in names if not (path := Path("runs") / each).exists())

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint(self, name: str) -> Path:
        """Return the path of the checkpoint ``name``."""
        return self.checkpoints / f"{name}.safetensors"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder and lock it for this process, until it ends in any way.

        Raises:
            ConfigError: another process trains in it, it cannot be written, or it holds a link or
                a named pipe.
        """
        require_plain_folder(self.path)
        with suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK):
            raise ConfigError(
                f"run folder '{self.path}' cannot be written; name another with --run-dir, or "
                "resume a copy"
            )
        with lock_file(self.path / ".lock") as held:
            if not held:
                raise ConfigError(
                    f"another process is training in the run folder '{self.path}'; wait for its "
                    "end or stop it"
                )
            remove_parts(self.checkpoints)
            remove_orphans(self.checkpoints)
            yield

    def remote_options(self, algorithm_class: type[Algorithm]) -> dict[str, Any]:
        """Return the options of envs on other machines, which checkpoints leave out.

        Args:
            algorithm_class: of the run.

        Raises:
            ConfigError: ``config.yaml`` cannot be read.
        """
        path = self.path / "config.yaml"
        if not path.is_file():
            return {}
        values = read_mapping(path)
        kept = local_options(algorithm_class.config_class, values)
        return {name: value for name, value in values.items() if name not in kept}

    def start(self, algorithm: Algorithm, options: RunOptions) -> None:
        """Write ``config.yaml`` and the first ``run.json``."""
        algorithm.config.dump(self.path / "config.yaml")
        self.record(
            status="running",
            algorithm=algorithm.name,
            env=options.env,
            preset=getattr(algorithm.config, "preset", "none"),
            seed=algorithm.streams.seed,
            total_timesteps=options.total_timesteps,
            step_unit=algorithm.clock.unit,
            **algorithm.clock.progress(),
            evaluation=None,
            started=_now(),
            ended=None,
            resumed=[],
            command=shlex.join(["rlox", *sys.argv[1:]]),
            options=options.to_dict(),
            versions=installed_versions(),
        )

    def read(self) -> dict[str, Any]:
        """Return ``run.json``; later records add to it.

        Raises:
            ConfigError: it is missing, or is not a record of a run.
        """
        path = self.path / "run.json"
        try:
            found = json.loads(read_text(path))
        except OSError:
            found = "it has no run.json" if self.path.exists() else "it does not exist"
            raise ConfigError(f"'{self.path}' is not a run folder: {found}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"'{path}' is damaged: {error}") from None
        if not isinstance(found, dict) or "status" not in found:
            raise ConfigError(f"'{path}' is not a record of a run")
        for key, kinds in RECORDED.items():
            value = found.get(key)
            absurd = isinstance(value, (int, float)) and not 0 <= value < LONGEST
            if key in found and (absurd or not isinstance(value, kinds)):
                raise ConfigError(f"'{path}' is damaged: {key} is {found[key]!r:.80}")
        self._record = found
        return found

    @property
    def differs(self) -> str:
        """Why the result differs from an uninterrupted run's; empty if it does not."""
        return str(self._record.get("differs", ""))

    def go_back_to(self, saved: SavedState) -> None:
        """Record that the run continues from ``saved``, and set later checkpoints aside.

        They are renamed, not deleted: resuming from one would skip the rows logged from now on.
        """
        kept = {each.path for each in checkpoints_in(self.path)[0] if each.steps <= saved.steps}
        for path in self.checkpoints.glob("*.safetensors"):
            if path not in kept and path.stem != "best":
                path.rename(f"{path}.superseded")
        done = {step_unit_of(self._record): saved.steps}
        resumed = [*self._record.get("resumed", []), {**done, "time": _now()}]
        self.record(status="running", ended=None, resumed=resumed, **done)

    def add_training_seconds(self, seconds: float) -> None:
        """Add the wall time of a part of the training to the record."""
        before = float(self._record.get("training_seconds") or 0.0)
        self.record(training_seconds=round(before + seconds, 3))

    def end(self, status: str, **values: Any) -> None:
        """Record the outcome: ``"finished"``, ``"interrupted"`` or ``"failed"``."""
        self.record(status=status, ended=_now(), **values)

    def record(self, **values: Any) -> None:
        """Set keys of ``run.json``; a reader sees the old file or the new one, never half."""
        self._record.update(values)
        text = json.dumps(self._record, indent=2) + "\n"
        # a stopped sweep writes while the thread still trains
        write_atomically(self.path / "run.json", text.encode())


def step_unit_of(record: Mapping[str, Any]) -> str:
    """Return the unit of the steps in a ``run.json``."""
    return str(record.get("step_unit", "env_steps"))


def resume_command_of(path: Path, env: Any, parts: Mapping[str, str] | None = None) -> str:
    """Return the command that finishes the run or the sweep in the folder ``path``.

    Args:
        path: the folder.
        env: the training's env; an id ``"module:name"`` is part of the command, since no file may
            choose imports.
        parts: of the run; code is part of the command for the same reason.
    """
    command = ["rlox", "resume", str(path)]
    if isinstance(env, str) and ":" in env:
        command += ["--env", env]
    command += code_parts(parts or {})
    return shlex.join(command)


def find_checkpoint(path: Path, *, best: bool = False) -> Path:
    """Return ``path``, or the checkpoint to use if it is a run folder.

    Args:
        path: a checkpoint or a run folder.
        best: take the run folder's best checkpoint by its evaluations; else the latest, of equal
            steps the final one.

    Raises:
        CheckpointError: the folder holds none.
    """
    if not path.is_dir():
        return path
    if best:
        found = RunFolder(path).checkpoint("best")
        if not found.is_file():
            raise CheckpointError(
                f"folder '{path}' holds no checkpoints/best.safetensors; --eval-freq makes one"
            )
        return found
    saved, damaged = checkpoints_in(path)
    if not saved:
        reason = f"; {damaged[0]}" if damaged else ""
        raise CheckpointError(f"folder '{path}' holds no checkpoints/*.safetensors{reason}")
    return saved[0].path


@dataclass(frozen=True)
class SavedState:
    """A checkpoint of a run folder."""

    steps: int
    """Number of steps in the training's unit."""
    path: Path


def checkpoints_in(run: Path) -> tuple[list[SavedState], list[str]]:
    """Return a run folder's checkpoints, the latest first, and the errors of damaged ones.

    At the same step, the final checkpoint comes first and ``best``, which may have been saved in
    the middle of an iteration, last.
    """
    saved, damaged = [], []
    for path in run.glob("checkpoints/*.safetensors"):
        try:
            saved.append(SavedState(checkpoint.steps_of(path), path))
        except CheckpointError as error:  # noqa: PERF203
            damaged.append(str(error))
    rank = {"final": 2, "best": 0}
    saved.sort(key=lambda s: (s.steps, rank.get(s.path.stem, 1)), reverse=True)
    return saved, damaged


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
