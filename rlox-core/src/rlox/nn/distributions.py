"""Action distributions: categorical, Gaussian and joint; heads that make them.

A batch of B actions is B rows. The action of a ``Discrete`` is a row without dimensions, any other
action a row of columns; :class:`rlox.spaces.ActionRows` defines the columns.
They replace ``torch.distributions``, which draws from torch's global generator, and whose checks
and objects take longer than the computations of small networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.nn.layer_data import LayerData, mode
from rlox.spaces.rows import ActionLeaf, ActionRows


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

    Masked choices have probability exactly 0; they add nothing to the entropy, and no gradient
    flows into their logits (Huang and Ontañón 2022, "A closer look at invalid action masking").

    Args:
        logits: (B, n), or (B, K, n) for actions of K columns.
        mask: bool, broadcastable to the logits: True if a choice is allowed, as at least one of
            every n must be. ``None`` allows all.
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
        # 0 log 0 is 0, and its gradient must not be computed as 0 times infinity
        finite = log_probs if self.mask is None else log_probs.masked_fill(~self.mask, 0.0)
        return _over_columns(-(log_probs.exp() * finite).sum(-1))

    def _log_prob(self, actions: Tensor) -> Tensor:
        return _over_columns(self._log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1))


class DiagonalGaussian:
    """Independent normal distributions; samples are not bounded.

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
    """Independent distributions side by side, each over its own columns.

    Args:
        parts: each over actions (B, columns).
        columns: number of columns of each part.
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
    """Return an empty tensor like ``values`` on the generator's device."""
    device = values.device if generator is None else generator.device
    return torch.empty_like(values, device=device)


class ActionHead(nn.Module):
    """Turns (B, output_size) outputs into B distributions of action rows.

    Each number of a ``Discrete`` or ``MultiDiscrete`` has one logit per choice, of a
    ``MultiBinary`` one logit, of a ``Box`` a mean and a parameter :attr:`log_std` that does not
    depend on the observation. All numbers are independent given the observation.

    Args:
        action_space: see :class:`rlox.spaces.ActionRows` for the form of rows and masks.
        log_std: initial log standard deviation of the numbers of a ``Box``.

    Raises:
        SpaceError: the space has a leaf of another kind.
    """

    def __init__(self, action_space: gymnasium.Space[Any], *, log_std: float = 0.0) -> None:
        super().__init__()
        self.action_space = action_space
        rows = ActionRows(action_space)
        self.parts = nn.ModuleList(_part(leaf, log_std) for leaf in rows.leaves)
        self.output_sizes = [int(part.output_size) for part in self.parts]  # type: ignore[arg-type]
        self.output_size = sum(self.output_sizes)
        """Number of outputs that the head needs."""
        self._mask_sizes = [sum(leaf.sizes) for leaf in rows.leaves]
        self._columns = [leaf.columns for leaf in rows.leaves]
        # only this space's actions are rows without columns
        self._plain = isinstance(action_space, spaces.Discrete)

    def forward(self, outputs: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions.

        Args:
            outputs: (B, output_size).
            action_masks: (B, mask_size) bool, True if a choice is allowed; ``None`` allows all.
        """
        if self._plain:
            return Categorical(outputs, action_masks)
        masks = (
            [None] * len(self.parts)
            if action_masks is None
            else torch.split(action_masks, self._mask_sizes, -1)
        )
        split = torch.split(outputs, self.output_sizes, -1)
        parts = [part(o, m) for part, o, m in zip(self.parts, split, masks, strict=True)]
        return parts[0] if len(parts) == 1 else Joint(parts, self._columns)

    def layer_data(self) -> LayerData:
        """Describe the modes of the distributions; see :mod:`rlox.nn.layer_data`."""
        return mode(self.action_space)


def _part(leaf: ActionLeaf, log_std: float) -> nn.Module:
    if isinstance(leaf.space, spaces.Box):
        return _Gaussian(leaf.columns, log_std)
    if isinstance(leaf.space, spaces.MultiBinary):
        return _Bernoulli(leaf.columns)
    return _Choices(leaf.sizes)


class _Choices(nn.Module):
    """Columns with one logit per choice; those with fewer choices are padded and masked."""

    exists: Tensor
    index: Tensor

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.output_size = sum(sizes)
        widest = max(sizes)
        choice = torch.arange(widest).expand(len(sizes), widest)
        counts = torch.tensor(sizes).unsqueeze(1)
        self.register_buffer("exists", choice < counts, persistent=False)
        starts = counts.cumsum(0) - counts
        self.register_buffer("index", starts + choice.minimum(counts - 1), persistent=False)
        self.padded = min(sizes) < widest

    def forward(self, outputs: Tensor, masks: Tensor | None) -> Categorical:
        logits = outputs[:, self.index]
        if masks is not None:
            return Categorical(logits, masks[:, self.index] & self.exists)
        return Categorical(logits, self.exists if self.padded else None)


class _Bernoulli(nn.Module):
    """Columns of 0 or 1 with one logit each, for the value 1."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.output_size = columns

    def forward(self, outputs: Tensor, masks: Tensor | None) -> Categorical:
        logits = torch.stack((torch.zeros_like(outputs), outputs), -1)
        return Categorical(logits, None if masks is None else masks.view(logits.shape))


class _Gaussian(nn.Module):
    """Columns of real numbers."""

    def __init__(self, columns: int, log_std: float) -> None:
        super().__init__()
        self.output_size = columns
        self.log_std = nn.Parameter(torch.full((columns,), log_std))

    def forward(self, outputs: Tensor, masks: Tensor | None) -> DiagonalGaussian:
        return DiagonalGaussian(outputs, self.log_std)
