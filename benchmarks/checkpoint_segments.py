"""Checkpoints with a replay buffer: time and bytes of a save against the buffer's size.

    python benchmarks/checkpoint_segments.py [--folder /somewhere]

Between two saves 1,000 transitions of CartPole's size are pushed. Sizes and both ways of saving
take turns: in segments, as rlox does, and the whole buffer in one file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rlox
from measure import machine, write
from rlox.training import checkpoint
from rlox.training.segments import SavedBuffer

STORED = (10_000, 100_000, 1_000_000)
NEW = 1_000
ROUNDS = 15
OPTIONS: dict[str, Any] = {"hidden": 64, "seed": 0}


class Whole(SavedBuffer):
    """A buffer that every checkpoint copies in full."""

    def state(self) -> Mapping[str, Any]:
        """Return a copy."""
        state: Mapping[str, Any] = self.buffer.state()
        return state


def main() -> None:
    """Write ``benchmarks/results/<processor>/checkpoint_segments.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, help="where to save; the disk is part of the time")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory(dir=folder) as path:
        contenders = [
            Contender(buffer, way, stored, Path(path))
            for buffer in ("uniform", "prioritized")
            for way in ("segments", "whole")
            for stored in STORED
        ]
        for _ in range(ROUNDS):
            for contender in contenders:
                contender.save()
        rows = [contender.row() for contender in contenders]
    measured = {
        "new": NEW,
        "rounds": ROUNDS,
        "saves": rows,
        "machine": machine(["rlox-core", "rlox-native", "torch"]),
    }
    print(json.dumps(measured, indent=2))
    print(write("checkpoint_segments", measured))


class Contender:
    """A DQN whose full ring of ``stored`` transitions is saved repeatedly."""

    def __init__(self, buffer: str, way: str, stored: int, folder: Path) -> None:
        self.names = {"buffer": buffer, "way": way, "stored": stored}
        self.path = folder / f"{buffer}-{way}-{stored}" / "checkpoint.safetensors"
        self.algorithm: Any = rlox.make(
            "dqn", env="CartPole-v1", buffer=buffer, buffer_size=stored, save_replay_buffer=True,
            **OPTIONS,
        )  # fmt: skip
        self.rng = np.random.default_rng(0)
        if way == "whole":
            self.algorithm.replay._saved = Whole(self.algorithm.replay.buffer)
        self.push(stored)
        self.first = self._save()
        self.seconds: list[float] = []
        self.bytes: list[int] = []

    def push(self, n: int) -> None:
        """Push random transitions."""
        obs = self.rng.random((n, 4), np.float32)
        flags = np.zeros(n, np.bool_)
        self.algorithm.replay.buffer.push_batch(
            obs, flags.astype(np.int64), obs[:, 0], flags, flags, obs
        )

    def _save(self) -> float:
        started = time.perf_counter()
        checkpoint.save(self.algorithm, self.path)
        return time.perf_counter() - started

    def save(self) -> None:
        """Push, save, and record the time and the bytes of new files."""
        self.push(NEW)
        before = self._files()
        self.seconds.append(self._save())
        after = self._files()
        self.bytes.append(sum(size for file, size in after.items() if file not in before))

    def _files(self) -> dict[tuple[str, int], int]:
        found = [path for path in self.path.parent.rglob("*") if path.is_file()]
        return {(path.name, path.stat().st_ino): path.stat().st_size for path in found}

    def row(self) -> dict[str, Any]:
        """Return the results."""
        began = time.perf_counter()
        checkpoint.read(self.path)
        return {
            **self.names,
            "milliseconds": round(statistics.median(self.seconds) * 1e3, 2),
            "least": round(min(self.seconds) * 1e3, 2),
            "most": round(max(self.seconds) * 1e3, 2),
            "kilobytes": round(statistics.median(self.bytes) / 1e3, 1),
            "first_milliseconds": round(self.first * 1e3, 2),
            "read_milliseconds": round((time.perf_counter() - began) * 1e3, 2),
        }


if __name__ == "__main__":
    main()
