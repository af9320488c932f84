"""The critic's loss on replayed rewards: its value by the formula, and its gradient."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from rlox_dreamer.dreamer import DreamerV3
from rlox_dreamer.losses import two_hot

OPTIONS: dict[str, Any] = {
    "deter_dim": 8, "stoch_dim": 2, "stoch_classes": 3, "hidden": 8, "units": 8, "blocks": 2,
    "encoder_layers": 1, "head_layers": 1, "bins": 11, "batch_size": 8, "seq_len": 6,
    "learning_starts": 1_000, "steps_per_iteration": 50,
}  # fmt: skip


def make(**options: Any) -> DreamerV3:
    """Return an algorithm in float64 with replayed episodes, of both ends, and random values."""
    env = gym.make("CartPole-v1", max_episode_steps=15)
    algo = DreamerV3(env, seed=3, **OPTIONS, **options)
    algo.train(200)
    algo.model.double()
    generator = torch.Generator().manual_seed(0)
    for parameter in algo.model.value.parameters():
        parameter.data.normal_(generator=generator)
    return algo


def test_the_loss_equals_its_formula() -> None:
    """λ-returns that stop at an episode's end, two-hot targets, and no loss at the last steps."""
    algo = make()
    batch = algo.replay.draw_sequences(8, 6, seed=1)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(6, 8, 14, generator=generator).double()
    first = torch.rand(48, generator=generator).double()
    got = algo.objective.replay_value_loss(algo.model, batch, features, first)
    assert batch.is_last[:-1].any()
    assert (batch.is_last & ~batch.is_terminal).any()
    bootstraps, value = first.view(6, 8), algo.model.value
    losses = []
    for b in range(8):
        following = bootstraps[5, b].item()
        for t in range(4, -1, -1):
            goes_on = 0.99 * (not batch.is_terminal[t + 1, b])
            lam = 0.0 if batch.is_last[t + 1, b] else 0.95
            then = (1 - lam) * bootstraps[t + 1, b].item() + lam * following
            following = batch.rewards[t + 1, b].item() + goes_on * then
            if batch.is_last[t, b]:
                losses.append(0.0)
                continue
            log_probs = value(features[t, b])
            target = torch.tensor([following, 0.0], dtype=torch.float64)  # the slow critic says 0
            losses.append(-(two_hot(target, value.bins) * log_probs).sum().item())
    assert got.item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_gradient_reaches_the_states() -> None:
    """By finite differences, and none at the steps that end an episode."""
    algo = make()
    batch = algo.replay.draw_sequences(3, 6, seed=1)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(6, 3, 14, generator=generator).double().requires_grad_()
    first = torch.rand(18, generator=generator).double()

    def loss(states: torch.Tensor) -> torch.Tensor:
        return algo.objective.replay_value_loss(algo.model, batch, states, first)

    assert torch.autograd.gradcheck(loss, (features,))
    (gradient,) = torch.autograd.grad(loss(features), features)
    moved = gradient.abs().sum(-1) > 0
    assert torch.equal(moved[:-1], ~batch.is_last[:-1])
    assert not moved[-1].any()
