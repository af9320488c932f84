"""A run that was killed and resumed equals one that was not: in processes of their own, to the bit.

With the Rust envs, which expose their state; discrete and continuous actions, one agent and teams.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rlox
import torch
from rlox.training import checkpoint

OPTIONS = {
    "ppo": ("--n-envs", 4, "--n-steps", 64, "--batch-size", 64, "--n-epochs", 2, "--hidden", 16),
    "a2c": ("--n-envs", 4, "--n-steps", 16, "--hidden", 16),
}

TEAM = ("--n-envs", 8, "--n-steps", 25, "--batch-size", 200, "--n-epochs", 2, "--hidden", 16,
        "--normalize-values", "value_norm", "--env-kwargs", "{N: 2}")  # fmt: skip

ENVS = ("CartPole-v1", "Pendulum-v1")

GUARD = 400
"""Seconds after which a process is taken to hang; a busy machine takes minutes to start one."""

pytestmark = pytest.mark.timeout(3 * GUARD)

REPLAY = ("--hidden", 8, "--train-freq", 64, "--gradient-steps", 4, "--save-replay-buffer")

QUANTILES = ("--distributional", "qr-dqn", "--n-quantiles", 5)

RUNS = [(algorithm, env, options) for algorithm, options in OPTIONS.items() for env in ENVS] + [
    ("mappo", "mpe2/simple_spread_v3", TEAM),
    ("dqn", "CartPole-v1", (*REPLAY, "--buffer", "prioritized", "--n-step", 3)),
    ("sac", "Pendulum-v1", REPLAY),
    ("crossq", "Pendulum-v1", (*REPLAY, "--critic-hidden", 8, "--renorm-warm-up", 9)),
    ("td3", "Pendulum-v1", (*REPLAY, "--n-envs", 2)),
]
"""Algorithm, env and flags of what is killed; off-policy ones save their replay buffer."""

SLOW_RUNS = [
    ("dqn", "CartPole-v1", (*REPLAY, "--noisy", *QUANTILES)),
    ("discrete_sac", "CartPole-v1", REPLAY),
    ("ddpg", "Pendulum-v1", REPLAY),
]
"""More of them, by ``nox -s slow``."""


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Collect what a test starts, and kill what is left of it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


NEVER_ENDING = """
import time
from rlox.training import loop

iterate = loop._iterate

def iterate_but_for_the_end(algorithm, hooks):
    while algorithm.clock.env_steps >= algorithm.clock.target - {left}:
        time.sleep(0.01)
    return iterate(algorithm, hooks)

loop._iterate = iterate_but_for_the_end
"""


def start(*arguments: object, first: str = "") -> subprocess.Popen[str]:
    """Start the command line, in an interpreter that runs the code ``first`` before."""
    return subprocess.Popen(
        [sys.executable, "-c", first + "\nimport rlox.cli; rlox.cli.main()", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.DEVNULL,
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for a good end."""
    assert process.wait(GUARD) == 0


def parameter_hash(state: dict[str, Any]) -> str:
    """Return a hash of everything that an algorithm learnt and knows, arrays bit for bit."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                digest.update(key.encode())
                add(value[key])
        elif hasattr(value, "tobytes"):
            digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        else:
            digest.update(repr(value).encode())

    add(state)
    return digest.hexdigest()


def result(folder: str) -> tuple[str, list[Any], list[str], dict[str, list[Any]]]:
    """Return a finished run's parameter hash and its logs without the columns of time."""
    state = checkpoint.read(f"{folder}/checkpoints/final.safetensors")["state"]
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    table = Path(folder, "metrics.csv").read_text(encoding="utf-8").splitlines()
    return (
        parameter_hash(state["algorithm"]),
        [{k: v for k, v in row.items() if k != "env_steps_per_second"} for row in rows],
        [line.rsplit(",", 1)[0] for line in table],
        scalars(folder),
    )


