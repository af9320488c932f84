"""Runs that ``kill -9`` ends go on with ``rlox resume``, with default options."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlox.training.checkpoint import read, steps_of
from rlox_offline.datasets import Dataset, save_dataset

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")

PATIENCE = 300
"""Seconds until a process that does nothing fails the test."""

ERRORS = "stderr.txt"

KILLS = int(os.environ.get("RLOX_KILLS", "0"))
"""Kills of each algorithm; 0: one of each of the three that stand for their families, and one of
each run that is compared bit for bit."""

ROLLOUTS = "--n-envs 2 --n-steps 16"
REPLAY = "--learning-starts 50 --hidden 16"
TEAM = "--env mpe2/simple_spread_v3 --hidden 16"
OFFLINE = "--dataset set.npz --env Pendulum-v1 --hidden 16 --batch-size 16"
RL8 = "--env CartPole-v1 --n-envs 8 --horizon 16"

CASES = {
    "ppo": f"--env CartPole-v1 {ROLLOUTS} --batch-size 32",
    "sac": f"--env Pendulum-v1 {REPLAY}",
    "iql": OFFLINE,
    "a2c": f"--env CartPole-v1 {ROLLOUTS}",
    "impala": f"--env CartPole-v1 {ROLLOUTS}",
    "appo": f"--env CartPole-v1 {ROLLOUTS}",
    "dqn": f"--env CartPole-v1 {REPLAY}",
    "discrete_sac": f"--env CartPole-v1 {REPLAY}",
    "td3": f"--env Pendulum-v1 {REPLAY}",
    "ddpg": f"--env Pendulum-v1 {REPLAY}",
    "crossq": f"--env Pendulum-v1 {REPLAY} --critic-hidden 16",
    "bc": OFFLINE,
    "td3_bc": OFFLINE,
    "cql": OFFLINE,
    "awac": OFFLINE,
    "mappo": f"{TEAM} --n-envs 2 --n-steps 25 --batch-size 50",
    "ippo": f"{TEAM} --n-envs 2 --n-steps 25 --batch-size 50",
    "vdn": f"{TEAM} --learning-starts 50 --batch-size 8",
    "qmix": f"{TEAM} --learning-starts 50 --batch-size 8",
    "independent_q": f"{TEAM} --learning-starts 50 --batch-size 8",
    "rl8_ppo": f"{RL8} --sgd-minibatch-size 64",
    "rl8_recurrent_ppo": "--env rlox_rl8.env:DiscreteDummyEnv --n-envs 8",
    "dreamer_v3": "--env CartPole-v1 --learning-starts 50 --batch-size 4 --seq-len 8 "
    "--train-ratio 4 --hidden 8 --units 8",
}
"""Options beside the defaults, so that a machine of any speed reaches the first checkpoint."""

UNSAVED = {"sac", "dqn", "discrete_sac", "td3", "ddpg", "crossq", "vdn", "qmix", "independent_q",
           "dreamer_v3"}  # fmt: skip
"""Those whose replay buffer checkpoints leave out by default."""

ROUNDS = [(name, i) for name in CASES for i in range(KILLS)]
ROUNDS = ROUNDS or [(name, 0) for name in ("ppo", "sac", "iql", "rl8_recurrent_ppo", "dreamer_v3")]


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
@pytest.mark.parametrize(("name", "number"), ROUNDS)
def test_a_killed_run_goes_on(name: str, number: int, tmp_path: Path) -> None:
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
    with running(
        "train", name, *CASES[name].split(), *often, "--run-dir", "run", folder=tmp_path
    ) as first:
        wait_until(latest.is_file, first, tmp_path)
        time.sleep(random.Random(f"{name} {number}").uniform(0, 1))
        first.send_signal(signal.SIGKILL)
        assert first.wait(PATIENCE) == -signal.SIGKILL
    saved = steps_of(latest)
    assert saved > 0
    assert json.loads((run / "run.json").read_text())["status"] == "running"
    # no file may say what is imported
    again = [f"--env={each}" for each in CASES[name].split() if ":" in each]
    with running("resume", "run", *again, folder=tmp_path) as second:
        wait_until(lambda: steps_of(latest) > saved, second, tmp_path)
        second.send_signal(signal.SIGTERM)
        second.wait(PATIENCE)
    said = (tmp_path / ERRORS).read_text()
    assert second.returncode == 128 + signal.SIGTERM, said
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert [each[record["step_unit"]] for each in record["resumed"]] == [saved]
    assert ("holds no replay buffer" in said) == (name in UNSAVED) == ("differs" in record)
    left = [path.name for path in (run / "checkpoints").glob("*.safetensors")]
    assert left == ["interrupted.safetensors"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] > saved


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield paths and values of nested dicts and lists."""
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, f"{path}/{key}")
    else:
        yield path, tree


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "name",
    [
        "rl8_ppo",
        pytest.param("rl8_recurrent_ppo", marks=pytest.mark.slow),
        pytest.param("dreamer_v3", marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_again_and_again_equals_a_whole_one(name: str, tmp_path: Path) -> None:
    """Weights, optimiser, envs, storage and random streams are the same bit for bit.

    A replay buffer is saved with them.
    """
    rng = random.Random(name)
    latest = tmp_path / "run" / "checkpoints" / "latest.safetensors"
    buffer = ["--save-replay-buffer"] if name in UNSAVED else []
    train = ["train", name, *CASES[name].split(), *buffer, "--seed", "0"]
    command = [*train, "--checkpoint-freq", "0.1s", "--total-timesteps", "1000000000",
               "--run-dir", "run"]  # fmt: skip
    steps = 0
    for _ in range(KILLS or 1):
        with running(*command, folder=tmp_path) as process:
            wait_until(
                lambda: latest.is_file() and steps_of(latest) > steps,  # noqa: B023
                process,
                tmp_path,
            )
            time.sleep(rng.uniform(0, 1))
            process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE) == -signal.SIGKILL
        steps = steps_of(latest)
        command = ["resume", "run", *(f"--env={x}" for x in CASES[name].split() if ":" in x)]
    whole = [*train, "--total-timesteps", str(steps), "--run-dir", "whole"]
    with running(*whole, folder=tmp_path) as process:
        assert process.wait() == 0, (tmp_path / ERRORS).read_text()
    final = tmp_path / "whole" / "checkpoints" / "final.safetensors"
    found = []
    for path in (latest, final):
        state = read(path)["state"]
        found.append(dict(leaves({name: state[name] for name in ("algorithm", "streams")})))
    assert len(found[0]) > 50
    assert found[0].keys() == found[1].keys()
    differing = [key for key, value in found[0].items() if not np.array_equal(value, found[1][key])]
    assert differing == []
