"""TD3+BC's update, step by step."""

from __future__ import annotations

import copy

import data
import numpy as np
import pytest
import torch
from rlox.batches.transitions import TransitionBatch
from rlox_offline.batch import OfflineBatch
from rlox_offline.td3_bc import TD3BC


def algorithm(**options: object) -> TD3BC:
    """Return a small TD3+BC without target noise."""
    return TD3BC(data.continuous(), hidden=8, batch_size=16, seed=0, target_noise=0.0, **options)


def batch(td3_bc: TD3BC, seed: int = 0) -> OfflineBatch:
    """Return a minibatch."""
    return td3_bc.scaling.batch(td3_bc.dataset.sample(16, seed), continuous=True)


def targets(td3_bc: TD3BC, rows: TransitionBatch) -> torch.Tensor:
    """Return the critics' targets."""
    return td3_bc.objective.bellman_targets(td3_bc.parts, rows)


def test_one_update_follows_the_pseudo_code() -> None:
    """Critics step on the smaller target value, the policy on Q_1 after them."""
    ours = algorithm(policy_delay=1)
    rows = batch(ours)
    policy, critics = copy.deepcopy(ours.policy), copy.deepcopy(ours.critic)
    with torch.no_grad():
        smaller = critics(rows.next_obs, policy(rows.next_obs)).min(0).values
        target = rows.rewards + 0.99 * (1 - rows.terminated) * smaller
    adam = torch.optim.Adam(critics.parameters(), lr=3e-4)
    first, second = critics(rows.obs, rows.actions)
    (((first - target) ** 2).mean() + ((second - target) ** 2).mean()).backward()
    adam.step()
    actor_adam = torch.optim.Adam(policy.parameters(), lr=3e-4)
    actions = policy(rows.obs)
    q_values = critics(rows.obs, actions)[0]
    weight = 2.5 / q_values.abs().mean().detach()
    loss = -weight * q_values.mean() + ((actions - rows.actions) ** 2).mean()
    loss.backward()
    actor_adam.step()

    before = copy.deepcopy(ours.critic_target.state_dict())
    metrics = ours._update(rows)
    assert float(metrics["actor_loss"]) == pytest.approx(loss.item(), rel=1e-5, abs=1e-6)
    for mine, theirs in ((ours.policy, policy), (ours.critic, critics)):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    for name, tensor in ours.critic_target.state_dict().items():
        expected = 0.995 * before[name] + 0.005 * ours.critic.state_dict()[name]
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6)


def test_policy_and_targets_wait_for_the_delay() -> None:
    """They move every second step by default."""
    td3_bc = algorithm()
    before = copy.deepcopy(td3_bc.policy.state_dict()["net.layers.0.weight"])
    metrics = td3_bc.train(1)
    assert torch.equal(td3_bc.policy.state_dict()["net.layers.0.weight"], before)
    assert np.isnan(metrics["actor_loss"])
    td3_bc.train(1)
    assert not torch.equal(td3_bc.policy.state_dict()["net.layers.0.weight"], before)


def test_target_noise_is_clipped() -> None:
    """With a deviation of 100, the noise is ±noise_clip, and actions stay in [-1, 1]."""
    td3_bc = TD3BC(
        data.continuous(), hidden=8, batch_size=16, target_noise=100.0, noise_clip=1e-3, gamma=1.0
    )
    rows = batch(td3_bc).transitions(gamma=1.0)
    plain = TD3BC(data.continuous(), hidden=8, batch_size=16, target_noise=0.0, gamma=1.0)
    difference = (targets(td3_bc, rows) - targets(plain, rows)).abs()
    assert 0 < difference.max() < 5e-3
