"""Backends that the distribution registers."""

from rlox.registry.families import extra_of
from rlox_simulators.plugin import rlox_env_backends


def test_core_knows_the_extra_of_every_backend() -> None:
    """Without the distribution, an error says how to install it."""
    for spec in rlox_env_backends():
        assert extra_of("rlox_env_backends", spec.name) is not None
