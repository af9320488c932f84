"""Registers the algorithm with rlox."""

from collections.abc import Iterable

from rlox import AlgorithmSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register soft Q-learning."""
    yield AlgorithmSpec(
        name="soft_q",
        summary="Q-learning towards soft values, with a policy that samples by them.",
        config="rlox_soft_q.configs:SoftQConfig",
        factory="rlox_soft_q.soft_q:SoftQ",
        paper="https://arxiv.org/abs/1702.08165",
    )
