"""Registers the multi-agent algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register no algorithm yet."""
    return ()
