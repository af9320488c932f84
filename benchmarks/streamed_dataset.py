"""Training on a dataset that does not fit into memory: time and memory.

    python benchmarks/streamed_dataset.py [--gigabytes 20] [--folder /somewhere/large]

Writes random transitions of the size of HalfCheetah's into an HDF5 file, and trains TD3+BC on it in
a process of its own. With the copy that batches are drawn from, it needs twice the disk space.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine, peak_mib, write

OBS_DIM, ACT_DIM, EPISODE = 17, 6, 1_000
ROW_BYTES = 4 * (2 * OBS_DIM + ACT_DIM + 1) + 2
GRADIENT_STEPS = 2_000


def main() -> None:
    """Write ``benchmarks/results/<processor>/streamed_dataset.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--folder", type=Path, help="of the dataset; needs twice its size")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        print(json.dumps(train(arguments.train)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "dataset.hdf5"
        n = write_dataset(path, arguments.gigabytes)
        command = [sys.executable, __file__, "--train", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        measured = {
            "transitions": n,
            "file_gigabytes": round(path.stat().st_size / 1e9, 2),
            "gradient_steps": GRADIENT_STEPS,
            **json.loads(result.stdout),
            "machine": machine(["rlox-core", "rlox-native", "rlox-offline", "torch", "h5py"]),
        }
    print(json.dumps(measured, indent=2))
    print(write("streamed_dataset", measured))


def write_dataset(path: Path, gigabytes: float) -> int:
    """Write a dataset of that size and return its number of transitions."""
    import h5py

    episodes = int(gigabytes * 1e9 / ROW_BYTES / EPISODE)
    rng = np.random.default_rng(0)
    n, rows = episodes * EPISODE, 100 * EPISODE
    with h5py.File(path, "w") as file:
        for name, shape, dtype in (
            ("observations", (OBS_DIM,), "f4"),
            ("next_observations", (OBS_DIM,), "f4"),
            ("actions", (ACT_DIM,), "f4"),
            ("rewards", (), "f4"),
            ("terminals", (), "?"),
            ("timeouts", (), "?"),
        ):
            file.create_dataset(name, (n, *shape), dtype)
        noise = rng.uniform(-1, 1, (rows, OBS_DIM)).astype(np.float32)
        for start in range(0, n, rows):
            at, count = slice(start, start + rows), min(rows, n - start)
            file["observations"][at] = noise[:count]
            file["next_observations"][at] = noise[::-1][:count]
            file["actions"][at] = noise[:count, :ACT_DIM]
            file["rewards"][at] = noise[:count, 0]
            file["timeouts"][at] = np.arange(count) % EPISODE == EPISODE - 1
    return n


def train(path: Path) -> dict[str, Any]:
    """Return seconds and the largest resident memory of this process."""
    import rlox
    from rlox_offline.datasets import stream_dataset

    started = time.perf_counter()
    dataset = stream_dataset(path, folder=path.parent, act_low=-1, act_high=1)
    opened = time.perf_counter()
    algorithm = rlox.make("td3_bc", dataset=dataset, seed=0)
    algorithm.train(GRADIENT_STEPS)
    trained = time.perf_counter()
    dataset.close()
    peak = peak_mib() * 2**20
    return {
        "open_seconds": round(opened - started, 1),
        "gradient_steps_per_second": round(GRADIENT_STEPS / (trained - opened), 1),
        "peak_resident_gigabytes": round(peak / 1e9, 2),
    }


if __name__ == "__main__":
    main()
