"""IQL's update, step by step."""

from __future__ import annotations

import copy
import math

import data
import pytest
import torch
from rlox.errors import ConfigError
from rlox.training.loop import run_iteration
from rlox_offline.iql import IQL


@pytest.mark.parametrize("stochastic", [True, False])
def test_one_update_follows_the_authors_order(stochastic: bool) -> None:
    """V first; policy and critics see the new V; the weights use the old target critics."""
    ours = IQL(data.continuous(), hidden=8, batch_size=16, seed=0, stochastic=stochastic)
    ours.clock.extend(100)
    rows = ours.scaling.batch(ours.dataset.sample(16, 0), continuous=True)
    value, policy, critics = (copy.deepcopy(m) for m in (ours.value, ours.policy, ours.critic))
    with torch.no_grad():
        q = ours.critic_target(rows.obs, rows.actions).min(0).values

    def step(module: torch.nn.Module, loss: torch.Tensor) -> None:
        adam = torch.optim.Adam(module.parameters(), lr=3e-4)
        loss.backward()
        adam.step()

    u = q - value(rows.obs)
    step(value, ((0.7 - (u < 0).float()).abs() * u**2).mean())
    with torch.no_grad():
        weights = torch.minimum(torch.exp(3.0 * (q - value(rows.obs))), torch.tensor(100.0))
        target = rows.rewards + 0.99 * (1 - rows.terminated) * value(rows.next_obs)
    means = policy.net(rows.obs).tanh()
    if stochastic:
        normal = torch.distributions.Normal(means, policy.log_std.exp())
        step(policy, -(weights * normal.log_prob(rows.actions).sum(-1)).mean())
    else:
        step(policy, (weights * ((means - rows.actions) ** 2).sum(-1)).mean())
    first, second = critics(rows.obs, rows.actions)
    step(critics, ((first - target) ** 2).mean() + ((second - target) ** 2).mean())

    ours._update(rows)
    for mine, theirs in ((ours.value, value), (ours.policy, policy), (ours.critic, critics)):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("total", "done", "share"), [(100, 0, 1.0), (100, 50, 0.5), (3, 2, 0.25)])
def test_actor_learning_rate_falls_along_a_cosine(total: int, done: int, share: float) -> None:
    """It reaches zero at the end of the training, or after actor_decay_steps."""
    for options in ({}, {"actor_decay_steps": total}):
        iql = IQL(data.continuous(), hidden=8, **options)
        iql.clock.extend(total if not options else 10 * total)
        iql.clock.gradient_steps = done
        assert iql.step_size("learn") == pytest.approx(3e-4 * share, abs=1e-12)
    assert math.isclose(IQL(data.continuous()).config.temperature, 3.0)


def test_iterations_of_ones_own_need_an_end() -> None:
    """Outside a training the cosine has no end, unless an option sets it."""
    dataset = data.continuous()
    with pytest.raises(ConfigError, match=r"^actor_decay_steps=None lets the policy's step size"):
        run_iteration(IQL(dataset, hidden=8, steps_per_iteration=2))
    iql = IQL(dataset, hidden=8, steps_per_iteration=2, actor_decay_steps=100)
    run_iteration(iql)
    iql.clock.gradient_steps = 100
    assert iql.step_size("learn") == pytest.approx(0.0, abs=1e-12)


def test_value_of_a_fixed_reward_is_its_geometric_sum() -> None:
    """With reward 1 and no end, V tends to 1 / (1 - γ); with every step terminal, to 1."""
    for terminal, expected in ((False, 2.0), (True, 1.0)):
        columns = data.columns()
        columns["rewards"][:] = 1.0
        columns["terminated"][:] = terminal
        columns["truncated"][-1] = True
        dataset = data.Dataset(columns, act_low=-2.0, act_high=2.0)
        iql = IQL(dataset, hidden=16, gamma=0.5, tau=0.1, learning_rate=3e-3, seed=0)
        iql.train(600)
        rows = iql.scaling.batch(dataset.sample(64, 0), continuous=True)
        assert iql.value(rows.obs).mean().item() == pytest.approx(expected, abs=0.1)
