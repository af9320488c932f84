"""Where torch computes: its threads as a resource, and devices by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rlox.errors import ConfigError

__all__ = ["find_device", "torch_threads"]


def find_device(name: str) -> torch.device:
    """Return the torch device called ``name``.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device '{name}' cannot be used: {reason}") from None
    return device


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run the block with ``count`` torch threads; none leaves torch's setting.

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
