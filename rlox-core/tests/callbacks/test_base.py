"""Tests of :mod:`rlox.callbacks.base`."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from rlox.callbacks import Callback, CallbackList


class Stopper(Callback):
    """Returns a fixed answer from the events that can stop, and counts the calls."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, 0

    def on_step(self, **kwargs: Any) -> Any:
        """Answer."""
        self.calls += 1
        return self.answer

    def on_iteration_end(self, **kwargs: Any) -> Any:
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
def test_list_goes_on_unless_one_returns_false(
    event: str, answers: list[Any], goes_on: bool
) -> None:
    """Forgetting to return anything does not stop the training."""
    assert getattr(CallbackList(map(Stopper, answers)), event)(step=0) is goes_on


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
@pytest.mark.parametrize("answer", [0, 1, 0.0, "", np.zeros(1), np.float32(0)])
def test_an_answer_that_is_no_truth_value_is_refused(event: str, answer: Any) -> None:
    """0 equals False, but a count should not stop a training."""
    with pytest.raises(TypeError) as caught:
        getattr(CallbackList(Stopper(answer)), event)(step=0)
    assert str(caught.value) == (
        f"Stopper.{event} must return True, False or None, got {answer!r}; False stops the training"
    )


@pytest.mark.parametrize("event", ["on_step", "on_iteration_end"])
def test_list_calls_every_callback_even_when_one_stops(event: str) -> None:
    """A stop does not keep the others from seeing the step."""
    last = Stopper(True)
    getattr(CallbackList([Stopper(False), last]), event)(step=0)
    assert last.calls == 1


def test_lists_in_lists_are_one() -> None:
    """Events, the order of what saves, and states are then those of one flat list."""
    first, second, last = Callback(), Stopper(True), Callback()
    nested = CallbackList([CallbackList([first, CallbackList([second])]), last])
    assert nested.callbacks == [first, second, last]


def test_one_callback_needs_no_list(counting: ModuleType) -> None:
    """Nobody should have to read how an iterable is missed."""
    callback = Stopper(True)
    for given in (callback, [callback], CallbackList(callback)):
        algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=given)
        assert algorithm.callbacks.callbacks == [callback]


class IterationEnds(Callback):
    """Notes its name when it hears of an iteration's end."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name, self.heard = name, heard

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Note the name."""
        self.heard.append(self.name)


class SavingIterationEnds(IterationEnds):
    """Claims to save the training."""

    saves_training: ClassVar[bool] = True


@pytest.mark.parametrize("nest", [lambda callback: callback, CallbackList])
def test_what_saves_hears_of_an_iterations_end_last(counting: ModuleType, nest: Any) -> None:
    """The others have counted the iteration then, wherever they stand in the list."""
    heard: list[str] = []
    saves = nest(SavingIterationEnds("saves", heard))
    callbacks = [saves, *(IterationEnds(n, heard) for n in "ab")]
    counting.CountingAlgorithm("CartPole-v1", callbacks=callbacks).train(8)
    assert heard == ["a", "b", "saves"]
