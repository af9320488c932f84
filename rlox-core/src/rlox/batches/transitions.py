"""Batches of transitions drawn from a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rlox.spaces.nested import map_leaves

__all__ = ["TransitionBatch"]

ALL_ALIKE = np.ones((), np.float32)
"""The weights of transitions that have none; to copy, which takes a tenth of what ``ones`` does."""


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions drawn from a replay buffer: tensors, or arrays for a learner that takes them.

    See :attr:`rlox.learners.transitions.ChosenReplayLearner.takes_arrays`.
    """

    obs: Any
    """(B, *shape) float32, uint8 for images or int64 for whole numbers; of a nested space a dict of
    such tensors by leaf name."""
    actions: Tensor
    """(B, 1) int64, or (B, act_dim) float32 in [-1, 1]."""
    rewards: Tensor
    """(B,) rewards; after k steps Σ γⁱ r_i."""
    next_obs: Any
    """In the form of ``obs``: what the last of the k steps led to, never another episode's."""
    discounts: Tensor
    """(B,) what the value of ``next_obs`` counts: γᵏ, and 0 if the task ended."""
    weights: Tensor
    """(B,) of the transitions' losses; or (), 1, if all count alike."""
    returns_to_go: Tensor | None = None
    """(B,) discounted returns that the recorded episodes reached from ``obs`` on; ``None`` if
    the algorithm does not ask for them."""
    indices: npt.NDArray[Any] | None = None
    """(B,) where the transitions lie in the buffer, for new priorities; ``None`` if it does not
    say."""

    @staticmethod
    def of(
        drawn: Mapping[str, npt.NDArray[Any]],
        unpack: Callable[[npt.NDArray[Any]], Any],
        gamma: float,
        tensor: Callable[[npt.NDArray[Any]], Tensor] | None,
    ) -> TransitionBatch:
        """Return what a replay buffer's ``sample`` returned.

        Args:
            drawn: see :meth:`rlox.protocols.ReplayBuffer.sample`.
            unpack: from rows to observations.
            gamma: discount γ of transitions that bring none.
            tensor: from an array to a tensor on the device; ``None`` leaves the arrays.
        """
        discounts = drawn.get("discounts")
        if discounts is None:
            discounts = np.multiply(~drawn["terminated"], gamma, dtype=np.float32)
        weights = drawn.get("weights")
        fields: dict[str, Any] = {
            "obs": unpack(drawn["obs"]),
            "actions": drawn["actions"],
            "rewards": drawn["rewards"],
            "next_obs": unpack(drawn["next_obs"]),
            "discounts": discounts,
            "weights": ALL_ALIKE.copy() if weights is None else weights,
        }
        if tensor is not None:
            fields = {name: map_leaves(tensor, field) for name, field in fields.items()}
        return TransitionBatch(**fields, indices=drawn.get("indices"))
