"""Whole updates of the off-policy algorithms against Stable-Baselines3's, from the same weights.

Both get the same batches; afterwards every parameter has moved by the same amount, to 1e-5 of how
far it moved.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlox.batch import TransitionBatch
from rlox_offpolicy.dqn import DQN
from torch import Tensor, nn

stable_baselines3 = pytest.importorskip("stable_baselines3")

BATCH, GAMMA, RATE = 64, 0.97, 1e-3
OURS: dict[str, Any] = {"gamma": GAMMA, "env_backend": "gymnasium", "buffer_size": 2000}
THEIRS: dict[str, Any] = {"gamma": GAMMA, "learning_rate": RATE, "device": "cpu", "seed": 0}


def batches(count: int, obs_dim: int, n_actions: int | None, act_dim: int = 1) -> list[Any]:
    """Return random batches; with ``n_actions`` the actions are discrete."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def actions() -> Tensor:
        if n_actions is None:
            return normal(BATCH, act_dim).tanh()
        return torch.randint(n_actions, (BATCH, 1), generator=generator)

    return [
        TransitionBatch(
            obs=normal(BATCH, obs_dim),
            actions=actions(),
            rewards=3 * normal(BATCH),
            next_obs=normal(BATCH, obs_dim),
            discounts=GAMMA * (torch.rand(BATCH, generator=generator) < 0.8).float(),
            weights=torch.ones(()),
        )
        for _ in range(count)
    ]


def train_theirs(model: Any, given: list[Any]) -> None:
    """Let Stable-Baselines3 take one gradient step on each batch."""
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    queue = [
        ReplayBufferSamples(
            observations=x.obs,
            actions=x.actions,
            next_observations=x.next_obs,
            dones=(x.discounts == 0).float().unsqueeze(-1),
            rewards=x.rewards.unsqueeze(-1),
        )
        for x in given
    ]
    model.replay_buffer.sample = lambda *_, **__: queue.pop(0)
    model.set_logger(configure(None, []))
    model.train(gradient_steps=len(given), batch_size=BATCH)
    assert not queue


def copied(pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Copy theirs into ours and return the values."""
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
    return [ours.clone() for ours, _ in pairs]


def assert_moved_alike(pairs: list[tuple[Tensor, Tensor]], before: list[Tensor]) -> None:
    """Every parameter moved, and both moved alike."""
    for (ours, theirs), start in zip(pairs, before, strict=True):
        moved = torch.linalg.vector_norm(theirs - start)
        assert moved > 0
        assert torch.linalg.vector_norm(ours - theirs) <= 1e-5 * torch.linalg.vector_norm(theirs)
        assert torch.linalg.vector_norm(ours - theirs) <= 1e-3 * moved


def linear_pairs(ours: Any, theirs: nn.Sequential) -> list[tuple[Tensor, Tensor]]:
    """Return the parameters of our perceptron and theirs that correspond."""
    linears = [layer for layer in theirs if isinstance(layer, nn.Linear)]
    pairs = zip(ours.layers, linears, strict=True)
    return [(getattr(a, n), getattr(b, n)) for a, b in pairs for n in ("weight", "bias")]


def test_dqn_updates_agree() -> None:
    """Targets, Huber loss, clipped gradient, Adam: three steps, without double Q-learning."""
    theirs = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", **THEIRS)
    ours = DQN("CartPole-v1", hidden=64, double_q=False, learning_rate=RATE, **OURS)
    pairs = linear_pairs(ours.network.net, theirs.q_net.q_net)
    before = copied(pairs)
    with torch.no_grad():
        for target in theirs.q_net_target.parameters():
            target.add_(0.1 * torch.randn(target.shape))
    copied(linear_pairs(ours.target.net, theirs.q_net_target.q_net))
    given = batches(3, 4, 2)
    train_theirs(theirs, given)
    for batch in given:
        ours._learn(batch, RATE)
    assert_moved_alike(pairs, before)
