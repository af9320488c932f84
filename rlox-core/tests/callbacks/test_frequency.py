"""Tests of :mod:`rlox.callbacks.base`, and of all callbacks that act every so often."""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback
from rlox.callbacks.base import Multiples, require_at_least
from rlox.evaluation import EvaluationResult

shapes = given(
    n_envs=st.integers(1, 9),
    n_steps=st.integers(1, 9),
    frequency=st.integers(1, 50),
    totals=st.lists(st.integers(1, 60), min_size=1, max_size=3),
)


def train(
    counting: ModuleType, callback: Callback, n_envs: int, n_steps: int, totals: list[int]
) -> SimpleNamespace:
    """Train as often as there are totals; return the last env step, and where it saved."""
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", n_envs=n_envs, n_steps=n_steps, n_updates=1, callbacks=[callback]
    )
    saved: list[int] = []
    algorithm.save = lambda path: saved.append(algorithm.clock.env_steps)
    result = EvaluationResult(np.zeros(1), np.ones(1, np.int64))
    algorithm.run_episodes = lambda *args, **kwargs: result
    for total in totals:
        algorithm.train(total)
    return SimpleNamespace(end=algorithm.clock.env_steps, saved=saved)


def reaching(frequency: int, tick: int, end: int) -> list[int]:
    """Return the first multiples of ``tick`` that reach multiples of ``frequency``."""
    return sorted({-(-m // tick) * tick for m in range(frequency, end + 1, frequency)})


@shapes
def test_evaluation_at_the_vector_step_that_reaches_a_multiple(
    counting: ModuleType, n_envs: int, n_steps: int, frequency: int, totals: list[int]
) -> None:
    """Whatever N and T are, and over several trainings."""
    callback = EvalCallback(eval_freq=frequency, verbose=False)
    trained = train(counting, callback, n_envs, n_steps, totals)
    steps = [step for step, _ in callback.eval_results]
    assert steps == reaching(frequency, n_envs, trained.end)


@shapes
def test_checkpoint_at_the_end_of_the_iteration_that_reaches_a_multiple(
    counting: ModuleType, n_envs: int, n_steps: int, frequency: int, totals: list[int]
) -> None:
    """Whatever N and T are, and over several trainings."""
    callback = CheckpointCallback(frequency, verbose=False)
    trained = train(counting, callback, n_envs, n_steps, totals)
    assert trained.saved == reaching(frequency, n_envs * n_steps, trained.end)
    assert callback.saved_steps == trained.saved


@given(frequency=st.integers(1, 20), steps=st.lists(st.integers(1, 15), max_size=20))
def test_multiples_are_reported_once_each(frequency: int, steps: list[int]) -> None:
    """A step reaches a multiple when one lies in the half-open interval since the last."""
    multiples, now = Multiples("every", frequency), 0
    for step in steps:
        before, now = now, now + step
        assert multiples.reached(now) is (now // frequency > before // frequency)
        assert not multiples.reached(now)


@pytest.mark.parametrize("value", [0, -3, 0.5, math.nan])
def test_value_below_its_bound_is_refused(value: Any) -> None:
    """The text has name, bound and value."""
    with pytest.raises(ValueError, match=rf"^every must be at least 1, got {value}$"):
        require_at_least(1, every=value)
