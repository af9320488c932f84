"""Tests of :mod:`rlox.learners.rollouts`: which backend is taken, and why."""

from __future__ import annotations

from typing import Any

import pytest
from rlox import registry
from rlox.errors import BackendError, UnknownNameError
from rlox.learners.rollouts import choose_learner
from rlox.registry.specs import LearnerBackendSpec
from rlox.registry.table import Registration, Registry

TASK: Any = "a task"


class Eager:
    """Does everything."""

    releases_gil = True

    def __init__(self, task: Any) -> None:
        self.task = task

    def update(
        self, batch: Any, objective: Any, learning_rate: float, hooks: Any
    ) -> dict[str, float]:
        return {"rows": len(batch)}


def refuse(task: Any) -> Any:
    """Refuse."""
    raise BackendError("it is Sunday")


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fast backend that refuses, and two that do not."""
    specs = [
        LearnerBackendSpec("slow", "Does everything.", f"{__name__}:Eager", priority=0),
        LearnerBackendSpec("quick", "Does everything.", f"{__name__}:Eager"),
        LearnerBackendSpec("picky", "Does nothing.", f"{__name__}:refuse", priority=100),
    ]
    planted = Registry([Registration(s, "rlox_learner_backends", "test") for s in specs])
    monkeypatch.setattr(registry, "get_registry", lambda: planted)


@pytest.mark.usefixtures("backends")
def test_auto_takes_the_fastest_that_can_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The refusal of a faster one is the reason."""
    caplog.set_level("INFO", "rlox")
    chosen = choose_learner("auto", TASK)
    assert str(chosen) == "quick (not picky: it is Sunday)"
    assert caplog.messages == ["the learner is quick (not picky: it is Sunday)"]
    assert chosen.update([1, 2], None, 1.0, None) == {"rows": 2}  # type: ignore[arg-type]


@pytest.mark.usefixtures("backends")
def test_a_backend_by_name_is_taken() -> None:
    """Whatever else there is."""
    assert str(choose_learner("slow", TASK)) == "slow (as configured)"


@pytest.mark.usefixtures("backends")
def test_a_backend_that_cannot_is_an_error_with_its_reason() -> None:
    """The reason and the remedy are in the message."""
    with pytest.raises(BackendError, match="'picky' cannot do this: it is Sunday; backend='auto'"):
        choose_learner("picky", TASK)


@pytest.mark.usefixtures("backends")
def test_an_unknown_backend_is_answered_with_the_nearest() -> None:
    """As every unknown name."""
    with pytest.raises(UnknownNameError, match="learner backend 'quik'; did you mean 'quick'"):
        choose_learner("quik", TASK)
