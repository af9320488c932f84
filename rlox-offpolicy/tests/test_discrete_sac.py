"""SAC for discrete actions: its update written out, checkpoints and errors."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import ConfigError, SpaceError
from rlox.testing import check_resume
from rlox_offpolicy.discrete_sac import DiscreteSAC
from torch import nn

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 16, "steps_per_iteration": 16, "env_backend": "gymnasium",
}  # fmt: skip


def make(env: Any = "CartPole-v1", **options: Any) -> DiscreteSAC:
    """Return a small discrete SAC."""
    return DiscreteSAC(env, **{"seed": 0, **SMALL, **options})


def test_resuming_is_exact() -> None:
    """With the buffer."""
    assert check_resume("discrete_sac", **SMALL, save_replay_buffer=True) is None


@pytest.mark.parametrize("auto_entropy", [True, False])
def test_an_update_equals_the_paper_written_out(auto_entropy: bool) -> None:
    """Eq. 4, 10, 11 and 12 state by state and action by action, each stepped by torch's Adam."""
    options: dict[str, Any] = {"target_entropy": 0.3} if auto_entropy else {"auto_entropy": False}
    sac = make(alpha=0.5, tau=0.1, buffer="prioritized", **options)
    with torch.no_grad():
        for parameter in sac.critic_target.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    generator = torch.Generator().manual_seed(0)
    batch = TransitionBatch(
        obs=torch.randn(5, 4, generator=generator),
        actions=torch.randint(2, (5, 1), generator=generator),
        rewards=torch.randn(5, generator=generator),
        next_obs=torch.randn(5, 4, generator=generator),
        discounts=torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9]),
        weights=torch.rand(5, generator=generator),
    )
    policy, critic, target = (copy.deepcopy(m) for m in (sac.policy, sac.critic, sac.critic_target))
    alpha, q_loss = 0.5, torch.zeros(())
    for b in range(5):
        with torch.no_grad():
            pi = policy(batch.next_obs[b]).softmax(-1)
            q1, q2 = target(batch.next_obs[b : b + 1])[:, 0]
            value = sum(pi[a] * (min(q1[a], q2[a]) - alpha * math.log(pi[a])) for a in range(2))
            y = batch.rewards[b] + batch.discounts[b] * value
        for k in range(2):
            q = critic(batch.obs[b : b + 1])[k, 0, batch.actions[b, 0]]
            q_loss = q_loss + batch.weights[b] * 0.5 * (q - y) ** 2 / 5
    step(critic, q_loss)
    policy_loss, entropy = torch.zeros(()), 0.0
    for b in range(5):
        pi = policy(batch.obs[b]).softmax(-1)
        q1, q2 = critic(batch.obs[b : b + 1])[:, 0].detach()
        for a in range(2):
            policy_loss = policy_loss + pi[a] * (alpha * pi[a].log() - min(q1[a], q2[a])) / 5
            entropy -= float(pi[a].detach() * pi[a].detach().log()) / 5
    log_alpha = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        log_alpha.weight.fill_(math.log(alpha))
    step(policy, policy_loss)
    step(log_alpha, log_alpha.weight.sum() * (entropy - 0.3))
    terms = sac.objective.learn(sac.parts, batch, 1e-2).terms
    assert float(terms["entropy"]) == pytest.approx(entropy, rel=1e-5)
    for ours, theirs in ((sac.policy, policy), (sac.critic, critic)):
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), atol=2e-6, rtol=1e-4)
    expected = float(log_alpha.weight.detach()) if auto_entropy else math.log(alpha)
    assert float(sac.alpha.log_alpha.detach()) == pytest.approx(expected, rel=1e-5)
    for moved, source, start in zip(
        sac.critic_target.parameters(), critic.parameters(), target.parameters(), strict=True
    ):
        torch.testing.assert_close(moved, (0.9 * start + 0.1 * source).detach())


def step(module: nn.Module, loss: Any) -> None:
    """Take one step of torch's own Adam."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    loss.backward()
    optimizer.step()


def test_the_temperature_strives_for_the_target_entropy() -> None:
    """By default 0.98 of the maximum; α rises below the target and falls above it."""
    assert make().objective.target_entropy == pytest.approx(0.98 * math.log(2))
    for target, rises in ((0.69, True), (0.0, False)):
        sac = make(target_entropy=target, learning_starts=16)
        with torch.no_grad():
            list(sac.policy.parameters())[-1].copy_(torch.tensor([1.0, 0.0]))
        sac.train(32)
        assert (float(sac.alpha.value()) > 1.0) is rises


def test_actions_are_samples_of_the_policy() -> None:
    """Frequencies equal the softmax; the mode is the most probable one, in the env's numbering."""
    sac = make()
    with torch.no_grad():
        for parameter in sac.policy.parameters():
            parameter.zero_()
        list(sac.policy.parameters())[-1].copy_(torch.tensor([0.25, 0.75]).log())
    obs = np.zeros((4000, 4), np.float32)
    assert set(sac.predict(obs)) == {1}
    assert sac.predict(obs, deterministic=False).mean() == pytest.approx(0.75, abs=0.03)
    acted = sac._act(torch.from_numpy(obs))
    assert acted.mean() == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"env": "Pendulum-v1"}, SpaceError, "DiscreteSAC needs Discrete actions, got Box.*SAC"),
        ({"auto_entropy": False, "target_entropy": 0.5}, ConfigError, "needs auto_entropy=True"),
        ({"policy": nn.Linear(4, 5)}, ConfigError, r"policy must return \(3, 2\) .* got \(3, 5\)"),
        (
            {"critic": nn.Linear(4, 2)},
            ConfigError,
            r"critic must return \(any, 3, 2\) for 3 observations of Box.*, got \(3, 2\)",
        ),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """The error names the value, the expected ones and the remedy."""
    with pytest.raises(error, match=message):
        make(**options)
