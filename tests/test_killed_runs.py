"""Runs that ``kill -9`` ends go on with ``rlox resume``, with default options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rlox.training.checkpoint import steps_of
from rlox_offline.datasets import Dataset, save_dataset

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")

PATIENCE = 300
"""Seconds until a process that does nothing fails the test."""

ERRORS = "stderr.txt"

CASES = {
    "ppo": ["--env", "CartPole-v1", "--n-envs", "2", "--n-steps", "16", "--batch-size", "32"],
    "sac": ["--env", "Pendulum-v1", "--learning-starts", "50", "--hidden", "16"],
    "dreamer_v3": [
        "--env",
        "CartPole-v1",
        "--learning-starts",
        "50",
        "--units",
        "8",
        "--hidden",
        "8",
        "--batch-size",
        "4",
        "--seq-len",
        "8",
        "--train-ratio",
        "8",
        "--save-replay-buffer",
    ],
    "iql": ["--dataset", "set.npz", "--env", "Pendulum-v1", "--hidden", "16", "--batch-size", "16"],
}


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``rlox`` in a folder; whatever happens, it ends with the block."""
    with (folder / ERRORS).open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "rlox", *arguments],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until(done: Callable[[], bool], process: subprocess.Popen[str], folder: Path) -> None:
    """Wait for something that a process does."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if process.poll() is not None:
            raise AssertionError(f"it ended: {(folder / ERRORS).read_text()}")
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(4 * PATIENCE)
@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_goes_on(name: str, tmp_path: Path) -> None:
    """From what it last saved, without the run's having been asked to; nothing else is left."""
    rng = np.random.default_rng(0)
    columns = {"obs": rng.random((64, 3)), "actions": rng.uniform(-1, 1, (64, 1))}
    ended = np.arange(64) % 16 == 15
    columns |= {"rewards": rng.random(64), "terminated": ended}
    dataset = Dataset(columns, act_low=-2, act_high=2)
    save_dataset(dataset, tmp_path / "set.npz")
    run = tmp_path / "run"
    latest = run / "checkpoints" / "latest.safetensors"
    often = ["--checkpoint-freq", "0.1s", "--total-timesteps", "1000000000"]
    with running("train", name, *CASES[name], *often, "--run-dir", "run", folder=tmp_path) as first:
        wait_until(latest.is_file, first, tmp_path)
        first.send_signal(signal.SIGKILL)
        assert first.wait(PATIENCE) == -signal.SIGKILL
    saved = steps_of(latest)
    assert saved > 0
    assert json.loads((run / "run.json").read_text())["status"] == "running"
    with running("resume", "run", folder=tmp_path) as second:
        wait_until(lambda: steps_of(latest) > saved, second, tmp_path)
        second.send_signal(signal.SIGTERM)
        second.wait(PATIENCE)
    said = (tmp_path / ERRORS).read_text()
    assert second.returncode == 128 + signal.SIGTERM, said
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert [each[record["step_unit"]] for each in record["resumed"]] == [saved]
    assert ("holds no replay buffer" in said) == (name == "sac") == ("differs" in record)
    left = [path.name for path in (run / "checkpoints").glob("*.safetensors")]
    assert left == ["interrupted.safetensors"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] > saved
