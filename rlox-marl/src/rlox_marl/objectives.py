"""What policies of teams minimise: the clipped surrogate, or that with other value losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.learners import Objective
from rlox.learners.tasks import make_objective
from rlox.losses import (
    ClippedSurrogate,
    PPOTerms,
    evaluate_actions,
    ppo_loss,
    standardize,
)
from torch import Tensor

__all__ = ["TeamSurrogate", "huber", "make_surrogate"]


@dataclass(frozen=True)
class TeamSurrogate:
    """The clipped surrogate of a policy whose critic learns normalised targets.

        loss = -L_CLIP + c_1 mean max(h(V - G), h(clip(V, V_old ± ε_v) - G)) - c_2 mean H

    with h of :func:`huber`, and V, V_old and G normalised by the policy's ``value_norm`` if it has
    one, whose moments take in G first.

    Source:
        Yu et al. 2022, sec. 5.1 and appendix A, and its code.
    """

    surrogate: ClippedSurrogate
    """The numbers that it shares with PPO."""
    huber_delta: float | None = None
    """Where h goes on linearly; ``None``: nowhere."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PPOTerms]:
        """Return the loss of B steps and its terms."""
        numbers = self.surrogate
        advantages, returns, before = minibatch.advantages, minibatch.returns, minibatch.values
        if numbers.normalize_advantages:
            advantages = standardize(advantages)
        norm = getattr(policy, "value_norm", None)
        if norm is not None:
            norm.update(returns)
            returns, before = norm.normalize(returns), norm.normalize(before)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        loss, terms = ppo_loss(
            log_probs,
            entropy,
            values,
            minibatch.log_probs,
            before,
            advantages,
            returns,
            clip_eps=numbers.clip_eps,
            vf_coef=0.0,
            ent_coef=numbers.ent_coef,
            dual_clip=numbers.dual_clip,
        )
        errors = huber(values - returns, self.huber_delta)
        if numbers.vf_clip_eps is not None:
            change = values - before
            bound = numbers.vf_clip_eps
            clipped = huber(before + change.clamp(-bound, bound) - returns, self.huber_delta)
            errors = torch.where(change.abs() > bound, torch.maximum(errors, clipped), errors)
        value_loss = errors.mean()
        return loss + numbers.vf_coef * value_loss, replace(terms, value_loss=value_loss.detach())


def huber(errors: Tensor, delta: float | None) -> Tensor:
    """Return e² if abs(e) ≤ δ, else δ (2 abs(e) - δ).

    Args:
        errors: e.
        delta: δ; ``None`` squares all.

    Source:
        Huber 1964, times 2, so that it is what the value loss is without it.
    """
    squares = errors.square()
    if delta is None:
        return squares
    size = errors.abs()
    return torch.where(size <= delta, squares, delta * (2 * size - delta))


def make_surrogate(config: Any, rates: Mapping[str, float]) -> Objective:
    """Return the clipped surrogate of now, with the options of values if there are any.

    Args:
        config: MAPPO's or IPPO's.
        rates: values of the options that may be schedules.
    """
    surrogate = make_objective(ClippedSurrogate, config, rates)
    if config.normalize_values != "none" or config.huber_delta is not None:
        return TeamSurrogate(surrogate, config.huber_delta)
    return surrogate
