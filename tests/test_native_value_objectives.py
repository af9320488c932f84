"""The native learner keys on value objectives: their type and exact fields."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, fields
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import BackendError
from rlox.learners.transitions import Parts, ReplayObjective, ReplayTask, choose_replay_learner
from rlox.losses import AddedLosses
from rlox.networks import DiscreteQNetwork, polyak_update
from rlox.nn import FlatOptimizer
from rlox_native.replay_learner import OBJECTIVES, Known, make_replay_learner
from rlox_offpolicy.dqn import QLearning
from rlox_offpolicy.sac import SoftActorCritic


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_native_knows_every_field_of_its_objectives(objective):
    """A field added to one of them is refused until the Rust code heeds it."""
    kind = pkgutil.resolve_name(objective)
    assert {field.name for field in fields(kind)} == set(OBJECTIVES[objective].fields.split())


@dataclass(frozen=True, kw_only=True)
class PessimisticQ(QLearning):
    """A stranger's objective with a number that native does not know."""

    pessimism: float = 0.1


class Renamed(QLearning):
    """A subclass that may compute anything."""


class Strange(ReplayObjective):
    """An objective unlike those of rlox."""

    learn, mode = QLearning().learn, QLearning().mode


class Stranger:
    """Somebody's algorithm: Q-learning on batches of its own making, without config or name."""

    def __init__(self, objective, backend, added=None, dtype=torch.float32):
        generator = torch.Generator().manual_seed(0)
        self.network, self.target = (
            DiscreteQNetwork(4, 3, generator=generator).to(dtype) for _ in range(2)
        )
        polyak_update(self.network, self.target, 1.0)
        self.optimizer = FlatOptimizer(self.network, partial(torch.optim.Adam))
        parts = Parts(
            {"network": self.network, "network_target": self.target},
            {"network": self.optimizer},
            torch.device("cpu"),
            lambda _: generator,
            AddedLosses(added, ("network",)),
        )
        self.learner = choose_replay_learner(backend, ReplayTask(objective, parts))


def batch():
    """Return 16 random transitions."""
    rng = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, 16, 4, generator=rng)
    return TransitionBatch(
        obs=obs,
        actions=torch.randint(3, (16, 1), generator=rng),
        rewards=torch.randn(16, generator=rng),
        next_obs=next_obs,
        discounts=torch.full((16,), 0.9),
        weights=torch.ones(()),
    )


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        (PessimisticQ(), "does not know the field 'pessimism' of PessimisticQ, a subclass of Q"),
        (Renamed(), "knows QLearning, not its subclass Renamed"),
        (Strange(), "knows the objectives QLearning, .*, not Strange"),
    ],
    ids=["field", "subclass", "type"],
)
def test_other_objectives_fall_back_to_torch_with_the_reason(objective, reason):
    """Asked for by name, the reason is an error."""
    mine = Stranger(objective, "auto")
    assert mine.learner.backend == "torch"
    with pytest.raises(BackendError, match=reason):
        raise BackendError(mine.learner.reason)
    mine.learner.step("learn", batch(), 1e-2)
    with pytest.raises(BackendError, match=f"'native' cannot do this: it {reason}"):
        Stranger(objective, "native")


def test_a_field_that_a_known_objective_gains_is_refused(monkeypatch):
    """Until native's table has it."""
    never = None
    known = Known(never, "learn", "tau")
    monkeypatch.setitem(OBJECTIVES, "rlox_offpolicy.sac.SoftActorCritic", known)
    task = SimpleNamespace(objective=SoftActorCritic(None))
    with pytest.raises(BackendError, match="the field 'target_entropy' of SoftActorCritic"):
        make_replay_learner(task)


def test_added_losses_are_left_to_torch():
    """Neither native nor torch.compile knows what they compute."""

    def prior(network, batch):
        return network(batch.obs).mean()

    mine = Stranger(QLearning(), "auto", {"network": prior})
    assert str(mine.learner) == "torch (not native: it knows no added losses (network.prior))"
    for backend in ("native", "torch-compile"):
        with pytest.raises(BackendError, match=r"knows no added losses \(network.prior\)"):
            Stranger(QLearning(), backend, {"network": prior})


def test_double_precision_is_torchs():
    """Rust computes in single precision alone."""
    reason = "it computes in float32, not torch.float64"
    mine = Stranger(QLearning(), "auto", dtype=torch.float64)
    assert str(mine.learner) == f"torch (not native: {reason})"
    singles = {key: x for key, x in vars(batch()).items() if x is not None}
    doubles = {key: x.double() if x.is_floating_point() else x for key, x in singles.items()}
    before = mine.optimizer.parameters.clone()
    mine.learner.step("learn", TransitionBatch(**doubles), 1e-2)
    assert not torch.equal(before, mine.optimizer.parameters)
    with pytest.raises(BackendError, match=f"'native' cannot do this: {reason}"):
        Stranger(QLearning(), "native", dtype=torch.float64)
