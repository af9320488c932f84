"""Tests of :mod:`rlox.callbacks.base`, and of all callbacks that act every so often."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.callbacks import Callback, CallbackList, CheckpointCallback, EvalCallback
from rlox.envs.evaluation import EvaluationResult


class Stopper(Callback):
    """Returns a fixed answer from the events that can stop, and counts the calls."""

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def on_step(self, **kwargs):
        """Answer."""
        self.calls += 1
        return self.answer

    def on_iteration_end(self, **kwargs):
        """Answer."""
        return self.on_step()


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
@pytest.mark.parametrize(
    ("answers", "goes_on"),
    [
        ([True, True], True),
        ([True, False], False),
        ([None, True], True),
        ([np.bool_(True), np.bool_(False)], False),
        ([np.bool_(True)], True),
        ([], True),
    ],
)
def test_list_goes_on_unless_one_returns_false(event, answers, goes_on):
    """Forgetting to return anything does not stop the training."""
    assert getattr(CallbackList(map(Stopper, answers)), event)(step=0) is goes_on


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
@pytest.mark.parametrize("answer", [0, 1, 0.0, "", np.zeros(1), np.float32(0)])
def test_an_answer_that_is_no_truth_value_is_refused(event, answer):
    """0 equals False, but a count should not stop a training."""
    with pytest.raises(TypeError) as caught:
        getattr(CallbackList(Stopper(answer)), event)(step=0)
    assert str(caught.value) == (
        f"Stopper.{event} must return True, False or None, got {answer!r}; False stops the training"
    )


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
def test_list_calls_every_callback_even_when_one_stops(event):
    """A stop does not keep the others from seeing the step."""
    last = Stopper(True)
    getattr(CallbackList([Stopper(False), last]), event)(step=0)
    assert last.calls == 1


def test_lists_in_lists_are_one():
    """Events, the order of what saves, and states are then those of one flat list."""
    first, second, last = Callback(), Stopper(True), Callback()
    nested = CallbackList([CallbackList([first, CallbackList([second])]), last])
    assert nested.callbacks == [first, second, last]


def test_one_callback_needs_no_list(counting):
    """Nobody should have to read how an iterable is missed."""
    callback = Stopper(True)
    for callbacks in (callback, [callback], CallbackList(callback)):
        algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=callbacks)
        assert algorithm.callbacks.callbacks == [callback]


class IterationEnds(Callback):
    """Notes its name when it hears of an iteration's end."""

    def __init__(self, name, heard):
        self.name, self.heard = name, heard

    def on_iteration_end(self, **kwargs):
        """Note the name."""
        self.heard.append(self.name)


class SavingIterationEnds(IterationEnds):
    """Claims to save the training."""

    saves_training = True


@pytest.mark.parametrize("nest", [lambda callback: callback, CallbackList])
def test_what_saves_hears_of_an_iterations_end_last(counting, nest):
    """The others have counted the iteration then, wherever they stand in the list."""
    heard = []
    saves = nest(SavingIterationEnds("saves", heard))
    callbacks = [saves, *(IterationEnds(n, heard) for n in "ab")]
    counting.CountingAlgorithm("CartPole-v1", callbacks=callbacks).train(8)
    assert heard == ["a", "b", "saves"]


shapes = given(
    n_envs=st.integers(1, 9),
    n_steps=st.integers(1, 9),
    frequency=st.integers(1, 50),
    totals=st.lists(st.integers(1, 60), min_size=1, max_size=3),
)


def train(counting, callback, n_envs, n_steps, totals):
    """Train as often as there are totals; return the last env step, and where it saved."""
    algorithm = counting.CountingAlgorithm(
        "CartPole-v1", n_envs=n_envs, n_steps=n_steps, n_updates=1, callbacks=[callback]
    )
    saved = []
    algorithm.save = lambda path: saved.append(algorithm.clock.env_steps)
    result = EvaluationResult(np.zeros(1), np.ones(1, np.int64))
    algorithm.run_episodes = lambda *args, **kwargs: result
    for total in totals:
        algorithm.train(total)
    return SimpleNamespace(end=algorithm.clock.env_steps, saved=saved)


def reaching(frequency, tick, end):
    """Return the first multiples of ``tick`` that reach multiples of ``frequency``."""
    return sorted({-(-m // tick) * tick for m in range(frequency, end + 1, frequency)})


@shapes
def test_evaluation_at_the_vector_step_that_reaches_a_multiple(
    counting, n_envs, n_steps, frequency, totals
):
    """Whatever N and T are, and over several trainings."""
    callback = EvalCallback(eval_freq=frequency, verbose=False)
    trained = train(counting, callback, n_envs, n_steps, totals)
    steps = [step for step, _ in callback.eval_results]
    assert steps == reaching(frequency, n_envs, trained.end)


@shapes
def test_checkpoint_at_the_end_of_the_iteration_that_reaches_a_multiple(
    counting, n_envs, n_steps, frequency, totals
):
    """Whatever N and T are, and over several trainings."""
    callback = CheckpointCallback(frequency, verbose=False)
    trained = train(counting, callback, n_envs, n_steps, totals)
    assert trained.saved == reaching(frequency, n_envs * n_steps, trained.end)
    assert callback.saved_steps == trained.saved
