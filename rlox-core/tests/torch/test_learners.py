"""Tests of :mod:`rlox.learners`: which backend is taken and why, steps, terms and updates due."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from rlox import registry
from rlox.errors import BackendError
from rlox.learners.rollouts import choose_learner
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayObjective,
    ReplayTask,
    StepResult,
    TorchReplayLearner,
    choose_replay_learner,
)
from rlox.losses import Scalar, mean_by_name, mean_terms
from rlox.registry.specs import LearnerBackendSpec
from rlox.registry.table import Registration, Registry
from rlox.replay.loop import UpdatesDue

TASK = "a task"


class Eager:
    """Does everything."""

    releases_gil = True

    def __init__(self, task):
        self.task = task

    def update(self, batch, objective, learning_rate, hooks):
        return {"rows": len(batch)}


def refuse(task):
    """Refuse."""
    raise BackendError("it is Sunday")


@pytest.fixture
def backends(monkeypatch):
    """Plant a fast backend that refuses, and two that do not."""
    specs = [
        LearnerBackendSpec("slow", "Does everything.", f"{__name__}:Eager", priority=0),
        LearnerBackendSpec("quick", "Does everything.", f"{__name__}:Eager"),
        LearnerBackendSpec("picky", "Does nothing.", f"{__name__}:refuse", priority=100),
    ]
    planted = Registry([Registration(s, "rlox_learner_backends", "test") for s in specs])
    monkeypatch.setattr(registry, "get_registry", lambda: planted)


@pytest.mark.usefixtures("backends")
def test_auto_takes_the_fastest_that_can_and_says_why(caplog):
    """The refusal of a faster one is the reason."""
    caplog.set_level("INFO", "rlox")
    chosen = choose_learner("auto", TASK)
    assert str(chosen) == "quick (not picky: it is Sunday)"
    assert caplog.messages == ["the learner is quick (not picky: it is Sunday)"]
    assert chosen.update([1, 2], None, 1.0, None) == {"rows": 2}


@pytest.mark.usefixtures("backends")
def test_a_backend_that_cannot_is_an_error_with_its_reason():
    """The reason and the remedy are in the message."""
    with pytest.raises(BackendError, match="'picky' cannot do this: it is Sunday; backend='auto'"):
        choose_learner("picky", TASK)


@dataclass(frozen=True)
class Sequences:
    """A batch of another type than transitions."""

    rows: torch.Tensor


class Steps(ReplayObjective):
    """Two gradient steps, and a rule."""

    def learn(self, parts, batch, rate):
        """Report the rate."""
        return StepResult({"rate": parts.factor * rate})

    def learn_model(self, parts, batch, rate):
        """Return tensors for the next batch."""
        return StepResult({}, outputs={"latents": 2 * batch.rows})

    def mode(self, parts, obs):
        """Return what was observed."""
        return obs


PARTS = Parts({"factor": 2}, {}, torch.device("cpu"), lambda _: torch.Generator())
TASK = ReplayTask(Steps(), PARTS)


@pytest.fixture
def replay_backends(monkeypatch):
    """Plant the torch backend and a faster one that refuses."""
    factory = "rlox.learners.compiled:make_torch_learner"
    specs = [
        LearnerBackendSpec("torch", "Does everything.", factory, priority=0),
        LearnerBackendSpec("picky", "Does nothing.", f"{__name__}:refuse", priority=100),
    ]
    planted = Registry([Registration(s, "rlox_learner_backends", "test") for s in specs])
    monkeypatch.setattr(registry, "get_registry", lambda: planted)


@pytest.mark.usefixtures("replay_backends")
def test_torch_calls_the_objectives_methods():
    """With the parts, the batch and the learning rate; the faster one's refusal is reported."""
    chosen = choose_replay_learner("auto", TASK)
    assert str(chosen) == "torch (not picky: it is Sunday)"
    batch = "a batch"
    assert [chosen.step(name, batch, 0.5).terms for name in TASK.objective.due(1)] == [{"rate": 1}]


class Acting:
    """A learner that chooses actions too."""

    def act(self, obs):
        """Return what was observed."""
        return obs.numpy()


def test_a_learner_acts_if_it_can_and_else_the_algorithm_does_without_gradients():
    """The algorithm asks once for what it acts with."""
    network, obs = torch.nn.Linear(1, 1), torch.ones(2, 1)

    def in_torch(rows):
        return network(rows).numpy()  # which refuses a tensor with a gradient

    learns = TorchReplayLearner(TASK)
    expected = network(obs).detach().numpy()
    assert (ChosenReplayLearner(learns, "", "").acting(in_torch)(obs) == expected).all()
    acts = Acting()
    assert (ChosenReplayLearner(acts, "", "").acting(in_torch)(obs) == 1).all()


@pytest.mark.usefixtures("replay_backends")
def test_steps_take_any_batch_and_return_tensors_for_the_next():
    """Neither batches nor steps are a fixed list."""
    chosen = choose_replay_learner("torch", TASK)
    result = chosen.step("learn_model", Sequences(torch.ones(2)), 0.5)
    assert result.outputs["latents"].tolist() == [2.0, 2.0]


@dataclass(frozen=True)
class Terms:
    """Two scalars."""

    loss: Scalar
    value: Scalar


def test_means_are_floats_per_term():
    """Each name has the mean over the gradient steps."""
    terms = [Terms(torch.tensor(float(i)), torch.tensor(2.0)) for i in range(4)]
    assert mean_terms(Terms, terms) == {"loss": 1.5, "value": 2.0}
    numbers = [Terms(float(i), 2.0) for i in range(4)]
    assert mean_terms(Terms, numbers) == {"loss": 1.5, "value": 2.0}


def test_means_by_name_are_over_the_steps_that_have_the_name():
    """Of tensors and of numbers."""
    policy = {"q": torch.tensor(3.0), "policy": torch.tensor(5.0), "alpha": 0.5}
    terms = [{"q": torch.tensor(1.0)}, policy]
    assert mean_by_name(terms) == {"q": 2.0, "policy": 5.0, "alpha": 0.5}
    assert mean_by_name([]) == {}


def test_no_gradient_step_has_no_mean():
    """All names are there, as NaN."""
    means = mean_terms(Terms, [])
    assert list(means) == ["loss", "value"]
    assert all(math.isnan(mean) for mean in means.values())


@pytest.mark.parametrize("n_envs", [1, 3, 16])
def test_updates_follow_env_steps_whatever_the_number_of_envs(n_envs):
    """No remainder is lost: 3 updates per 32 env steps are 45 per 480."""
    due = UpdatesDue(3, 32)
    for step in range(0, 480, n_envs):
        due.count(step, n_envs)
    assert due.pending == 45
    assert len(list(due.take())) == 45
    assert due.pending == 0


def test_an_interruption_leaves_the_other_updates_due():
    """Each counts as taken when it begins."""
    due = UpdatesDue(updates=4, every=8)
    due.count(7, 1)
    next(iter(due.take()))
    assert due.pending == 3
