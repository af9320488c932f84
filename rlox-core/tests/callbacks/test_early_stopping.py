"""Tests of :mod:`rlox.callbacks.evaluation`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.callbacks import EarlyStoppingCallback, EvalCallback

NAN = math.nan


@dataclass(frozen=True)
class Losses:
    """What an iteration without episodes reports."""

    loss: float


def iterations_until_stop(callback, rows):
    """Return after how many of the iterations that report ``rows`` the callback stops."""
    for i, metrics in enumerate(rows, 1):
        if not callback.on_iteration_end(step=i, metrics=metrics):
            return i
    return -1


def means(*values):
    """Return iterations of an algorithm that reports no number of episodes."""
    return [{"mean_reward": value} for value in values]


@pytest.mark.parametrize(
    ("patience", "min_delta", "values", "stop"),
    [
        (1, 0.0, (5, 5), 2),
        (2, 0.0, (5, 6, 6, 6, 6), 4),
        (2, 0.0, (5, 4, 6, 5, 5), 5),
        (2, 1.0, (5, 6, 6.5, 7, 7.5), 5),
        (2, 1.0, (0, 1, 1), 3),
        (2, 0.0, (1, 2, 3, 4, 5), -1),
        (2, 0.0, (NAN, NAN, NAN, 1, 1, 1), 6),
        (2, 0.0, (-5, -6, -7), 3),
    ],
)
def test_stops_when_patience_runs_out(patience, min_delta, values, stop):
    """An improvement exceeds the best so far by more than min_delta; NaN is no iteration yet."""
    callback = EarlyStoppingCallback(patience, min_delta, verbose=False)
    assert iterations_until_stop(callback, means(*values)) == stop


def test_iterations_without_a_finished_episode_do_not_count():
    """An unchanged mean says nothing unless an episode has ended."""
    rows = [{"mean_reward": 7.0, "episodes": e} for e in (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 4.0)]
    assert iterations_until_stop(EarlyStoppingCallback(2, verbose=False), rows) == 7


@given(
    n_envs=st.integers(1, 9),
    n_steps=st.integers(1, 9),
    patience=st.integers(1, 4),
    frequency=st.integers(1, 50),
)
def test_evaluations_count_once_each(counting, n_envs, n_steps, patience, frequency):
    """The training ends with the iteration of the evaluation that exhausts patience."""
    evaluations = EvalCallback(eval_freq=frequency, verbose=False)
    callback = EarlyStoppingCallback(patience, monitor="eval", verbose=False)
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", n_envs=n_envs, n_steps=n_steps, n_updates=1,
        callbacks=[callback, evaluations],
    )  # fmt: skip
    result = SimpleNamespace(mean_return=1.0, std_return=0.0)
    algorithm.run_episodes = lambda *args, **kwargs: result
    algorithm.train(1000)
    steps = [step for step, _ in evaluations.eval_results]
    size = n_envs * n_steps
    assert len(steps) > patience
    assert algorithm.clock.env_steps == math.ceil(steps[patience] / size) * size
    assert callback.best == 1.0


def test_resumed_training_stops_where_the_whole_one_does(counting, tmp_path):
    """Best return and patience are part of checkpoints."""

    def stop():
        return EarlyStoppingCallback(4, min_delta=1e9, verbose=False)

    first = counting.CountingAlgorithm("CartPole-v1", callbacks=[stop()])
    first.train(24)
    first.save(tmp_path / "c.safetensors")
    resumed = counting.CountingAlgorithm.from_checkpoint(
        tmp_path / "c.safetensors", callbacks=[stop()]
    )
    resumed.train(800)
    assert resumed.clock.iterations == 5


def test_training_on_has_patience_again(counting):
    """Whoever calls train after a stop wants more than one iteration."""
    callback = EarlyStoppingCallback(3, min_delta=1e9, verbose=False)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(800)
    algorithm.train(800)
    assert algorithm.clock.iterations == 4 + 3


def test_another_algorithm_is_not_compared_with_the_one_before(counting):
    """Its returns begin again, so the bar does too."""
    callback = EarlyStoppingCallback(3, verbose=False)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(80)
    assert callback.best == 10.0
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(48)
    assert algorithm.clock.iterations == 6
    assert callback.best == 6.0


def test_nothing_to_watch_is_reported(counting):
    """Without an evaluation the callback could never stop anything."""
    callback = EarlyStoppingCallback(monitor="eval")
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    with pytest.warns(UserWarning, match="saw no evaluation in this training; add an EvalCallback"):
        algorithm.train(8)


def test_an_algorithm_without_returns_is_reported(counting):
    """One that learns from a dataset reports losses alone."""
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[EarlyStoppingCallback()])
    algorithm.iterate = lambda hooks: hooks.env_step(8) or Losses(0.5)
    with pytest.warns(UserWarning, match="saw no return in this training; watch evaluations"):
        assert algorithm.train(8)["loss"] == 0.5
