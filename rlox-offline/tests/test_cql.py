"""CQL's update: the penalty, the multiplier, the temperature and the first steps."""

from __future__ import annotations

import copy
import math

import data
import numpy as np
import pytest
import rlox
import torch
from rlox.errors import ConfigError
from rlox_offline.cql import CQL


def algorithm(**options: object) -> CQL:
    """Return a small CQL."""
    return CQL(data.continuous(), hidden=16, batch_size=16, seed=0, **options)


def test_targets_take_an_action_of_the_policy_or_its_mode() -> None:
    """The mode draws nothing, so its targets never change."""
    for mode, same in ((True, True), (False, False)):
        cql = algorithm(mode_targets=mode)
        batch = cql.scaling.batch(cql.dataset.sample(16, 0), continuous=True).transitions(0.5)
        first, second = (cql.objective.bellman_targets(cql.parts, batch) for _ in range(2))
        assert torch.equal(first, second) is same
    cql = algorithm(mode_targets=True)
    values = cql.critic_target(batch.next_obs, cql.policy.deterministic(batch.next_obs)).amin(0)
    expected = batch.rewards + batch.discounts * values
    torch.testing.assert_close(cql.objective.bellman_targets(cql.parts, batch), expected)


def test_conservative_values_are_lower_off_the_dataset() -> None:
    """After training, random actions have lower values than the dataset's."""
    columns = data.columns(1_000)
    columns["actions"] = np.clip(columns["actions"], 0.5, 2.0)
    cql = CQL(data.Dataset(columns, act_low=-2.0, act_high=2.0), hidden=32, seed=0, gamma=0.5)
    cql.train(300)
    rows = cql.scaling.batch(cql.dataset.sample(256, 0), continuous=True)
    inside = cql.critic(rows.obs, rows.actions).mean()
    outside = cql.critic(rows.obs, -rows.actions).mean()
    assert inside - outside > 1.0


def test_multiplier_rises_above_the_target_and_falls_below_it() -> None:
    """If the penalty is larger than the target value, its weight grows."""
    for target, direction in ((-100.0, 1), (100.0, -1)):
        cql = algorithm(auto_alpha=True, cql_target_value=target)
        cql.train(5)
        assert math.copysign(1, cql.networks["multiplier"].log_value.item()) == direction
    fixed = algorithm()
    assert fixed.train(5)["cql_alpha"] == pytest.approx(5.0)


def test_temperature_moves_towards_the_target_entropy() -> None:
    """It rises if the policy is too certain, and stays fixed if it is not tuned."""
    assert algorithm(target_entropy=50.0).train(5)["alpha"] > 1.0
    assert algorithm(target_entropy=-50.0).train(5)["alpha"] < 1.0
    assert algorithm(auto_entropy=False, target_entropy=50.0).train(5)["alpha"] == 1.0


def test_policy_clones_at_first() -> None:
    """During bc_steps, the critics do not influence the policy."""
    one, other = algorithm(bc_steps=3, cql_alpha=0.0), algorithm(bc_steps=3, cql_alpha=50.0)
    for cql in (one, other):
        cql.train(3)
    for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    for cql in (one, other):
        cql.train(1)
    different = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    assert not all(torch.equal(a, b) for a, b in different)


def test_policy_step_does_not_reach_the_critics() -> None:
    """The critics learn from their own loss alone."""
    cql = algorithm()
    rows = cql.scaling.batch(cql.dataset.sample(16, 0), continuous=True)
    before = copy.deepcopy(cql.critic.state_dict())
    cql.objective.learn_policy(cql.parts, rows.transitions(0.99), 1e-3)
    for name, tensor in cql.critic.state_dict().items():
        assert torch.equal(tensor, before[name])


def weights(cql: CQL) -> torch.Tensor:
    """Return the parameters of policy and critics."""
    networks = (cql.policy, cql.critic)
    return torch.cat([p.detach().flatten() for net in networks for p in net.parameters()])


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_calibration_ends_where_returns_are_below_all_values(backend: str) -> None:
    """Then training equals CQL's to the bit; with the recorded returns it differs."""
    plain, calibrated, low = (algorithm(backend=backend, calibrated=c) for c in (False, True, True))
    assert low.minibatches is not None
    low.minibatches.returns_to_go[:] = -math.inf
    for cql in (plain, calibrated, low):
        cql.train(5)
    assert torch.equal(weights(low), weights(plain))
    assert not torch.equal(weights(calibrated), weights(plain))


def test_calibrated_values_of_the_policy_stay_above_the_returns() -> None:
    """A heavy penalty pushes CQL's values below them."""
    dataset = data.continuous().with_returns(0.5)
    excess = []
    for calibrated in (False, True):
        options = {"gamma": 0.5, "cql_alpha": 20.0, "calibrated": calibrated}
        cql = CQL(data.continuous(), hidden=32, seed=0, **options)
        cql.train(200)
        rows = cql.scaling.batch(dataset.sample(256, 0), continuous=True)
        values = cql.critic(rows.obs, cql.policy.deterministic(rows.obs)).amin(0)
        excess.append((values - rows.returns_to_go).mean().item())
    assert excess[0] < 0.0 < 0.5 < excess[1]


def test_calibration_needs_a_dataset_with_returns() -> None:
    """A buffer without the order of transitions has no returns; acting needs none."""
    columns = data.columns()
    columns["actions"] /= 2
    names = ("obs", "next_obs", "actions", "rewards", "terminated", "truncated")
    buffer = rlox.OfflineDatasetBuffer(*(columns[name] for name in names))
    with pytest.raises(ConfigError, match=r"method with_returns, .* got OfflineDatasetBuffer$"):
        CQL(buffer, hidden=16, calibrated=True)
    acting = CQL(obs_dim=3, act_dim=2, hidden=16, calibrated=True)
    assert acting.predict(columns["obs"][0]).shape == (2,)
