"""Completions of one iteration of GRPO with their rewards, advantages and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rlox.config.composition import selection
from torch import Tensor

from rlox_llm.configs import GRPOConfig
from rlox_llm.losses import PolicyTerms, grpo_loss
from rlox_llm.models import CausalModel
from rlox_llm.sampling import Completions

__all__ = ["GRPORollout", "logps_in_parts", "loss_of_part"]


@dataclass(frozen=True)
class GRPORollout:
    """Completions of one iteration with what was made of them."""

    completions: Completions
    rewards: np.ndarray[Any, np.dtype[np.float64]]
    """(N,), NaN for completions that no reward function rewards."""
    advantages: Tensor
    """(N,)"""
    mask: Tensor
    """(N, T) True at the tokens that the loss counts."""
    ref_logps: Tensor | None
    """(N, T)"""
    old_logps: Tensor | None
    """(N, T); ``None`` if one gradient step learns from all, so that every ratio is 1."""
    engine_ratio: Tensor | None
    """(N,) probability of each completion by that of the engine that sampled it, 0 beyond
    ``engine_ratio_max``; ``None`` if this process sampled."""

    def select(self, index: Tensor) -> GRPORollout:
        """Return the completions of the given places."""

        def at(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[index]

        return GRPORollout(
            self.completions.select(index), self.rewards[index.cpu().numpy()],
            self.advantages[index], self.mask[index], at(self.ref_logps), at(self.old_logps),
            at(self.engine_ratio),
        )  # fmt: skip


def loss_of_part(
    rollout: GRPORollout,
    part: slice,
    logps: Tensor,
    config: GRPOConfig,
    *,
    num_tokens: Tensor,
    num_completions: int,
) -> tuple[Tensor, PolicyTerms]:
    """Return the loss of some completions of a rollout; those of all parts add up to the whole's.

    Args:
        rollout: the rollout.
        part: places of the completions.
        logps: (B, T) their log-probabilities, with gradient.
        config: of GRPO.
        num_tokens: tokens that the loss counts in all of the rollout.
        num_completions: completions of all of the rollout.
    """

    def at(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[part]

    return grpo_loss(
        logps,
        at(rollout.old_logps),
        at(rollout.ref_logps),
        rollout.advantages[part],
        rollout.mask[part],
        loss_type=config.loss_type,
        importance_sampling_level=config.importance_sampling_level,
        epsilon=config.epsilon,
        epsilon_high=config.epsilon_high,
        delta=config.delta,
        beta=config.kl_coef,
        kl_estimator=config.kl_estimator,
        use_bias_correction_kl=config.use_bias_correction_kl,
        max_completion_length=config.max_new_tokens,
        num_tokens=num_tokens,
        num_completions=num_completions,
        engine_ratio=at(rollout.engine_ratio),
        options=selection(config, "loss_type").options,
    )


@torch.no_grad()
def logps_in_parts(
    model: CausalModel, done: Completions, temperature: float, parts: Sequence[slice]
) -> Tensor:
    """Return the log-probabilities (N, T) of completions, without gradient and dropout.

    Args:
        model: the policy or the reference.
        done: N completions.
        temperature: what logits are divided by.
        parts: places of the completions of one forward pass each.
    """
    with model.mode(training=False):
        found = [
            model.logps(done.prompts[part], done.tokens[part], done.mask[part], temperature)
            for part in parts
        ]
    return torch.cat(found)
