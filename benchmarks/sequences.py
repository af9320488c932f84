"""Drawing sequences from replay: Rust, the NumPy reference, and ``numpy.take`` of equal rows.

python benchmarks/sequences.py [--rounds 60]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import rlox_native
from measure import machine, summary, write
from rlox.kernels import reference

BATCH, LENGTH = 16, 64
IMAGES = {
    "obs": ((64, 64, 3), "uint8"), "action": ((6,), "float32"), "reward": ((), "float32"),
    "is_first": ((), "bool"), "is_last": ((), "bool"), "is_terminal": ((), "bool"),
    "deter": ((512,), "float32"), "stoch": ((32,), "uint8"),
}  # fmt: skip
VECTORS = {**IMAGES, "obs": ((8,), "float32"), "deter": ((64,), "float32")}
STORED = 10_000
"""Images in the buffer (160 MB)."""


def fill(buffer: Any, fields: dict[str, Any], n_envs: int, rows: int) -> Any:
    """Return the buffer with random rows, divided equally among the envs."""
    rng = np.random.default_rng(0)
    row = {
        name: rng.integers(0, 2, (n_envs, *shape)).astype(dtype)
        for name, (shape, dtype) in fields.items()
    }
    envs = np.arange(n_envs)
    for _ in range(rows // n_envs):
        buffer.push(row, envs)
    return buffer


def take(fields: dict[str, Any], rows: int) -> Callable[[], Any]:
    """Return a draw of the same number of rows from plain arrays with ``numpy.take``."""
    rng = np.random.default_rng(0)
    arrays = [np.ones((rows, *shape), dtype) for shape, dtype in fields.values()]

    def draw() -> Any:
        starts = rng.integers(rows - LENGTH, size=BATCH)
        places = starts[:, None] + np.arange(LENGTH + 1)
        return [array.take(places, 0) for array in arrays]

    return draw


def processor_us(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return microseconds of processor time of each call, with contenders in turn."""
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for k in range(rounds + 3):
        for name, call in contenders.items():
            started = time.process_time()
            call()
            if k >= 3:
                spent[name].append((time.process_time() - started) * 1e6)
    return spent


def images(rounds: int) -> dict[str, Any]:
    """Measure drawing 16 sequences of 65 images."""
    made = {
        "rlox": rlox_native.SequenceReplayBuffer(STORED, IMAGES, seed=0),
        "NumPy reference": reference.SequenceReplayBuffer(STORED, IMAGES, seed=0),
    }
    contenders: dict[str, Callable[[], Any]] = {"NumPy take": take(IMAGES, STORED)}
    for name, buffer in made.items():
        contenders[name] = partial(fill(buffer, IMAGES, 1, STORED).sample, BATCH, LENGTH)
    spent = processor_us(contenders, rounds)
    result = {}
    for name, us in spent.items():
        ratios = [a / b for a, b in zip(us, spent["NumPy take"], strict=True)]
        result[name] = {"us": summary(us), "over_take": summary(ratios)}
        print(
            f"images {name:16s} {statistics.median(us):8.0f} us, "
            f"{statistics.median(ratios):.2f} takes"
        )
    return result


def sizes(rounds: int) -> list[dict[str, Any]]:
    """Measure a draw and its write-back with vectors, by stored rows and number of envs."""
    cases = [(10_000, 1), (100_000, 1), (1_000_000, 1), (100_000, 4), (100_000, 16)]

    def turn(buffer: Any) -> None:
        batch = buffer.sample(BATCH, LENGTH)
        rows = {name: batch[name][:, 1:] for name in ("deter", "stoch")}
        buffer.update(batch["indices"][:, 1:], rows)

    contenders: dict[str, Callable[[], Any]] = {}
    for rows, n_envs in cases:
        made = rlox_native.SequenceReplayBuffer(
            rows, VECTORS, declared=["deter", "stoch"], n_envs=n_envs, seed=0
        )
        contenders[f"{rows} rows, {n_envs} envs"] = partial(turn, fill(made, VECTORS, n_envs, rows))
    result = []
    for name, us in processor_us(contenders, rounds).items():
        result.append({"case": name, "draw_and_write_back_us": summary(us)})
        print(f"vectors {name:22s} {statistics.median(us):8.0f} us")
    return result


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/sequences.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    where = {**machine(["rlox-native", "numpy"]), "load": os.getloadavg()[0]}
    result = {"rounds": rounds, "machine": where, "clock": "processor time"}
    print(write("sequences", {**result, "images": images(rounds), "vectors": sizes(rounds)}))


if __name__ == "__main__":
    main()