def scalars(folder: str) -> dict[str, list[Any]]:
    """Return what TensorBoard shows of a run."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(folder)
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if "per_second" not in tag
    }


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [*RUNS, *(pytest.param(*run, marks=pytest.mark.slow) for run in SLOW_RUNS)],
    ids=[f"{run[0]}-{run[1]}-{i}" for i, run in enumerate(RUNS + SLOW_RUNS)],
)
def test_killed_and_resumed_run_equals_the_uninterrupted_one(
    algorithm: str, env: str, options: tuple[Any, ...], processes: list[subprocess.Popen[str]]
) -> None:
    """SIGKILL at a random moment after a checkpoint, then a new process: same bits, same logs."""
    every = 5_000 if algorithm in OPTIONS else 1_000  # on-policy ones are soon done
    command = (
        "train", algorithm, "--env", env, *options, "--total-timesteps", 12 * every,
        "--checkpoint-freq", every, "--eval-freq", 5 * every, "--eval-episodes", 2, "--quiet",
        "--logger", "jsonl", "--logger", "csv",
        *(("--logger", "tensorboard") if env == ENVS[0] else ()),
    )  # fmt: skip
    kill_at_random(command, processes)
    finish_both(command, processes)
    assert result("cut") == result("whole")


@pytest.mark.parametrize(("algorithm", "env"), [("dqn", ENVS[0]), ("sac", ENVS[1])])
def test_without_its_buffer_a_killed_run_loses_nothing_before_its_checkpoint(
    algorithm: str, env: str, processes: list[subprocess.Popen[str]]
) -> None:
    """Up to there the logs are the uninterrupted run's; what follows learns from a new buffer."""
    options = [option for option in REPLAY if option != "--save-replay-buffer"]
    command = (
        "train", algorithm, "--env", env, *options, "--learning-starts", 200,
        "--total-timesteps", 8_000, "--checkpoint-freq", 1_000, "--quiet", "--logger", "jsonl",
    )  # fmt: skip
    kill_at_random(command, processes)
    saved = max(checkpoint.steps_of(path) for path in Path("cut").glob("checkpoints/step-*"))
    assert 1_000 <= saved < 8_000
    finish_both(command, processes)
    cut, whole = metrics("cut"), metrics("whole")
    before = [row for row in whole if row["step"] <= saved]
    assert cut[: len(before)] == before
    assert [row["step"] for row in cut] == [row["step"] for row in whole]
    assert [row["q_loss"] is None for row in cut] == [row["q_loss"] is None for row in whole]
    assert cut[-1]["q_loss"] is not None
    assert json.loads(Path("cut/run.json").read_text())["status"] == "finished"


def kill_at_random(command: tuple[object, ...], processes: list[subprocess.Popen[str]]) -> None:
    """Start a run in the folder ``cut`` and kill it at a random moment after a checkpoint.

    It waits before its end, which a fast machine may reach first.
    """
    killed = start(*command, "--run-dir", "cut", first=NEVER_ENDING.format(left=2_000))
    processes.append(killed)
    deadline = time.monotonic() + GUARD
    while not list(Path("cut").glob("checkpoints/step-*.safetensors")):
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.2))
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert json.loads(Path("cut/run.json").read_text())["status"] == "running"


def finish_both(command: tuple[object, ...], processes: list[subprocess.Popen[str]]) -> None:
    """Resume the killed run, and do the same without interruption in the folder ``whole``."""
    for arguments in (("resume", "cut", "--quiet"), (*command, "--run-dir", "whole")):
        process = start(*arguments)
        processes.append(process)
        finish(process)


def metrics(folder: str) -> list[dict[str, Any]]:
    """Return a run's rows of training metrics without the columns of time."""
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        {k: v for k, v in row.items() if k != "env_steps_per_second"}
        for row in rows
        if row["kind"] == "train"
    ]


def test_threads_outside_of_training_change_nothing() -> None:
    """``torch_threads`` is an option of the run, so torch's own setting plays no part."""
    before = torch.get_num_threads()
    hashes = set()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            ppo = rlox.make("ppo", env="Pendulum-v1", n_envs=16, n_steps=128, batch_size=2048,
                            hidden=256, n_epochs=1)  # fmt: skip
            ppo.train(2 * 16 * 128)
            hashes.add(parameter_hash(ppo.state_dict()["policy"]))
    finally:
        torch.set_num_threads(before)
    assert len(hashes) == 1


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("algorithm", OPTIONS)
def test_default_networks_learn_the_same_on_two_threads(algorithm: str, env: str) -> None:
    """Their weights are drawn alike, and sums of so few terms are not split over threads."""
    hashes = set()
    for threads in (1, 2):
        agent = rlox.make(algorithm, env=env, n_steps=64, torch_threads=threads)
        agent.train(1024)
        hashes.add(parameter_hash(agent.state_dict()["policy"]))
    assert len(hashes) == 1


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_seeds_differ_and_repeat(algorithm: str) -> None:
    """Each seed has its own parameters, and the same ones again."""
    hashes = []
    for seed in (0, 1, 0):
        agent = rlox.make(algorithm, env="CartPole-v1", seed=seed)
        agent.train(512)
        hashes.append(parameter_hash(agent.state_dict()["policy"]))
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize("env_backend", ["native", "gymnasium"])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_checkpoint_goes_on_with_another_number_of_envs(algorithm: str, env_backend: str) -> None:
    """In new episodes, whether or not the envs' state is in the file."""
    options = {"n_envs": 2, "hidden": 8, "env_backend": env_backend}
    with rlox.make(algorithm, "CartPole-v1", **options) as before:
        episodes = before.train(256)["episodes"]
        before.save("checkpoint")
    with type(before).from_checkpoint("checkpoint", n_envs=4) as after:
        assert after.train(512)["episodes"] > episodes
        assert after.config.n_envs == 4
