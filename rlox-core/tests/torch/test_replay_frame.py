"""The frame of replay algorithms names what a class of one's own forgets, and keeps its state."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.config import ReplayConfig, ScheduleValue, positive, schedule
from rlox.deployment import export, load_policy
from rlox.errors import SpaceError
from rlox.learners import ReplayObjective, StepResult
from rlox.networks import make_q_network
from rlox.replay.algorithm import Network, ReplayAlgorithm
from rlox.replay.exploration import EpsilonGreedy
from torch import nn


class Options(ReplayConfig):
    """Options with a clip."""

    clip: float = positive(1.0, help="bound of errors", source="a test")


@dataclass(frozen=True)
class Learning(ReplayObjective):
    """Double Q-learning that watches how large its targets are."""

    clip: float

    def learn(self, parts, batch, learning_rate):
        """Take a gradient step."""
        with torch.no_grad():
            best = parts.network(batch.next_obs).argmax(-1, keepdim=True)
            next_q = parts.network_target(batch.next_obs).gather(-1, best).squeeze(-1)
            targets = batch.rewards + batch.discounts * next_q
            parts.scale.size.lerp_(targets.abs().mean(), 0.1)
        q = parts.network(batch.obs).gather(-1, batch.actions).squeeze(-1)
        errors = (q - targets).clamp(-self.clip, self.clip)
        loss = parts.minimize("network", errors.square().mean(), batch, learning_rate)
        terms = {"q_loss": loss, "q_value": q.detach().mean(), "size": parts.scale.size.clone()}
        return StepResult(terms, errors.detach())

    def mode(self, parts, obs):
        """Return the best actions."""
        return parts.network(obs).argmax(-1)


class Scale(nn.Module):
    """State of one's own, without parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.ones(()))


def make_networks(self, space, size, **sizes):
    """Return action values and a scale."""
    network = partial(make_q_network, space, size, dueling=False, **sizes)
    return {"network": Network(network), "scale": Network(Scale)}


DECLARED = {
    "name": "small",
    "config_class": Options,
    "objective_class": Learning,
    "acts_in": spaces.Discrete,
    "own_networks": ("network",),
    "targets": ("network",),
    "make_networks": make_networks,
}
SMALL = {"seed": 0, "learning_starts": 32, "batch_size": 16, "hidden": 8, "steps_per_iteration": 64}


def declare(**changes):
    """Return an algorithm's class; a declaration that is ``None`` is left out."""
    declared = {name: value for name, value in {**DECLARED, **changes}.items() if value is not None}
    return type("Small", (ReplayAlgorithm,), declared)


def objective(*left_out, **changes):
    """Return the objective's class with other attributes, and without some."""
    kept = {name: value for name, value in vars(Learning).items() if name in ("learn", "mode")}
    kept = {name: value for name, value in {**kept, **changes}.items() if name not in left_out}
    return type("Learning", (ReplayObjective,), kept)


FROZEN = dataclass(frozen=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "Small has no name; write name = ... into the class"),
        ({"config_class": None}, "Small has no config_class"),
        ({"objective_class": None}, "Small has no objective_class; .*ReplayAlgorithm"),
        ({"own_networks": None}, "own_networks of Small names 'policy', and .* network, scale"),
        ({"targets": None}, "targets of Small names 'critic'"),
        ({"make_networks": None}, "abstract method '?make_networks"),
        (
            {"make_networks": lambda *_, **__: {"network": nn.Linear(4, 2)}},
            r"must return Network\(function\) for 'network', and the function .*, got Linear",
        ),
        ({"objective_class": objective()}, "Learning must be a frozen dataclass"),
        ({"objective_class": dataclass(objective())}, "Learning must be a frozen dataclass"),
        ({"objective_class": FROZEN(objective("learn"))}, "has no gradient step 'learn'; write"),
        ({"objective_class": FROZEN(objective("mode"))}, r"has no mode\(self, parts, obs\)"),
        (
            {"objective_class": FROZEN(objective(__annotations__={"beta": float}))},
            "Learning has the field beta, and Options no such option; add the option",
        ),
        (
            {"objective_class": type("More", (Learning,), {"__annotations__": {"beta": float}})},
            "More must be a frozen dataclass",
        ),
    ],
)
def test_what_a_class_forgets_is_named_before_training(changes, message):
    """With what to write."""
    with pytest.raises(TypeError, match=message):
        declare(**changes)("CartPole-v1", **SMALL)


def test_the_kind_of_actions_is_a_declaration():
    """Without it they are continuous."""
    with pytest.raises(SpaceError, match=r"a class of your own that says acts_in = spaces.Discr"):
        declare(acts_in=None)("CartPole-v1", **SMALL)


@pytest.mark.parametrize(
    ("learn", "error", "message"),
    [
        (
            lambda *_: {"q_loss": 0.0},
            TypeError,
            "learn of Learning must return a StepResult",
        ),
        (lambda _, parts, *__: parts.target, AttributeError, "no network 'target'; there are netw"),
    ],
)
def test_a_step_that_goes_wrong_says_what_there_is(learn, error, message):
    """What it returned, or the names of the networks."""
    small = declare(objective_class=FROZEN(objective(learn=learn)))("CartPole-v1", **SMALL)
    with pytest.raises(error, match=message):
        small.train(64)


class Greedy(Options):
    """Options with random actions."""

    epsilon: ScheduleValue = schedule(0.5, help="share of random actions", source="a test")


def test_an_option_epsilon_explores():
    """While acting, and in predictions that are not deterministic."""
    small = declare(config_class=Greedy)("CartPole-v1", **SMALL)
    assert isinstance(small.exploration, EpsilonGreedy)
    obs = np.zeros((64, 4), np.float32)
    assert set(small.predict(obs, deterministic=False)) == {0, 1}
    assert len(set(small.predict(obs))) == 1


class Counting(declare()):
    """Keeps a tensor and a number of its own next to the frame's state."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.highest, self.rounds = torch.full((2,), -torch.inf), 0.0

    def iterate(self, hooks):
        """Count."""
        self.highest[0], self.rounds = self.rounds, self.rounds + 0.5
        return super().iterate(hooks)

    def state_dict(self):
        """Add both."""
        own = {"highest": self.highest, "rounds": self.rounds}
        return {**super().state_dict(), "own": own}

    def load_state_dict(self, state):
        """Restore both as they are."""
        super().load_state_dict(state)
        self.highest, self.rounds = state["own"]["highest"], state["own"]["rounds"]


def test_state_of_its_own_is_saved_and_goes_on(tmp_path):
    """Tensors and numbers next to the frame's state, and buffers of a module; terms are metrics."""
    small = Counting("CartPole-v1", **SMALL, clip=0.5)
    metrics = small.train(128)
    assert (small.objective.clip, "size" in metrics) == (0.5, True)
    small.save(tmp_path / "small.safetensors")
    again = Counting.from_checkpoint(tmp_path / "small.safetensors")
    assert again.rounds == 1.0
    assert torch.equal(again.highest, torch.tensor([0.5, -torch.inf]))
    assert again.parts.scale.size == small.parts.scale.size != 1
    assert list(again.optimizers) == ["network"]
    again.train(64)
    export(again, tmp_path / "small.rlox")
    obs = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    exported = load_policy(tmp_path / "small.rlox")
    assert np.array_equal(exported.predict(obs), again.predict(obs))
