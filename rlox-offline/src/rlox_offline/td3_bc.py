"""TD3+BC (Fujimoto and Gu 2021): TD3 with a behaviour-cloning term.

Each gradient step takes a minibatch (s, a, r, s') and

    a' = clip(π'(s') + clip(ε, -c, c), -1, 1)                        target policy smoothing
    y = r + γ min_i Q'_i(s', a')
    step on  Σ_i mean (Q_i(s, a) - y)²
    every d steps:
        step on  -λ mean Q_1(s, π(s)) + mean (π(s) - a)²,  λ = α / mean |Q_1(s, π(s))|      eq. 5
        Q' ← Q' + τ (Q - Q'),  π' ← π' + τ (π - π')

Deviations from the paper:
    1. actions are learnt in [-1, 1], to which the dataset's bounds are mapped; for bounds of ±1, as
       in all of the paper's tasks, nothing changes;
    2. the dataset decides whether observations are normalised (eq. 6), and normalises them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult, frozen
from rlox.networks import DeterministicPolicy, TwinQNetwork, polyak_update
from rlox.nn import standard_normal
from torch import Tensor, nn

from rlox_offline.base import ActorCriticMetrics, DatasetAlgorithm
from rlox_offline.configs import TD3BCConfig
from rlox_offline.losses import critic_loss, td3_bc_actor_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import TD3BCArguments, Unpack


@dataclass(frozen=True)
class TwinDelayedCloning(ReplayObjective):
    """TD3's critics, and its policy with a behaviour-cloning term."""

    alpha: float = 2.5
    """Weight α of the normalised value relative to cloning (eq. 5)."""
    target_noise: float = 0.2
    """Standard deviation of the noise ε on the target actions, which lie in [-1, 1]."""
    noise_clip: float = 0.5
    """Bound c of that noise."""
    tau: float = 0.005
    """Share of the networks in each update of their targets."""
    policy_delay: int = 2
    """Critic steps d per step of the policy and the targets."""

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the critics' step, and every d-th time also the policy's."""
        delayed = gradient_step % self.policy_delay
        return ("learn_values",) if delayed else ("learn_values", "learn_policy")

    def learn_values(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the critics."""
        q = parts.critic(batch.obs, batch.actions)
        q_loss = critic_loss(q, self.bellman_targets(parts, batch))
        q_loss = parts.minimize("critic", q_loss, batch, learning_rate)
        return StepResult({"q_loss": q_loss, "q_value": q.detach().mean()})

    @torch.no_grad()
    def bellman_targets(self, parts: Parts, batch: TransitionBatch) -> Tensor:
        """Return the critics' targets y, (B,)."""
        noise = standard_normal(batch.actions, parts.stream("target noise")) * self.target_noise
        noise = noise.clamp(-self.noise_clip, self.noise_clip)
        next_actions = (parts.policy_target(batch.next_obs) + noise).clamp(-1, 1)
        next_values = parts.critic_target(batch.next_obs, next_actions).amin(0)
        return batch.rewards + batch.discounts * next_values  # type: ignore[no-any-return]

    def learn_policy(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the policy, and move the target networks."""
        with frozen(parts.critic):
            actions = parts.policy(batch.obs)
            values = parts.critic(batch.obs, actions)[0]
        loss = td3_bc_actor_loss(values, actions, batch.actions, self.alpha)
        loss = parts.minimize("policy", loss, batch, learning_rate)
        polyak_update(parts.policy, parts.policy_target, self.tau)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        return StepResult({"policy_loss": loss})


@final
class TD3BC(DatasetAlgorithm):
    """TD3 with behaviour cloning, for continuous actions."""

    name = "td3_bc"
    config_class = TD3BCConfig
    metrics_class = ActorCriticMetrics
    objective_class = TwinDelayedCloning
    targets = ("policy", "critic")
    arguments = ("dataset", "obs_dim", "act_dim")
    if TYPE_CHECKING:

        def __init__(self, *_: Any, env: Any = None, **options: Unpack[TD3BCArguments]) -> None: ...

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the policy and two critics."""
        return {
            "policy": DeterministicPolicy(obs_dim, act_dim, **options),
            "critic": TwinQNetwork(obs_dim, act_dim, **options),
        }

    def stream(self, name: str) -> torch.Generator:
        """Return the source of the target noise."""
        return self.streams.torch("noise")
