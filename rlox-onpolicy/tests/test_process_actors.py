"""Actors in processes: the same unrolls as threads, errors, restarts, and no leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox.testing
from rlox.envs.workers import process
from rlox.errors import WorkerError, WorkerLostError
from rlox_onpolicy.impala import IMPALA
from rlox_testing.probes import first_difference

SMALL: dict[str, Any] = {"n_actors": 2, "n_envs": 2, "n_steps": 8, "hidden": 8, "seed": 1}


@pytest.mark.parametrize("name", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_actor_backends_conform(name: str) -> None:
    """Unrolls are bit for bit those of a local actor."""
    assert rlox.testing.check_actor_backend(name) == {}


@pytest.fixture(name="memory")
def fixture_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for shared arrays' files that no other process writes to."""
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(process, "IN_MEMORY", memory)
    return memory


def test_processes_train_as_threads_do(tmp_path: Path, memory: Path) -> None:
    """Bit for bit, with shared moments and a checkpoint, and nothing is left behind."""
    options = {**SMALL, "normalize_observations": True, "queue_size": 2}
    path = tmp_path / "impala.rlox"
    states, pids = [], []
    for backend in ("thread", "process"):
        with IMPALA("Pendulum-v1", actor_backend=backend, **options) as impala:
            for _ in range(3):
                impala.train(1)
            if backend == "process":
                impala.save(path)
                pids = [actor.pid for actor in impala.actors._pool._actors]
            impala.train(32 * 3)
            states.append(impala.state_dict())
    assert first_difference(states[0], states[1]) is None
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not list(memory.iterdir())
    with IMPALA.from_checkpoint(path, actor_backend="thread") as impala:
        impala.train(32 * 3)
        assert first_difference(states[0], impala.state_dict()) is None


class Breaks(gymnasium.Env):
    """An env that breaks in its tenth step, on request."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Return zeros."""
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        """Count, and break."""
        self.steps += 1
        if self.steps == 10:
            raise ZeroDivisionError("the wheel came off")
        return np.zeros(2, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_an_error_of_an_env_arrives_with_its_traceback(backend: str) -> None:
    """The class is kept; from a process, the cause holds the env's source line."""
    options = {**SMALL, "n_actors": 1, "actor_backend": backend}
    with IMPALA(Breaks, **options) as impala:
        with pytest.raises(ZeroDivisionError, match="the wheel came off") as caught:
            impala.train(1_000)
        if backend == "thread":
            assert any(entry.name == "step" for entry in caught.traceback)
            return
        assert isinstance(caught.value.__cause__, WorkerError)
        assert "in step" in str(caught.value.__cause__)


def test_a_killed_actor_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on; the restart is counted and logged, and no step is counted twice."""
    options = {**SMALL, "n_actors": 1, "actor_backend": "process"}
    with IMPALA("CartPole-v1", **options) as impala:
        impala.train(1)
        os.kill(impala.actors._pool._actors[0].pid, signal.SIGKILL)
        assert impala.train(32)["restarts"] == 1.0
        assert impala.clock.env_steps == 16 + 32
    assert "actor 0 begins again: actor 0 has died (signal 9)" in caplog.text


@pytest.mark.slow
def test_spares_replace_an_actor_that_is_given_up() -> None:
    """With order "arrival", training goes on as long as min_workers live."""
    options = {**SMALL, "actor_backend": "process", "max_restarts": 0, "min_workers": 1}
    with IMPALA("CartPole-v1", **options) as impala:
        impala.train(1)
        os.kill(impala.actors._pool._actors[0].pid, signal.SIGKILL)
        impala.train(32 * 4)
        assert impala.clock.env_steps == 32 * 5
        os.kill(impala.actors._pool._actors[1].pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="fewer than min_workers = 1"):
            impala.train(32 * 4)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(tmp_path: Path, memory: Path) -> None:
    """No process and no file in shared memory remain, with unrolls under way."""
    script = tmp_path / "train.py"
    script.write_text(
        "import pathlib\n"
        "import signal\n"
        "import sys\n"
        "import rlox\n"
        "from rlox.envs.workers import process\n"
        "process.IN_MEMORY = pathlib.Path(sys.argv[1])\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's '&' ignores it\n"
        "impala = rlox.make('impala', env='CartPole-v1', seed=0, n_actors=1, queue_size=2,\n"
        "                   actor_backend='process', n_steps=8)\n"
        "impala.train(8)\n"
        "print(impala.actors._pool._actors[0].pid, flush=True)\n"
        "impala.train(1_000_000_000)\n",
        encoding="utf-8",
    )
    training = subprocess.Popen(
        [sys.executable, str(script), str(memory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert training.stdout is not None
    pid = int(training.stdout.readline())
    training.send_signal(signal.SIGINT)
    try:
        _, errors = training.communicate(timeout=120)
    finally:
        training.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not Path(f"/proc/{pid}").exists()
    assert not list(memory.iterdir())
