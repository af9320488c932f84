"""Registers the off-policy algorithms with rlox."""

from collections.abc import Iterable

from rlox.hookspecs import hookimpl
from rlox.specs import AlgorithmSpec


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register DQN."""
    yield AlgorithmSpec(
        name="dqn",
        summary="Deep Q-learning, with double, dueling and prioritized variants.",
        config="rlox_offpolicy.configs:DQNConfig",
        factory="rlox_offpolicy.dqn:DQN",
        paper="https://www.nature.com/articles/nature14236",
    )
