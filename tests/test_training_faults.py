"""Faults while training: strange episodes and rewards, callbacks, full disks, clocks, stops.

For every algorithm the training goes on, or one error of rlox says what to do; what was saved
before stays readable.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback
from rlox.errors import DivergenceError, EnvError, SpaceError
from rlox.logging import JsonlLogger, LoggerCallback
from rlox.registry import algorithm_class
from rlox.training import checkpoint
from rlox_testing.probes import first_difference
from small_algorithms import (
    ALGORITHMS,
    ON_DATA,
    ON_WALKS,
    ROLLING,
    STEPS,
    Middle,
    Walk,
    build,
    dataset,
    env_of,
)  # fmt: skip

HOOKS = [
    "on_training_start", "on_step", "on_rollout_end", "on_train_batch", "on_iteration_end",
    "on_phase", "on_eval", "on_training_end",
]  # fmt: skip


def weights(algorithm: Any) -> Any:
    """Return what was learnt."""
    return algorithm.state_dict()


def read_back(name: str, path: Path) -> None:
    """Require that a checkpoint can be restored, to act and to train on."""
    more: Mapping[str, Any] = {"policy": Middle()} if name == "fqe" else {}
    if name in ON_DATA:
        more = {**more, "dataset": dataset()}
    env = {} if name in ON_DATA else {"env_id": env_of(name)}
    with algorithm_class(name).from_checkpoint(path, **env, **more) as restored:
        restored.train(1)


EPISODES: dict[str, dict[str, Any]] = {
    "of one step": {"length": 1},
    "without an end": {"length": 0},
    "of huge rewards": {"reward": 1e30},
    "of hugely negative rewards": {"reward": -1e30},
}


@pytest.mark.parametrize("episodes", EPISODES)
@pytest.mark.parametrize("name", ON_WALKS)
def test_strange_episodes(name: str, episodes: str, tmp_path: Path) -> None:
    """Training ends with metrics, or with one error; all that was saved can be read."""
    saving = CheckpointCallback(16, tmp_path, verbose=False)
    with build(name, callbacks=[saving], **EPISODES[episodes]) as algorithm:
        if "reward" in EPISODES[episodes]:
            with suppress(DivergenceError):
                assert algorithm.train(STEPS)
        else:
            assert algorithm.train(STEPS)
    for path in tmp_path.glob("*.safetensors"):
        checkpoint.read(path)
        read_back(name, path)


class InHook(Callback):
    """Calls a function in one hook, and counts the ends of trainings."""

    def __init__(self, hook: str, function: Callable[[Any], None]) -> None:
        self.hook, self.function = hook, function
        self.calls = self.ends = 0

    def listens(self, event: str) -> bool:
        return event in (self.hook, "on_training_end")

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return partial(self.handle, name)
        return super().__getattribute__(name)

    def handle(self, event: str, **kwargs: Any) -> None:
        self.ends += event == "on_training_end"
        if event == self.hook:
            self.calls += 1
            self.function(kwargs["algo"])


def trained(name: str, *callbacks: Callback, hook: str, **more: Any) -> Any:
    """Return a trained algorithm, which was evaluated too if the hook asks for it."""
    every = list(callbacks)
    if hook == "on_eval":
        every.insert(0, EvalCallback(env_of(name), eval_freq=16, n_eval_episodes=1, verbose=False))
    algorithm = build(name, callbacks=every, **more)
    algorithm.train(STEPS)
    return algorithm


class FaultError(Exception):
    """What a callback raises."""


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        (name, hook)
        for name in ALGORITHMS
        for hook in HOOKS
        if name in ROLLING or hook != "on_rollout_end"
    ],
)
def test_callbacks_that_raise_save_or_change_weights(name: str, hook: str, tmp_path: Path) -> None:
    """The error is the callback's own and the end is announced; saving changes no bit."""
    fault = FaultError()

    def raise_it(algorithm: Any) -> None:
        raise fault

    raising = InHook(hook, raise_it)
    with pytest.raises(FaultError) as caught:
        trained(name, raising, hook=hook)
    assert caught.value is fault
    assert (raising.calls, raising.ends) == (1, 1)

    path = tmp_path / "saved.safetensors"
    saving = InHook(hook, lambda algorithm: algorithm.save(path))
    with trained(name, saving, hook=hook) as saved, trained(name, hook=hook) as plain:
        assert first_difference(weights(plain), weights(saved)) is None
    assert saving.calls > 0
    read_back(name, path)

    def shrink(algorithm: Any) -> None:
        for optimizer in algorithm.optimizers.values():
            with torch.no_grad():
                for group in optimizer.torch_optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.mul_(0.9)

    with trained(name, InHook(hook, shrink), hook=hook) as changed:
        assert all(optimizer.is_finite() for optimizer in changed.optimizers.values())


