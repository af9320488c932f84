"""Action distributions: categorical, Gaussian and joint.

A batch of B actions is B rows. A discrete action that is one number is a row without dimensions,
any other a row of columns; :class:`rlox.spaces.ActionRows` defines the columns.
These are no ``torch.distributions``: those check arguments and build objects for longer than small
networks compute, and draw from torch's global generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Categorical", "DiagonalGaussian", "Distribution", "Joint"]


class Distribution(Protocol):
    """B distributions, one for each observation."""

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (B, ...) and return them with their log-probabilities (B,)."""

    def mode(self) -> Tensor:
        """Return the most probable actions (B, ...)."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log-probabilities (B,) of actions (B, ...)."""

    def entropy(self) -> Tensor:
        """Return the entropies (B,) in nats."""


class Categorical:
    """One choice among n, or K independent ones.

    Masked choices have the probability 0 exactly; they add nothing to the entropy, and no gradient
    flows into their logits (Huang and Ontañón 2022, "A closer look at invalid action masking").

    Args:
        logits: (B, n), or (B, K, n) for actions of K columns.
        mask: bool, broadcastable to the logits: True if a choice is possible, which must hold
            for one of every n at least. ``None`` if all are.
    """

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        if mask is not None:
            logits = logits.masked_fill(~mask, -math.inf)
        self.logits = logits
        self.mask = mask
        self._log_probs = torch.log_softmax(logits, -1)

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (B,) or (B, K) int64 and return them with log-probabilities (B,)."""
        log_probs = self._log_probs
        # argmax(log p - log e), e exponential, is distributed as p: an exponential race
        race = _empty_like(log_probs, generator).exponential_(generator=generator)
        actions = (log_probs - race.log_().to(log_probs.device)).argmax(-1)
        return actions, self._log_prob(actions)

    def mode(self) -> Tensor:
        """Return the most probable actions (B,) or (B, K) int64."""
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities (B,) of whole numbers (B,) or (B, K)."""
        return self._log_prob(actions.long())

    def entropy(self) -> Tensor:
        """Return entropies (B,) in nats."""
        log_probs = self._log_probs
        # 0 log 0 is 0, and its gradient is not to be computed as 0 times infinity
        finite = log_probs if self.mask is None else log_probs.masked_fill(~self.mask, 0.0)
        return _over_columns(-(log_probs.exp() * finite).sum(-1))

    def _log_prob(self, actions: Tensor) -> Tensor:
        return _over_columns(self._log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1))


class DiagonalGaussian:
    """Independent normal distributions; samples know no bounds.

    Args:
        mean: (B, d).
        log_std: (d,) logarithms of the standard deviations.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (B, d) float32 and return them with log-probabilities (B,)."""
        noise = _empty_like(self.mean, generator).normal_(generator=generator)
        noise = noise.to(self.mean.device)
        return self.mean + self.log_std.exp() * noise, self._log_density(noise)

    def mode(self) -> Tensor:
        """Return the means (B, d)."""
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-densities (B,) of actions (B, d)."""
        return self._log_density((actions - self.mean) * torch.exp(-self.log_std))

    def entropy(self) -> Tensor:
        """Return differential entropies (B,) in nats."""
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return entropy.expand(len(self.mean))

    def _log_density(self, standardised: Tensor) -> Tensor:
        """Return log N(a; μ, σ) for (a - μ) / σ, summed over the dimensions."""
        per_dim = -0.5 * standardised.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        return per_dim.sum(-1)


class Joint:
    """Independent distributions side by side, each over columns of its own.

    Args:
        parts: each over actions (B, columns).
        columns: how many columns each part has.
    """

    def __init__(self, parts: Sequence[Distribution], columns: Sequence[int]) -> None:
        self.parts = parts
        self.columns = list(columns)

    def sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (B, all columns) and return them with log-probabilities (B,)."""
        actions, log_probs = zip(*(part.sample(generator) for part in self.parts), strict=True)
        return torch.cat(actions, -1), _total(log_probs)

    def mode(self) -> Tensor:
        """Return the parts' most probable actions (B, all columns)."""
        return torch.cat([part.mode() for part in self.parts], -1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities (B,) of actions (B, all columns)."""
        columns = torch.split(actions, self.columns, -1)
        return _total([p.log_prob(part) for p, part in zip(self.parts, columns, strict=True)])

    def entropy(self) -> Tensor:
        """Return the sums (B,) of the parts' entropies in nats."""
        return _total([part.entropy() for part in self.parts])


def _over_columns(values: Tensor) -> Tensor:
    return values if values.dim() == 1 else values.sum(-1)


def _total(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).sum(0)


def _empty_like(values: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return an empty tensor like ``values`` where ``generator`` draws: one seed, any device."""
    device = values.device if generator is None else generator.device
    return torch.empty_like(values, device=device)
