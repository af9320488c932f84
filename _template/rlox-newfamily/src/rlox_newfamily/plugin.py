"""Registers the algorithms with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import AlgorithmSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register NewAlgorithm."""
    yield AlgorithmSpec(
        name="new_algorithm",
        summary="Policy gradient with a learned value function.",
        config="rlox_newfamily.configs:NewAlgorithmConfig",
        factory="rlox_newfamily.new_algorithm:NewAlgorithm",
        needs=("env",),
        paper="http://incompleteideas.net/book/the-book-2nd.html",
    )
