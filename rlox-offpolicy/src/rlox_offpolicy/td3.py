"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, algorithm 1).

Each gradient step takes a batch from the replay buffer and, with ε ~ clip(N(0, σ²), -c, c),

    a'   = clip(μ'(s') + ε, -1, 1)                                         eq. 14
    y    = r + γ min over k of Q'_k(s', a')                                eq. 10
    J_Q  = Σ over k of mean (Q_k(s, a_data) - y)²

and every d-th gradient step also steps up the gradient of mean Q_1(s, μ(s)) and then moves the
target networks μ' and Q' towards μ and Q. γ is 0 where the task ended.

DDPG (Lillicrap et al. 2016) is the same with one critic, d = 1 and no ε.

Deviations from the paper:
    1. a' is clipped to the action space (the authors' code);
    2. optional: Ornstein-Uhlenbeck noise, prioritized replay, n-step targets;
    3. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult, frozen
from rlox.networks import polyak_update
from rlox.networks.policies import make_critics, make_deterministic_policy
from rlox.networks.validate import B
from rlox.nn import standard_normal
from rlox.replay.algorithm import Network, Outputs, ReplayAlgorithm, ReplayMetrics
from torch import Tensor

from rlox_offpolicy.configs import TD3Config
from rlox_offpolicy.networks import critics
from rlox_offpolicy.targets import clipped_double_values, smoothed_actions, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import TD3Arguments, Unpack


@dataclass(frozen=True, kw_only=True)
class TD3Metrics(ReplayMetrics):
    """Metrics of TD3 and DDPG."""

    policy_loss: float


@dataclass(frozen=True)
class TwinDelayed(ReplayObjective):
    """TD3's critics and policy; DDPG's if there is one critic, no target noise and no delay."""

    target_noise: float = 0.2
    """Standard deviation σ of the noise on the target actions, which lie in [-1, 1]; 0 adds none
    (sec. 5.3)."""
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

    def learn_values(self, parts: Parts, batch: TransitionBatch, rate: float) -> StepResult:
        """Take a gradient step of the critics."""
        with torch.no_grad():
            next_actions = mu(parts.policy_target, batch.next_obs)
            if self.target_noise > 0:
                noise = standard_normal(next_actions, parts.stream("target noise"))
                noise.mul_(self.target_noise)
                next_actions = smoothed_actions(next_actions, noise, self.noise_clip)
            next_values = clipped_double_values(parts.critic_target(batch.next_obs, next_actions))
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        q = parts.critic(batch.obs, batch.actions)
        errors = q - targets
        q_loss = (batch.weights * errors.square()).mean(-1).sum()
        q_loss = parts.minimize("critic", q_loss, batch, rate)
        return StepResult({"q_loss": q_loss, "q_value": q.detach().mean()}, errors.detach())

    def learn_policy(self, parts: Parts, batch: TransitionBatch, rate: float) -> StepResult:
        """Take a gradient step of the policy, and move the target networks."""
        with frozen(parts.critic):
            values = parts.critic(batch.obs, mu(parts.policy, batch.obs))[0]
        policy_loss = parts.minimize("policy", -values.mean(), batch, rate)
        polyak_update(parts.policy, parts.policy_target, self.tau)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        return StepResult({"policy_loss": policy_loss})

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return μ(s), before exploration noise."""
        return mu(parts.policy, obs)


def mu(policy: Any, obs: Any) -> Tensor:
    """Return a policy's actions (N, act_dim), from its ``deterministic`` or by calling it."""
    return getattr(policy, "deterministic", policy)(obs)  # type: ignore[no-any-return]


def deterministic_networks(
    space: Any, act_dim: int, *, n_critics: int, **sizes: Any
) -> dict[str, Network]:
    """Return a deterministic policy and critics."""
    outputs = Outputs(((B, act_dim),), ("deterministic", "__call__"))
    return {
        "policy": Network(partial(make_deterministic_policy, space, act_dim, **sizes), (outputs,)),
        "critic": critics(make_critics, space, act_dim, n_critics=n_critics, **sizes),
    }


@final
class TD3(ReplayAlgorithm):
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Args:
        policy: a ``torch.nn.Module`` as :class:`rlox.protocols.DeterministicActor`.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics. ``None`` makes two MLPs.
        exploration: ``"gaussian"``, ``"ornstein-uhlenbeck"``, ``"none"``, or an object.
    """

    name = "td3"
    config_class = TD3Config
    metrics_class = TD3Metrics
    objective_class = TwinDelayed
    targets = ("policy", "critic")
    arguments = (
        "env_id", "n_envs", "seed", "policy", "critic", "buffer", "exploration", "logger",
        "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[TD3Arguments]) -> None: ...

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return the policy and two critics."""
        return deterministic_networks(space, size, n_critics=2, **sizes)
