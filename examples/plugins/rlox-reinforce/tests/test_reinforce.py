"""REINFORCE learns."""

import numpy as np
import rlox


def test_solves_the_corridor() -> None:
    """The greedy policy walks right from every cell, which is optimal."""
    algorithm = rlox.make("reinforce", env="Corridor-v0", seed=0)
    algorithm.train(20_000)
    assert algorithm.predict(np.eye(8, dtype=np.float32)[:7]).tolist() == [1] * 7
    result = algorithm.evaluate(n_episodes=64)
    assert (result.lengths <= 7).all()
    assert (result.returns == -result.lengths).all()


def test_improves_on_cartpole() -> None:
    """The mean return of CartPole-v1 rises from about 22 for a random policy to over 100."""
    algorithm = rlox.make("reinforce", env="CartPole-v1", seed=0)
    before = algorithm.train(1)["mean_reward"]
    algorithm.train(40_000)
    assert before < 40
    assert algorithm.evaluate(n_episodes=16).mean_return > 100
