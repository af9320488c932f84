"""Tests of :mod:`rlox.learners.transitions`: the steps of off-policy algorithms, by backends."""

from __future__ import annotations

from typing import Any

import pytest
from rlox import registry
from rlox.errors import BackendError
from rlox.learners.rollouts import LearningTask, TorchLearner, make_torch_learner
from rlox.learners.transitions import ReplayTask, Step, TorchReplayLearner, choose_replay_learner
from rlox.registry.entry import Registration
from rlox.registry.specs import LearnerBackendSpec
from rlox.registry.table import Registry

NOTHING: Any = None

TASK = ReplayTask(
    "mine",
    NOTHING,
    NOTHING,
    {},
    {
        "values": Step(lambda batch, rate: (batch, rate), tuple),
        "policy": Step(lambda batch, rate: -rate, float),
    },
)


def refuse(task: ReplayTask) -> Any:
    """Refuse."""
    raise BackendError(f"it does not know '{task.algorithm}'")


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the torch backend and a faster one that refuses."""
    factory = "rlox.learners.rollouts:make_torch_learner"
    specs = [
        LearnerBackendSpec("torch", "Does everything.", factory, priority=0),
        LearnerBackendSpec("picky", "Does nothing.", f"{__name__}:refuse", priority=100),
    ]
    planted = Registry([Registration(s, "rlox_learner_backends", "test") for s in specs])
    monkeypatch.setattr(registry, "get_registry", lambda: planted)


@pytest.mark.usefixtures("backends")
def test_torch_does_the_steps_that_the_algorithm_wrote_down() -> None:
    """By name, with the batch and the learning rate; the faster backend's refusal is reported."""
    chosen = choose_replay_learner("auto", TASK)
    assert str(chosen) == "torch (not picky: it does not know 'mine')"
    batch: Any = "a batch"
    assert chosen.step("values", batch, 0.5) == ("a batch", 0.5)
    assert chosen.step("policy", batch, 0.5) == -0.5


@pytest.mark.usefixtures("backends")
def test_a_backend_that_cannot_is_an_error_with_its_reason() -> None:
    """As for rollouts."""
    with pytest.raises(BackendError, match="'picky' cannot do this: it does not know 'mine'"):
        choose_replay_learner("picky", TASK)


def test_the_torch_backend_knows_both_kinds_of_tasks() -> None:
    """One name for rollouts and for batches of transitions."""
    assert isinstance(make_torch_learner(TASK), TorchReplayLearner)
    rollouts = LearningTask("mine", NOTHING, NOTHING, NOTHING)
    assert isinstance(make_torch_learner(rollouts), TorchLearner)
