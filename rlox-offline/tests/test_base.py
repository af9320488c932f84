"""Tests of :mod:`rlox_offline.base`, with an algorithm written as documented."""

import numpy as np
import pytest
import torch
from rlox.callbacks import Callback
from rlox.errors import ConfigError
from rlox.kernels.reference import OfflineDatasetBuffer
from rlox_offline.base import OfflineAlgorithm
from rlox_offline.configs import OfflineConfig
from rlox_testing.probes import RowRecorder

N = 40
"""Transitions."""


def recorded():
    """Return a dataset of episodes of 10 steps, with rewards of 1."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(N, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
    last = np.arange(N) % 10 == 9
    return OfflineDatasetBuffer(obs, obs, actions, np.ones(N, np.float32), last, ~last & last)


class RewardMean(OfflineAlgorithm):
    """Learns the mean reward, with the least code."""

    def __init__(self, dataset, *args, **kwargs):
        super().__init__(dataset, *args, **kwargs)
        self.sizes = []
        self.mean = 0.0

    def _update(self, batch):
        self.sizes.append(len(batch.rewards))
        error = batch.rewards.mean() - self.mean
        self.mean += 0.1 * float(error)
        return {"mean": self.mean, "error": error}


class Seen(RowRecorder, Callback):
    """Records a callback's and a logger's arguments."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_step(self, **kwargs):
        """Keep the step."""
        self.steps.append(kwargs["step"])


class Silent(OfflineAlgorithm):
    """Reports nothing, and keeps the number of threads."""

    def _update(self, batch):
        self.threads = torch.get_num_threads()
        return {}


def test_an_update_may_report_nothing():
    """The loop's metrics remain, and the loop sets the number of threads."""
    seen = Seen()
    config = OfflineConfig(batch_size=8, torch_threads=3)
    algorithm = Silent(recorded(), callbacks=[seen], config=config)
    metrics = algorithm.train(n_gradient_steps=3)
    assert algorithm.threads == 3 != torch.get_num_threads()
    assert seen.steps == [1, 2, 3]
    assert list(metrics) == ["gradient_steps_per_second"]


def test_the_published_arguments_and_an_update_suffice():
    """Dataset, batch size, callbacks and logger, in this order; updates may return floats."""
    seen = Seen()
    algorithm = RewardMean(recorded(), 8, [seen], seen)
    metrics = algorithm.train(n_gradient_steps=3)
    assert algorithm.sizes == [8, 8, 8]
    assert seen.steps == [1, 2, 3]
    assert [step for step, _ in seen.rows] == [3]
    # the means of 0.1, 0.19, 0.271 and of 1, 0.9, 0.81
    assert metrics["mean"] == pytest.approx(0.187, rel=1e-6)
    assert metrics["error"] == pytest.approx(2.71 / 3, rel=1e-6)


def test_steps_have_two_names():
    """The other algorithms' name works too, but not both at once."""
    algorithm = RewardMean(recorded(), 8)
    algorithm.train(total_timesteps=2)
    assert algorithm.clock.gradient_steps == 2
    with pytest.raises(TypeError, match=r"are two names of one argument; leave one out$"):
        algorithm.train(1, n_gradient_steps=2)


def test_batch_size_and_config_contradict_each_other():
    """Either gives the batch size, not both."""
    message = r"^batch_size is given as 8, and in config as 256; leave one out$"
    with pytest.raises(ConfigError, match=message):
        RewardMean(recorded(), 8, config=OfflineConfig())
