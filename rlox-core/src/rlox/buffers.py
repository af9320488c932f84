"""Replay buffers by name, and what every one of them is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from rlox import kernels
from rlox.errors import ConfigError
from rlox.protocols import ReplayBuffer
from rlox.registry import get_registry
from rlox.specs import BufferSpec, resolve

__all__ = ["BufferOptions", "make_buffer", "prioritized_buffer", "uniform_buffer"]


@dataclass(frozen=True)
class BufferOptions:
    """What an algorithm asks of a replay buffer; a factory takes from it what it has a use for."""

    capacity: int
    """Number of transitions that fit."""
    obs_shape: tuple[int, ...]
    """Of one observation."""
    obs_dtype: str
    """``"float32"``; ``"uint8"`` for images and for the bytes of nested observations, see
    :mod:`rlox.replay_observations`; ``"int64"`` for discrete ones."""
    act_shape: tuple[int, ...]
    """Of one action; (1,) for a discrete one."""
    act_dtype: str
    """``"float32"``, or ``"int64"`` for discrete actions."""
    n_envs: int
    """Rows of every ``push_batch``: row i is env i's."""
    n_step: int
    """Steps of its env that a drawn transition spans, where there are as many."""
    gamma: float
    """Discount γ of a step."""
    priority_alpha: float
    """Exponent α of priorities."""
    seed: int
    """Fixes the buffer's draws."""


def uniform_buffer(options: BufferOptions) -> ReplayBuffer:
    """Return a ``rlox.ReplayBuffer``."""
    made = kernels.backend().ReplayBuffer(
        options.capacity,
        options.obs_shape,
        options.act_shape,
        obs_dtype=options.obs_dtype,
        act_dtype=options.act_dtype,
        n_envs=options.n_envs,
        n_step=options.n_step,
        gamma=options.gamma,
        seed=options.seed,
    )
    return cast("ReplayBuffer", made)


def prioritized_buffer(options: BufferOptions) -> ReplayBuffer:
    """Return a ``rlox.PrioritizedReplayBuffer``."""
    made = kernels.backend().PrioritizedReplayBuffer(
        options.capacity,
        options.obs_shape,
        options.act_shape,
        options.priority_alpha,
        obs_dtype=options.obs_dtype,
        act_dtype=options.act_dtype,
        n_envs=options.n_envs,
        n_step=options.n_step,
        gamma=options.gamma,
        seed=options.seed,
    )
    return cast("ReplayBuffer", made)


def make_buffer(buffer: Any, options: BufferOptions) -> ReplayBuffer:
    """Return a replay buffer.

    Args:
        buffer: a registered name, or a buffer, which is returned as it is.
        options: what the buffer must hold, where it is made here.

    Raises:
        UnknownNameError: no buffer is registered under the name.
        ConfigError: an object has not the methods of :class:`rlox.protocols.ReplayBuffer`.
    """
    if isinstance(buffer, str):
        spec = cast("BufferSpec", get_registry().get("rlox_buffers", buffer).spec)
        buffer = resolve(spec.factory)(options)
    missing = [m for m in ("push_batch", "sample", "__len__") if not hasattr(buffer, m)]
    if missing:
        raise ConfigError(
            "buffer must be a registered name or an object with push_batch, sample and __len__, "
            f"got {type(buffer).__name__} without {', '.join(missing)}"
        )
    return cast("ReplayBuffer", buffer)
