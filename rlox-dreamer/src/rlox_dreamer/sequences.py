"""Rows of replayed streams, and batches of sequences of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.spaces.rows import ObservationRows
from torch import Tensor

__all__ = ["OBS", "Acted", "SequenceBatch", "row_fields"]

Array = npt.NDArray[Any]

OBS = "obs"
"""Prefix of the fields that hold an observation's leaves."""


@dataclass(frozen=True)
class Acted:
    """What the policy did at N observations."""

    deter: Array
    """(N, D) float32."""
    stoch: Array
    """(N, S) classes."""
    actions: Array
    """(N, A) float32 as the model sees them."""
    env_actions: Any
    """N actions as the envs take them."""


@dataclass(frozen=True)
class SequenceBatch:
    """T consecutive rows of B streams, time-major, and the states before them."""

    obs: Any
    """(T, B, *shape) by leaf name."""
    actions: Tensor
    """(T, B, A) that led to the observations."""
    rewards: Tensor
    """(T, B) that they paid."""
    is_first: Tensor
    """(T, B) bool."""
    is_last: Tensor
    """(T, B) bool, also where the next row begins an episode."""
    is_terminal: Tensor
    """(T, B) bool, whether the task ended."""
    context_deter: Tensor
    """(B, D) state after the row before."""
    context_stoch: Tensor
    """(B, S) classes of it."""
    indices: Array
    """(B, T) of the rows."""


def row_fields(
    space: Any, action_size: int, deter: int, stoch: int, classes: int
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape and dtype of the fields of a row."""
    empty = ObservationRows(space).empty(1)
    leaves = empty if isinstance(empty, dict) else {"": empty}
    index = np.uint8 if classes <= 256 else np.int16
    return {
        **{f"{OBS}{name}": (leaf.shape[1:], leaf.dtype) for name, leaf in leaves.items()},
        "action": ((action_size,), np.float32),
        "reward": ((), np.float32),
        "is_first": ((), np.bool_),
        "is_last": ((), np.bool_),
        "is_terminal": ((), np.bool_),
        "deter": ((deter,), np.float32),
        "stoch": ((stoch,), index),
    }
