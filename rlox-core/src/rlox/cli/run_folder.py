"""The folder of one training run."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox.errors import CheckpointError, ConfigError
from rlox.versions import installed_versions

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["RunFolder", "find_checkpoint", "require_unused"]


class RunFolder:
    """``config.yaml``, ``run.json``, ``checkpoints/`` and what the loggers write.

    Args:
        path: a new or empty folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record: dict[str, Any] = {}

    @staticmethod
    def default_path(algorithm: Algorithm, env: str) -> Path:
        """Return ``runs/<algorithm>-<env>-<seed>-<time>``."""
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        env = env.replace("/", "_").replace(":", "_")
        return Path("runs") / f"{algorithm.name}-{env}-{algorithm.streams.seed}-{stamp}"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint(self, name: str) -> Path:
        """Return the path of the checkpoint ``name``."""
        return self.checkpoints / f"{name}.safetensors"

    def start(self, algorithm: Algorithm, env: str, total_timesteps: int) -> None:
        """Make the folder, and write ``config.yaml`` and the first ``run.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        algorithm.config.dump(self.path / "config.yaml")
        self.record(
            status="running",
            algorithm=algorithm.name,
            env=env,
            seed=algorithm.streams.seed,
            total_timesteps=total_timesteps,
            env_steps=algorithm.clock.env_steps,
            evaluation=None,
            started=_now(),
            ended=None,
            command=shlex.join(["rlox", *sys.argv[1:]]),
            versions=installed_versions(),
        )

    def end(self, status: str, **values: Any) -> None:
        """Record the outcome: ``"finished"``, ``"interrupted"`` or ``"failed"``."""
        self.record(status=status, ended=_now(), **values)

    def record(self, **values: Any) -> None:
        """Set keys of ``run.json``; a reader sees the old file or the new one, never half."""
        self._record.update(values)
        temporary = self.path / ".run.json.tmp"
        temporary.write_text(json.dumps(self._record, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.path / "run.json")


def require_unused(path: Path) -> None:
    """Refuse a folder that holds anything.

    Raises:
        ConfigError: it is a file or not empty.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(
            f"run folder '{path}' exists and is not empty; name another with --run-dir, or leave "
            "--run-dir out for a new one"
        )


def find_checkpoint(path: Path) -> Path:
    """Return ``path``, or the checkpoint to use where it is a run folder.

    That is the final one, else the one saved at an interruption, else the newest.

    Raises:
        CheckpointError: the folder holds none.
    """
    if not path.is_dir():
        return path
    folder = RunFolder(path)
    for name in ("final", "interrupted"):
        if folder.checkpoint(name).is_file():
            return folder.checkpoint(name)
    others = list(path.glob("checkpoints/*.safetensors"))
    if not others:
        raise CheckpointError(f"folder '{path}' holds no checkpoints/*.safetensors")
    return max(others, key=lambda file: file.stat().st_mtime_ns)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
