"""Tests of :mod:`rlox.callbacks.progress`."""

import time

import pytest
from rlox.callbacks import Callback, ProgressCallback, TimingCallback
from rlox.logging import LoggerCallback

COLLECT, LEARN, LISTEN, LOG = 8.0, 1.0, 4.0, 16.0
"""Seconds of one vector step, optimiser step, heard vector step and logged row."""


class Listener(Callback):
    """Takes its time over every vector step."""

    def __init__(self, wait):
        self.wait = wait

    def on_step(self, **kwargs):
        """Wait."""
        self.wait(LISTEN)
        return True


class SlowLogger(LoggerCallback):
    """Takes its time over every row."""

    def __init__(self, wait):
        self.wait = wait

    def on_train_step(self, step, metrics):
        """Wait."""
        self.wait(LOG)


@pytest.fixture
def wait(monkeypatch):
    """Return a function that moves on a clock which otherwise stands."""
    now = [1.0]
    # rlox divides by an iteration's seconds, and an iteration takes some here
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


@pytest.fixture
def slow(counting, monkeypatch, wait):
    """Return the counting algorithm's module, its steps and updates taking time."""

    class SlowHooks:
        def __init__(self, hooks):
            self.hooks, self.rollout_end = hooks, hooks.rollout_end

        def env_step(self, count):
            wait(COLLECT)
            self.hooks.env_step(count)

        def train_batch(self, metrics):
            wait(LEARN)
            self.hooks.train_batch(metrics)

    iterate = counting.CountingAlgorithm.iterate
    monkeypatch.setattr(
        counting.CountingAlgorithm, "iterate", lambda self, hooks: iterate(self, SlowHooks(hooks))
    )
    return counting


def test_time_is_reported_by_phase(slow, wait):
    """An iteration of 4 vector steps and 3 updates; what lies between trainings is no part."""
    timing = TimingCallback(verbose=False)
    algorithm = slow.CountingAlgorithm(
        "CartPole-v1", callbacks=[timing, Listener(wait)], logger=SlowLogger(wait)
    )
    for _ in range(2):
        algorithm.train(8)
        wait(1000.0)
    summary = timing.summary()
    assert {phase: spent.seconds for phase, spent in summary.items()} == {
        "collect": 2 * 4 * COLLECT,
        "learn": 2 * 3 * LEARN,
        "callbacks": 2 * 4 * LISTEN,
        "other": 2 * LOG,
    }
    total = 2 * (4 * COLLECT + 3 * LEARN + 4 * LISTEN + LOG)
    assert summary["collect"].percent == pytest.approx(100 * 2 * 4 * COLLECT / total)
    assert sum(spent.percent for spent in summary.values()) == pytest.approx(100)


def test_stopped_training_closes_the_last_phase(slow, wait):
    """An error ends the measurement too."""
    timing = TimingCallback(verbose=False)
    algorithm = slow.CountingAlgorithm("CartPole-v1", callbacks=[timing])
    algorithm.fail_at = 1
    with pytest.raises(ArithmeticError):
        algorithm.train(16)
    wait(1000.0)
    assert timing.summary()["collect"].seconds == 4 * COLLECT


def test_resumed_training_adds_to_the_times(slow, tmp_path):
    """The seconds so far are part of checkpoints."""
    timing = TimingCallback(verbose=False)
    algorithm = slow.CountingAlgorithm("CartPole-v1", callbacks=[timing])
    algorithm.train(8)
    algorithm.save(tmp_path / "c.safetensors")
    fresh = TimingCallback(verbose=False)
    slow.CountingAlgorithm.from_checkpoint(tmp_path / "c.safetensors", callbacks=[fresh]).train(8)
    assert fresh.summary()["collect"].seconds == 2 * 4 * COLLECT


def test_progress_bar_closes_after_an_error(counting):
    """A failing training leaves no live display behind."""
    callback = ProgressCallback()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.fail_at = 1
    with pytest.raises(ArithmeticError):
        algorithm.train(16)
    algorithm.fail_at = None
    algorithm.train(16)
