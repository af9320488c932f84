"""What rlox asks of every plugin, and what this one shows of its own."""

import pytest
import rlox
import rlox.testing

SMALL = {"n_envs": 4, "n_steps": 32}


@pytest.mark.parametrize("env", ["Corridor-v0", "CartPole-v1", "Pendulum-v1"])
def test_reinforce_conforms(env: str) -> None:
    """REINFORCE keeps rlox's contract with a plugin's, a discrete and a continuous env."""
    assert rlox.testing.check_algorithm("reinforce", env=env, **SMALL) == {}


def test_corridor_conforms() -> None:
    """The corridor keeps the contract of a vector env with a state that can be saved."""
    assert rlox.testing.check_env_backend("corridor", "Corridor-v0") == {}


def test_markdown_logger_conforms() -> None:
    """The Markdown logger takes every row of a training."""
    rlox.testing.check_logger("markdown")
