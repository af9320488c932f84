"""Claims the name "reinforce"; what it refers to is never resolved."""

from collections.abc import Iterable

from rlox import AlgorithmSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register a second "reinforce"."""
    yield AlgorithmSpec(
        name="reinforce",
        summary="Another algorithm under a name that is taken.",
        config="rlox_conflict.config:ReinforceConfig",
        factory="rlox_conflict.reinforce:Reinforce",
    )