class FullDisk(LoggerCallback):
    """A logger whose disk is full."""

    def on_train_step(self, step: int, metrics: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_disk_that_is_full_for_metrics_alone(name: str, tmp_path: Path) -> None:
    """The logger's error ends the training, after checkpoints that can be read."""
    saving = CheckpointCallback(16, tmp_path, verbose=False)
    with (
        build(name, callbacks=[saving], logger=FullDisk()) as algorithm,
        pytest.raises(OSError, match="No space left"),
    ):
        algorithm.train(STEPS)
    algorithm.save(tmp_path / "after.safetensors")
    for path in tmp_path.glob("*.safetensors"):
        read_back(name, path)


class Wider(Walk):
    """An env of other observations and actions."""

    observation_space = spaces.Box(-1, 1, (5,))

    def look(self) -> Any:
        return np.zeros(5, np.float32)


@pytest.mark.parametrize("name", ON_WALKS)
def test_an_evaluation_env_of_other_observations(name: str) -> None:
    """The error says what the policy takes and the env has; training can go on."""
    callback = EvalCallback(env_of(name, Wider), eval_freq=16, verbose=False)
    with build(name, callbacks=[callback]) as algorithm:
        with pytest.raises((EnvError, SpaceError), match=r"\(5,\)") as caught:
            algorithm.train(STEPS)
        assert "observations" in str(caught.value)
        algorithm.callbacks.callbacks.clear()
        assert algorithm.train(STEPS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_clocks_that_jump(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By days, back too where a clock can: what is learnt is the same."""
    with build(name) as plain:
        plain.train(STEPS)
    calls = itertools.count()
    real = {clock: getattr(time, clock) for clock in ("time", "perf_counter", "monotonic")}
    monkeypatch.setattr(time, "time", lambda: real["time"]() + 86_400 * (-2) ** (next(calls) % 4))
    for clock in ("perf_counter", "monotonic"):  # which never go back
        jumping = partial(lambda clock: real[clock]() + 3_600 * next(calls), clock)
        monkeypatch.setattr(time, clock, jumping)
    saving = CheckpointCallback(16, tmp_path, verbose=False)
    with build(
        name, callbacks=[saving], logger=JsonlLogger(tmp_path / "metrics.jsonl")
    ) as algorithm:
        algorithm.train(STEPS)
        assert first_difference(weights(plain), weights(algorithm)) is None


STOPPED = {
    "native": "train ppo --env CartPole-v1 --n-envs 4 --n-steps 64",
    "workers": "train ppo --env CartPole-v1 --n-envs 2 --n-steps 64 --env-backend gymnasium "
    "--vectorization async",
    "actors": "train impala --env CartPole-v1 --n-actors 2 --n-envs 2 --actor-backend process",
}


@pytest.mark.skipif(os.name != "posix", reason="SIGSTOP is POSIX's")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", STOPPED)
def test_a_stopped_process_group_goes_on(case: str, tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT, as Ctrl-Z and fg send them, lose nothing."""
    command = [sys.executable, "-m", "rlox", *STOPPED[case].split(), "--total-timesteps", "6000"]
    command += ["--seed", "0", "--eval-episodes", "1"]
    networks = []
    for folder, stops in (("plain", 0), ("stopped", 3)):
        process = subprocess.Popen(
            [*command, "--run-dir", folder], cwd=tmp_path, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            metrics = tmp_path / folder / "metrics.jsonl"
            while stops and process.poll() is None and not metrics.is_file():
                time.sleep(0.02)
            for _ in range(stops):
                os.killpg(process.pid, signal.SIGSTOP)
                time.sleep(0.3)
                os.killpg(process.pid, signal.SIGCONT)
                time.sleep(0.1)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 0, said
        record = json.loads((tmp_path / folder / "run.json").read_text())
        assert record["status"] == "finished"
        state = checkpoint.read(tmp_path / folder / "checkpoints" / "final.safetensors")["state"]
        networks.append(state["algorithm"])
    if case != "actors":  # whose unrolls come in another order
        assert first_difference(*networks) is None
