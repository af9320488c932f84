"""Torch devices, thread counts, denormal numbers and random draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rlox.errors import ConfigError

__all__ = ["find_device", "flush_denormals", "standard_normal", "torch_threads", "uniform"]


def find_device(name: str) -> torch.device:
    """Return the torch device called ``name``.

    Raises:
        ConfigError: there is no such device on this machine, or it holds no numbers.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device '{name}' cannot be used: {reason}") from None
    return device


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run the block with ``count`` torch threads; ``None`` keeps torch's setting.

    Two threads on a small network wait for each other longer than they compute.
    """
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Run the block with numbers below 1.2e-38 taken for 0, if the processor can do that.

    The moments of Adam decay to such numbers wherever gradients are 0, as behind idle ReLUs, and a
    processor computes with them many times more slowly. The setting is this thread's.
    """
    denormal = torch.tensor(1e-40)
    if not (denormal * 1).item() or not torch.set_flush_denormal(True):
        yield
        return
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers of the shape and type of ``like``.

    They are drawn where ``generator`` draws: one seed, any device.
    """
    device = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, device=device, dtype=like.dtype)
    return noise.to(like.device)


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers uniform in [-1, 1], drawn on ``generator``'s device."""
    drawn = torch.rand(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    return drawn.mul_(2).sub_(1).to(like.device)
