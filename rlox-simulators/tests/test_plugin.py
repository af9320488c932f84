"""What the distribution registers."""

from rlox.families import ENV_BACKENDS
from rlox_simulators.plugin import rlox_env_backends


def test_core_knows_the_extra_of_every_backend() -> None:
    """Where the distribution is not installed, asking for one says how to install it."""
    assert {spec.name for spec in rlox_env_backends()} == set(ENV_BACKENDS)
