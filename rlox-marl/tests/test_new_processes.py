"""Trainings that go on in a new process, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SPREAD = "mpe2/simple_spread_v3"
POLICY = {"n_envs": 2, "n_steps": 12, "batch_size": 24, "n_epochs": 2, "hidden": 8}
VALUES = {
    "n_envs": 2, "train_freq": 4, "gradient_steps": 1, "batch_size": 4, "learning_starts": 8,
    "hidden": 8, "buffer_size": 200, "steps_per_iteration": 48, "save_replay_buffer": True,
}  # fmt: skip
POOL = {
    "env_kwargs": {"N": 2}, "opponents": "rating", "pool_interval": 24, "pool_size": 3,
    "pool_share": 1.0,
}  # fmt: skip
MEMORY = {"recurrent": "gru", "memory_size": 8}

RUN = """
import hashlib, json, sys
import numpy as np
import rlox
import rlox.algorithms

name, options, path, steps, resumes = json.loads(sys.argv[1])
sha = hashlib.sha256()

def add(value):
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            sha.update(str(key).encode())
            add(value[key])
    elif isinstance(value, (list, tuple)):
        for one in value:
            add(one)
    else:
        sha.update(np.asarray(value).tobytes() if hasattr(value, "shape") else repr(value).encode())

if resumes:
    algorithm = getattr(rlox.algorithms, name.upper()).from_checkpoint(path)
else:
    algorithm = rlox.make(name, env="mpe2/simple_spread_v3", seed=3, **options)
rows = []
for i in range(steps):
    row = algorithm.train(48)
    rows.append({key: repr(v) for key, v in row.items() if not key.endswith("_second")})
    if i == 0 and not resumes:
        algorithm.save(path)
add(algorithm.state_dict())
print(json.dumps([sha.hexdigest(), rows[-1]]))
algorithm.close()
"""


def run(*given: object, threads: int) -> list[Any]:
    """Return the hash of all state and the last row of a training in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(given)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "RLOX_NUM_THREADS": str(threads)},
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("qmix", VALUES | MEMORY, id="qmix-gru-replay"),
        pytest.param("mappo", POLICY | POOL, id="mappo-rated-pool", marks=pytest.mark.slow),
        pytest.param(
            "ippo",
            POLICY | MEMORY | {"recurrent": "lstm", "normalize_values": "popart"},
            id="ippo-lstm-popart",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_training_goes_on_in_a_new_process(tmp_path: Path, name: str, options: dict) -> None:
    """N, save, new process with two threads and N equal 2N with one: state and log row."""
    path = str(tmp_path / "half.rlox")
    straight = run(name, options, path, 2, False, threads=1)
    assert run(name, options, path, 1, True, threads=2) == straight
    if "opponents" in options:
        assert float(straight[1]["pool_policies"]) > 1
