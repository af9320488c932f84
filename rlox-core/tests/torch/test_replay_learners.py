"""Tests of :mod:`rlox.learners.transitions`: the steps of off-policy algorithms, by backends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
import torch
from rlox import registry
from rlox.errors import BackendError
from rlox.learners.rollouts import TorchLearner, make_torch_learner
from rlox.learners.tasks import RolloutTask
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Learn,
    ReplayTask,
    Step,
    StepResult,
    TorchReplayLearner,
    choose_replay_learner,
)
from rlox.registry.specs import LearnerBackendSpec
from rlox.registry.table import Registration, Registry

NOTHING: Any = None


@dataclass(frozen=True)
class Mine:
    """An objective that no backend knows."""


@dataclass(frozen=True)
class Sequences:
    """A batch of another type than transitions."""

    rows: torch.Tensor


class Own(Enum):
    """A kind of step that only one family has."""

    MODEL = "the world model"


def learn_model(batch: Any, rate: float) -> StepResult:
    """Return tensors for the next batch."""
    return StepResult(rate, outputs={"latents": 2 * batch.rows})


TASK = ReplayTask(
    Mine(),
    NOTHING,
    {},
    {
        Learn.VALUES: Step(lambda batch, rate: StepResult((batch, rate)), tuple),
        Learn.POLICY: Step(lambda batch, rate: StepResult(-rate), float),
        Own.MODEL: Step(learn_model, float),
    },
)


def refuse(task: ReplayTask) -> Any:
    """Refuse."""
    raise BackendError(f"it does not know {type(task.objective).__name__}")


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
    """With the batch and the learning rate; the faster backend's refusal is reported."""
    chosen = choose_replay_learner("auto", TASK)
    assert str(chosen) == "torch (not picky: it does not know Mine)"
    batch: Any = "a batch"
    assert chosen.step(Learn.VALUES, batch, 0.5).terms == ("a batch", 0.5)
    assert chosen.step(Learn.POLICY, batch, 0.5).terms == -0.5


class Acting:
    """A learner that chooses actions too."""

    def act(self, obs: torch.Tensor) -> Any:
        """Return what was observed."""
        return obs.numpy()


def test_a_learner_acts_if_it_can_and_else_the_algorithm_does_without_gradients() -> None:
    """The algorithm asks once for what it acts with."""
    network, obs = torch.nn.Linear(1, 1), torch.ones(2, 1)

    def in_torch(rows: torch.Tensor) -> Any:
        return network(rows).numpy()  # which refuses a tensor with a gradient

    learns: Any = TorchReplayLearner(TASK)
    expected = network(obs).detach().numpy()
    assert (ChosenReplayLearner(learns, "", "").acting(in_torch)(obs) == expected).all()
    acts: Any = Acting()
    assert (ChosenReplayLearner(acts, "", "").acting(in_torch)(obs) == 1).all()


def test_learners_take_arrays_if_they_say_so() -> None:
    """Those in torch take tensors."""
    learns: Any = TorchReplayLearner(TASK)
    assert not ChosenReplayLearner(learns, "", "").takes_arrays
    takes: Any = Acting()
    takes.takes_arrays = True
    assert ChosenReplayLearner(takes, "", "").takes_arrays


@pytest.mark.usefixtures("backends")
def test_steps_take_any_batch_and_return_tensors_for_the_next() -> None:
    """Neither batches nor kinds of steps are a fixed list."""
    chosen = choose_replay_learner("torch", TASK)
    result = chosen.step(Own.MODEL, Sequences(torch.ones(2)), 0.5)
    assert result.outputs is not None
    assert result.outputs["latents"].tolist() == [2.0, 2.0]


@pytest.mark.usefixtures("backends")
def test_a_backend_that_cannot_is_an_error_with_its_reason() -> None:
    """As for rollouts."""
    with pytest.raises(BackendError, match="'picky' cannot do this: it does not know Mine"):
        choose_replay_learner("picky", TASK)


def test_the_torch_backend_knows_both_kinds_of_tasks() -> None:
    """One name for rollouts and for batches of transitions."""
    assert isinstance(make_torch_learner(TASK), TorchReplayLearner)
    rollouts = RolloutTask(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
    assert isinstance(make_torch_learner(rollouts), TorchLearner)
