"""Replay buffers of sequences by name, and their options."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rlox import kernels
from rlox.errors import ConfigError
from rlox.files import require_memory_for
from rlox.protocols import SequenceBuffer
from rlox.registry.table import get_registry

__all__ = ["SequenceOptions", "make_sequence_buffer", "sequence_buffer"]


@dataclass(frozen=True)
class SequenceOptions:
    """What an algorithm asks of a replay buffer of sequences."""

    capacity: int
    """Rows that fit, of all streams together."""
    fields: Mapping[str, tuple[Sequence[int], npt.DTypeLike]]
    """Shape and dtype of a row's fields by name."""
    n_envs: int
    """Number of streams."""
    seed: int
    """Fixes the buffer's draws."""
    declared: tuple[str, ...] = ()
    """The fields that are written back."""
    online_length: int | None = None
    """Rows of sequences that are drawn once, when they are new, before any other; ``None`` draws
    uniformly only."""


def sequence_buffer(asked: SequenceOptions) -> SequenceBuffer:
    """Return a ``rlox.SequenceReplayBuffer``."""
    made = kernels.backend().SequenceReplayBuffer(**vars(asked))
    return cast("SequenceBuffer", made)


def make_sequence_buffer(
    buffer: str, asked: SequenceOptions, options: Any = None
) -> SequenceBuffer:
    """Return a new buffer.

    Args:
        buffer: a registered name.
        asked: what the buffer must hold.
        options: an instance of the model of its own options; ``None`` takes their defaults.

    Raises:
        UnknownNameError: no buffer is registered under the name.
        ConfigError: the buffer stores transitions, or lacks a method of
            :class:`rlox.protocols.SequenceBuffer`.
        MemoryLimitError: the rows take more memory than there is.
    """
    registration = get_registry().get("rlox_buffers", buffer)
    if not registration.spec.sequences:
        raise ConfigError(
            f"buffer '{buffer}' stores transitions, and this algorithm draws sequences of rows; "
            "take buffer='sequence'"
        )
    row = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in asked.fields.values())
    require_memory_for("buffer_size", asked.capacity, asked.capacity * row, "keep fewer rows")
    made = registration.build(asked, options=options)
    if not isinstance(made, SequenceBuffer):
        raise ConfigError(
            f"buffer '{buffer}' must have the methods of rlox.protocols.SequenceBuffer, got "
            f"{type(made).__name__}"
        )
    return made
