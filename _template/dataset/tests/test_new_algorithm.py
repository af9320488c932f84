"""NewAlgorithm keeps rlox's contract, and learns."""

from typing import Any

import numpy as np
import rlox
import rlox.testing

RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(1_000, 3)).astype(np.float32)
BEST = np.tanh(OBS[:, :1])
"""The action that is paid most."""


def dataset() -> Any:
    """Return random actions, which cost their distance to the best one."""
    actions = RNG.uniform(-1, 1, (1_000, 1)).astype(np.float32)
    rewards = -np.abs(actions - BEST)[:, 0]
    ends = np.arange(1_000) % 10 == 9
    return rlox.OfflineDatasetBuffer(OBS, OBS, actions, rewards, ends, ~ends & ends)


def test_conforms() -> None:
    """On a small dataset."""
    rlox.testing.check_offline_algorithm("new_algorithm", dataset(), hidden=16, batch_size=32)


def test_imitates_what_is_paid() -> None:
    """Its actions are on average far nearer to the best ones than random ones, which are at 0.7."""
    algorithm = rlox.make("new_algorithm", dataset=dataset(), hidden=32, learning_rate=3e-3, seed=0)
    algorithm.train(1_000)
    assert np.abs(algorithm.predict(OBS) - BEST).mean() < 0.2
