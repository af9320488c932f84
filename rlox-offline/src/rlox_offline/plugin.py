"""Registers the offline algorithms with rlox."""

from collections.abc import Iterable

from rlox.hookspecs import hookimpl
from rlox.specs import AlgorithmSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register BC."""
    yield AlgorithmSpec(
        name="bc",
        summary="Behavioural cloning: supervised learning of a dataset's actions.",
        config="rlox_offline.configs:BCConfig",
        factory="rlox_offline.bc:BC",
        paper="https://papers.nips.cc/paper/95-alvinn-an-autonomous-land-vehicle-in-a-neural-network",
        needs=("dataset",),
    )
