"""AWAC's update, step by step, and its preference for better actions."""

from __future__ import annotations

import copy

import data
import numpy as np
import pytest
import torch
from rlox_offline.awac import AWAC


def test_one_update_is_the_published_one() -> None:
    """Critics first; the weights use the new critics; sampled actions are clipped."""
    ours = AWAC(data.continuous(), hidden=8, batch_size=16, awac_lambda=0.5, seed=0)
    rows = ours.scaling.batch(ours.dataset.sample(16, 0), continuous=True)
    with torch.no_grad():
        ours.policy.log_std.fill_(1.0)  # so that some samples lie out of bounds
    policy, critics = copy.deepcopy(ours.policy), copy.deepcopy(ours.critic)
    stream = torch.Generator().set_state(ours.policy.generator.get_state())

    def sample(obs: torch.Tensor) -> torch.Tensor:
        mean = policy.net(obs).tanh()
        noise = torch.empty_like(mean).normal_(generator=stream)
        actions = mean + policy.log_std.exp() * noise
        assert (actions.abs() > 1).any()
        return actions.clamp(-1, 1)

    def step(module: torch.nn.Module, loss: torch.Tensor) -> None:
        adam = torch.optim.Adam(module.parameters(), lr=3e-4)
        loss.backward()
        adam.step()

    with torch.no_grad():
        next_q = ours.critic_target(rows.next_obs, sample(rows.next_obs)).min(0).values
        target = rows.rewards + 0.99 * (1 - rows.terminated) * next_q
    first, second = critics(rows.obs, rows.actions)
    step(critics, ((first - target) ** 2).mean() + ((second - target) ** 2).mean())
    with torch.no_grad():
        q = critics(rows.obs, rows.actions).min(0).values
        advantages = q - critics(rows.obs, sample(rows.obs)).min(0).values
        weights = torch.minimum(torch.exp(advantages / 0.5), torch.tensor(100.0))
    normal = torch.distributions.Normal(policy.net(rows.obs).tanh(), policy.log_std.exp())
    step(policy, -(weights * normal.log_prob(rows.actions).sum(-1)).mean())

    ours._update(rows)
    for mine, theirs in ((ours.policy, policy), (ours.critic, critics)):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_better_actions_are_imitated_more() -> None:
    """From uniform actions with mean 0 and reward -(a - ½)², AWAC moves towards ½."""
    n = 2_000
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (n, 1)).astype(np.float32)
    columns = {
        "obs": np.zeros((n, 1), np.float32),
        "next_obs": np.zeros((n, 1), np.float32),
        "actions": actions,
        "rewards": -((actions[:, 0] - 0.5) ** 2),
        "terminated": np.ones(n, np.bool_),
        "truncated": np.zeros(n, np.bool_),
    }
    dataset = data.Dataset(columns, normalize=False, act_low=-1.0, act_high=1.0)
    options = {"hidden": 32, "learning_rate": 1e-3, "batch_size": 128, "seed": 0}
    awac = AWAC(dataset, awac_lambda=0.05, **options)
    awac.train(700)
    assert awac.predict(np.zeros(1))[0] == pytest.approx(0.5, abs=0.12)
