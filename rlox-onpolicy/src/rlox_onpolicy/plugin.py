"""Registers the on-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.hookspecs import hookimpl
from rlox.specs import AlgorithmSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register PPO."""
    yield AlgorithmSpec(
        name="ppo",
        summary="Proximal policy optimisation with the clipped surrogate.",
        config="rlox_onpolicy.configs:PPOConfig",
        factory="rlox_onpolicy.ppo:PPO",
        paper="https://arxiv.org/abs/1707.06347",
    )
