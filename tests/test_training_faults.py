"""Faults while training: strange episodes and rewards, callbacks, full disks, clocks, stops.

For every algorithm the training goes on, or one error of rlox says what to do; what was saved
before stays readable.
"""

from collections import Counter
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback
from rlox.errors import DivergenceError, EnvError, SpaceError
from rlox.registry import algorithm_class
from rlox.training import checkpoint
from rlox_testing.probes import first_difference
from small_algorithms import (
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

HOOKS = (
    "on_training_start", "on_step", "on_rollout_end", "on_train_batch", "on_iteration_end",
    "on_pulse", "on_phase", "on_eval", "on_training_end",
)  # fmt: skip
SHAPES = ("ppo", "impala", "dqn", "mappo", "qmix", "rl8_recurrent_ppo", "dreamer_v3", "fqe")
"""One algorithm of each kind of loop."""
IN_WALKS = tuple(name for name in SHAPES if name in ON_WALKS)
WITHOUT_MODEL = [
    pytest.param(name, marks=pytest.mark.slow if name == "dreamer_v3" else []) for name in SHAPES
]
"""The same; a world model takes as long as all others."""


@pytest.fixture(autouse=True)
def _pulses(monkeypatch):
    """Let each step be a second."""
    monkeypatch.setattr("rlox.training.hooks.PULSE", 0.0)


def read_back(name, path):
    """Require that a checkpoint can be restored, to act and to train on."""
    more = {"policy": Middle()} if name == "fqe" else {}
    if name in ON_DATA:
        more = {**more, "dataset": dataset()}
    env = {} if name in ON_DATA else {"env_id": env_of(name)}
    with algorithm_class(name).from_checkpoint(path, **env, **more) as restored:
        restored.train(1)


@pytest.mark.parametrize(
    ("name", "episodes"),
    [
        *((name, {"length": 1}) for name in IN_WALKS),
        *((name, {"length": 0, "reward": -1e30}) for name in IN_WALKS),
        *((name, {"reward": 1e30}) for name in ("sac", "td3", "iql", "cql", "rl8_ppo")),
    ],
)
def test_strange_episodes(name, episodes, tmp_path):
    """Of one step, without an end, of huge rewards: metrics, or one error; checkpoints load."""
    saving = CheckpointCallback(16, tmp_path, verbose=False)
    with build(name, callbacks=[saving], **episodes) as algorithm:
        if "reward" in episodes:
            with suppress(DivergenceError):
                assert algorithm.train(STEPS)
        else:
            assert algorithm.train(STEPS)
    for path in sorted(tmp_path.glob("*.safetensors"), key=checkpoint.steps_of)[-1:]:
        read_back(name, path)


class InHooks(Callback):
    """Calls a function in some hooks, and counts the calls of every hook."""

    def __init__(self, function, *hooks):
        self.hooks, self.function, self.calls = hooks, function, Counter[str]()

    def listens(self, event):
        return event in (*self.hooks, "on_training_end")

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return partial(self.handle, name)
        return super().__getattribute__(name)

    def handle(self, event, **kwargs):
        self.calls[event] += 1
        if event in self.hooks:
            self.function(kwargs["algo"])


def trained(name, *callbacks):
    """Return an algorithm that was trained and evaluated."""
    evaluating = EvalCallback(env_of(name), eval_freq=32, n_eval_episodes=1, verbose=False)
    algorithm = build(name, callbacks=[evaluating, *callbacks])
    algorithm.train(STEPS)
    return algorithm


class FaultError(Exception):
    """What a callback raises."""


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_callbacks_that_save_or_change_weights(name, tmp_path):
    """In every hook: saving changes no bit, and weights changed in place are trained on."""
    path = tmp_path / "saved.safetensors"
    saving = InHooks(lambda algorithm: algorithm.save(path), *HOOKS)
    with trained(name, saving) as saved, trained(name) as plain:
        assert first_difference(plain.state_dict(), saved.state_dict()) is None
    assert saving.calls.keys() == set(HOOKS) - (set() if name in ROLLING else {"on_rollout_end"})
    read_back(name, path)

    def shrink(algorithm):
        for optimizer in algorithm.optimizers.values():
            with torch.no_grad():
                for group in optimizer.torch_optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.mul_(0.9)

    with trained(name, InHooks(shrink, *HOOKS)) as changed:
        assert all(optimizer.is_finite() for optimizer in changed.optimizers.values())


@pytest.mark.parametrize(
    ("name", "hook"),
    [*(("ppo", hook) for hook in HOOKS), *((name, "on_train_batch") for name in SHAPES[1:])],
)
def test_callbacks_that_raise(name, hook):
    """The error is the callback's own, and the end is announced."""
    fault = FaultError()

    def raise_it(algorithm):
        raise fault

    raising = InHooks(raise_it, hook)
    with pytest.raises(FaultError) as caught:
        trained(name, raising)
    assert caught.value is fault
    assert (raising.calls[hook], raising.calls["on_training_end"]) == (1, 1)


class Wider(Walk):
    """An env of other observations and actions."""

    observation_space = spaces.Box(-1, 1, (5,))

    def look(self):
        return np.zeros(5, np.float32)


@pytest.mark.parametrize("name", ["ppo", "dqn", "mappo", "dreamer_v3", "fqe"])
def test_an_evaluation_env_of_other_observations(name):
    """The error says what the policy takes and the env has; training can go on."""
    callback = EvalCallback(env_of(name, Wider), eval_freq=16, verbose=False)
    with build(name, callbacks=[callback]) as algorithm:
        with pytest.raises((EnvError, SpaceError), match=r"\(5,\)") as caught:
            algorithm.train(STEPS)
        assert "observations" in str(caught.value)
        algorithm.callbacks.callbacks.clear()
        assert algorithm.train(STEPS)
