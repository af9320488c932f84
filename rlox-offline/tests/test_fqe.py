"""FQE estimates known returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rlox
from rlox.errors import DatasetError, SpaceError
from rlox_offline.datasets import Dataset
from rlox_offline.fqe import FQE


class Constant:
    """A policy with a constant action."""

    def __init__(self, action: float) -> None:
        self.action = action

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return np.full((*np.shape(obs)[:-1], 1), self.action, np.float32)


def chain(terminates: bool) -> Dataset:
    """Return a walk with the action as its reward, recorded with uniform actions."""
    rng = np.random.default_rng(0)
    n = 4_000
    step = np.arange(n) % 4
    return Dataset(
        {
            "obs": np.eye(4)[step],
            "next_obs": np.eye(4)[(step + 1) % 4],
            "actions": (actions := rng.uniform(-2, 2, (n, 1))),
            "rewards": actions[:, 0],
            "terminated": (step == 3) & terminates,
            "truncated": (step == 3) & (not terminates),
        },
        act_low=-2.0,
        act_high=2.0,
    )


@pytest.mark.parametrize(("action", "terminates"), [(1.0, True), (-1.5, False)])
def test_estimate_is_the_discounted_return(action: float, terminates: bool) -> None:
    """Four rewards, or a geometric series if episodes were merely cut."""
    gamma = 0.8
    fqe = FQE(
        chain(terminates), Constant(action), hidden=32, gamma=gamma, tau=0.05,
        learning_rate=3e-3, batch_size=128, seed=0,
    )  # fmt: skip
    metrics = fqe.train(800)
    assert metrics["estimate"] == fqe.estimate()
    exact = action * ((1 - gamma**4) if terminates else 1.0) / (1 - gamma)
    assert fqe.estimate() == pytest.approx(exact, abs=0.15 * abs(exact))


def test_policy_and_initial_observations_are_asked_for() -> None:
    """The errors name the missing argument."""
    with pytest.raises(rlox.errors.ConfigError, match=r"needs policy="):
        rlox.make("fqe", dataset=chain(True))
    buffer = rlox.OfflineDatasetBuffer(**chain(True).columns)
    fqe = FQE(buffer, Constant(0.0), act_high=2.0, hidden=8)
    with pytest.raises(DatasetError, match="pass initial_obs="):
        fqe.estimate()
    assert np.isfinite(fqe.estimate(np.eye(4)))
    with pytest.raises(SpaceError, match=r"initial_obs must have shape \(B, 4\), got \(4,\)"):
        fqe.estimate(np.eye(4)[0])


@pytest.mark.parametrize("actions", [np.zeros((2, 3)), np.zeros(2), np.full((2, 1), np.nan)])
def test_policy_of_other_actions_is_refused(actions: Any) -> None:
    """Before any gradient step."""

    class Other:
        def predict(self, obs: Any, deterministic: bool = True) -> Any:
            return actions

    with pytest.raises(SpaceError, match=r"must return finite actions of shape \(2, 1\)"):
        FQE(chain(True), Other(), hidden=8)


def test_policies_that_remember_are_refused() -> None:
    """A transition lacks earlier observations."""

    class Remembers(Constant):
        def predict(self, obs: Any, deterministic: bool = True, *, state: Any = None) -> Any:
            return super().predict(obs, deterministic), {"memory": np.zeros((len(obs), 1))}

    with pytest.raises(SpaceError, match="acts by earlier observations"):
        FQE(chain(True), Remembers(0.0), hidden=8)
