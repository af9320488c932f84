"""Action heads: network outputs as action distributions."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.nn.distributions import Categorical, DiagonalGaussian, Distribution, Joint
from rlox.nn.layer_data import LayerData, mode
from rlox.spaces.rows import ActionLeaf, ActionRows

__all__ = ["ActionHead"]


class ActionHead(nn.Module):
    """Turns (B, output_size) outputs into B distributions of action rows.

    Numbers of a ``Discrete`` or ``MultiDiscrete`` have one logit per choice, those of a
    ``MultiBinary`` one logit each, those of a ``Box`` a mean and a parameter :attr:`log_std` that
    depends on no observation. All numbers are independent given the observation.

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
        """Number of outputs the head needs."""
        self._mask_sizes = [leaf.mask_size for leaf in rows.leaves]
        self._columns = [leaf.columns for leaf in rows.leaves]
        # the one space whose actions are rows without columns
        self._plain = isinstance(action_space, spaces.Discrete)

    def forward(self, outputs: Tensor, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions.

        Args:
            outputs: (B, output_size).
            action_masks: (B, mask_size) bool, True if a choice is possible; ``None`` if all are.
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
    """Columns of 0 or 1 with one logit each, that of 1."""

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
