"""Torch devices, thread counts, acting, freed memory, denormal numbers and random draws."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from rlox.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT_BLOCK, _KEPT_IN_ALL = 256 << 20, 1 << 30


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

    Two threads on a small network wait for each other longer than they compute. Freed memory is
    kept from now on (:func:`keep_freed_memory`).
    """
    keep_freed_memory()
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
def acting() -> Iterator[None]:
    """Run the block without gradients and with parameters that do not change in it.

    Layers that compute in another precision (:func:`rlox.nn.set_compute_dtype`) convert their
    parameters once, at their first call in the block, instead of at each: a third of a call on a
    few images.
    """
    torch.autocast_increment_nesting()  # its conversions are kept until the outermost block ends
    try:
        with torch.no_grad():
            yield
    finally:
        if not torch.autocast_decrement_nesting():
            torch.clear_autocast_cache()


@cache
def keep_freed_memory() -> bool:
    """Have the process keep up to a GiB that is freed, in blocks of 256 MiB and less.

    By default glibc gives blocks of more than 32 MiB, and what is free at the end of its heap, back
    to the system at once. An update frees and allocates the same arrays again and again, and the
    system then maps and clears every page again: a third of an update of DreamerV3 on images.

    Returns:
        Whether that was set. It is not where the C library is another one, or where the environment
        sets glibc's allocator (``MALLOC_TRIM_THRESHOLD_``, ``MALLOC_MMAP_THRESHOLD_`` or
        ``GLIBC_TUNABLES``).
    """
    given = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    if any(name in os.environ for name in given):
        return False
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or os.name != "posix":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    if not library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK):
        library.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most of older versions
    return bool(library.mallopt(_M_TRIM_THRESHOLD, _KEPT_IN_ALL))


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
