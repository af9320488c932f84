"""CrossQ (Bhatt et al. 2024; arXiv 1902.05605, version 4).

Batch renormalization in critics and policy replaces target networks. Each gradient step takes a
batch, and passes it through the critics once, together with its next states and actions:

    [q, q'] = Q([s, s'], [a, a']),  a' ~ π(.|s')                           sec. 3.2, fig. 2
    y       = r + γ (min over k of q'_k - α log π(a'|s'))
    J_Q     = Σ over k of mean ½ (q_k - y)²

where y has no gradient; the joint pass normalises both halves by the statistics of their mixture.
Every ``policy_delay`` steps, SAC's steps of the policy and the temperature follow, with the critics
in evaluation mode:

    J_π = mean α log π(a|s) - min over k of Q_k(s, a),  a ~ π(.|s)
    J_α = -mean log α (log π(a|s) + H̄)

Deviations from the paper:
    1. before ``learning_starts`` actions are uniform (the authors' code);
    2. optional: prioritized replay, n-step targets;
    3. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult, frozen
from rlox.networks.policies import (
    EncodedCritics,
    EncodedPolicy,
    SquashedGaussianPolicy,
    find_encoder,
)
from rlox.nn import FlatOptimizer, Hidden
from rlox.replay.algorithm import Network, ReplayAlgorithm
from rlox.spaces.rows import map_leaves
from torch import Tensor, nn

from rlox_offpolicy.batch_renorm import RenormCritics, RenormMLP
from rlox_offpolicy.configs import CrossQConfig
from rlox_offpolicy.networks import Temperature, critics, draw, kept_entropy, stochastic_policy
from rlox_offpolicy.sac import SACMetrics
from rlox_offpolicy.targets import soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import CrossQArguments, Unpack


@dataclass(frozen=True)
class CrossQObjective(ReplayObjective):
    """Critics without target networks, and SAC's policy and temperature.

    Networks are in evaluation mode, except the one that a step trains.
    """

    target_entropy: float | None
    """Target entropy H̄ of the temperature, in nats; ``None`` fixes the temperature."""
    policy_delay: int = 3
    """Critic steps per step of policy and temperature."""

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the critics' step, and every ``policy_delay``-th time also the policy's."""
        delayed = gradient_step % self.policy_delay
        return ("learn_values",) if delayed else ("learn_values", "learn_policy")

    def learn_values(self, parts: Parts, batch: TransitionBatch, rate: float) -> StepResult:
        """Take a gradient step of the critics."""
        with torch.no_grad():
            next_actions, next_log_probs = draw(parts.policy, batch.next_obs)
        obs = map_leaves(lambda now, then: torch.cat((now, then)), batch.obs, batch.next_obs)
        parts.critic.train()
        q, next_q = parts.critic(obs, torch.cat((batch.actions, next_actions))).chunk(2, -1)
        parts.critic.eval()
        next_values = soft_values(next_q.detach(), next_log_probs, parts.alpha.value())
        errors = q - td_targets(batch.rewards, batch.discounts, next_values)
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = parts.minimize("critic", q_loss, batch, rate)
        return StepResult({"q_loss": q_loss, "q_value": q.detach().mean()}, errors.detach())

    def learn_policy(self, parts: Parts, batch: TransitionBatch, rate: float) -> StepResult:
        """Take a gradient step of policy and temperature."""
        alpha = parts.alpha.value()
        parts.policy.train()
        actions, log_probs = draw(parts.policy, batch.obs)
        parts.policy.eval()
        with frozen(parts.critic):
            values = parts.critic(batch.obs, actions).amin(0)
        policy_loss = (alpha * log_probs - values).mean()
        policy_loss = parts.minimize("policy", policy_loss, batch, rate)

        entropy = -log_probs.detach().mean()
        if self.target_entropy is not None:
            alpha_loss = parts.alpha.log_alpha * (entropy - self.target_entropy)
            parts.minimize("alpha", alpha_loss, batch, rate)
        return StepResult({"policy_loss": policy_loss, "entropy": entropy, "alpha": alpha})

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return samples (N, act_dim) from the policy."""
        return draw(parts.policy, obs)[0]


@final
class CrossQ(ReplayAlgorithm):
    """CrossQ for continuous actions.

    Args:
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.StochasticActor`.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics, normalised over the batch in training mode. ``None`` makes
            two MLPs.
    """

    name = "crossq"
    config_class = CrossQConfig
    metrics_class = SACMetrics
    targets = ()
    arguments = (
        "env_id", "n_envs", "seed", "policy", "critic", "buffer", "logger", "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any, *given: Any, **options: Unpack[CrossQArguments]
        ) -> None: ...

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return policy, critics and temperature."""
        cfg = self.config
        return {
            "policy": stochastic_policy(self._make_policy, space, size, **sizes),
            "critic": critics(self._make_critics, space, size, **sizes),
            "alpha": Network(partial(Temperature, cfg.alpha, cfg.auto_entropy)),
        }

    def _make_policy(self, space: Any, size: int, hidden: Hidden, generator: Any) -> nn.Module:
        encoder, width = find_encoder(space, generator, hidden)
        net = RenormMLP(width, hidden, 2 * size, generator=generator, **self.config.renorm)
        policy = SquashedGaussianPolicy(width, size, net=net, generator=generator)
        return policy if encoder is None else EncodedPolicy(encoder, policy)

    def _make_critics(self, space: Any, size: int, hidden: Hidden, generator: Any) -> nn.Module:
        encoder, width = find_encoder(space, generator, hidden)
        made = RenormCritics(width, size, hidden, generator=generator, **self.config.renorm)
        return made if encoder is None else EncodedCritics(encoder, made)

    def prepare(self, name: str, network: nn.Module) -> None:
        """Set evaluation mode, which the gradient steps leave temporarily."""
        network.eval()

    def make_optimizer(self, name: str, network: nn.Module, **options: Any) -> FlatOptimizer:
        """Return Adam, with ``adam_beta1`` for policy and critics."""
        betas = (0.9 if name == "alpha" else self.config.adam_beta1, 0.999)
        return super().make_optimizer(name, network, betas=betas)

    def make_objective(self, size: int) -> CrossQObjective:
        """Return the objective; the default target entropy is minus the action size."""
        return CrossQObjective(kept_entropy(self.config, -size), self.config.policy_delay)
