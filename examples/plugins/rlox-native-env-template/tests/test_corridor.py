"""What rlox asks of every env backend, and what this env is."""

import numpy as np
import pytest
import rlox
import rlox.testing
from rlox.envs.make import make_vec_env

ENV_ID = "NativeCorridor-v0"


def test_the_backend_conforms() -> None:
    """Shapes, seeds, same-step autoreset, and a state to resume from exactly."""
    assert rlox.testing.check_env_backend("native-template", ENV_ID) == {}


def test_the_way_out_is_to_the_right() -> None:
    """Ten steps right leave the corridor, within the time limit that a step left runs into."""
    env = make_vec_env(ENV_ID, n_envs=2)
    obs = env.reset_all(0)
    assert ((obs >= 0) & (obs < 1)).all()
    for t in range(50):
        step = env.step_all(np.array([1, 0]))
        assert (step["rewards"] == -1).all()
        assert step["terminated"].tolist() == [t % 10 == 9 or (step["final_obs"][0] > 10), False]
        assert step["truncated"].tolist() == [False, t == 49]


def test_an_action_that_is_none_is_refused() -> None:
    """The checks around the env are rlox's."""
    env = make_vec_env(ENV_ID, n_envs=1)
    env.reset_all(0)
    with pytest.raises(ValueError, match=r"actions\[0\] must lie in \[0, 1\], got 2"):
        env.step_all(np.array([2]))


def test_ppo_learns_it() -> None:
    """An algorithm finds the env by its id, and learns to walk right: about 10 steps."""
    algorithm = rlox.make("ppo", env=ENV_ID, n_steps=64, batch_size=128, seed=0)
    algorithm.train(10_240)
    assert algorithm.evaluate(n_episodes=8).mean_return > -13
