"""NewAlgorithm keeps rlox's contract, and learns."""

import pytest
import rlox
import rlox.testing


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_conforms(env: str) -> None:
    """With discrete and with continuous actions."""
    assert rlox.testing.check_algorithm("new_algorithm", env=env, n_envs=2, n_steps=16) == {}


def test_balances_the_pole() -> None:
    """The mean return rises from about 22, a random policy's, to over 150."""
    algorithm = rlox.make("new_algorithm", env="CartPole-v1", seed=0)
    algorithm.train(40_000)
    assert algorithm.evaluate(n_episodes=16).mean_return > 150
