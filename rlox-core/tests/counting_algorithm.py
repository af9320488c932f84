"""An algorithm that counts instead of learning, to test what is around algorithms without torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np
from counting_config import CountingConfig
from rlox.algorithm import Algorithm
from rlox.config.model import UNSET, Config, resolve_config


@dataclass(frozen=True)
class CountingMetrics:
    """What one iteration reports."""

    mean_reward: float
    """Number of iterations so far, so that later models count as better."""
    noise: float
    """The iteration's random draw."""


@final
class CountingAlgorithm(Algorithm):
    """Reports ``n_steps`` vector steps and ``n_updates`` updates an iteration, and draws a number.

    Args:
        env_id: where it is evaluated; it is not trained on.
        n_envs: env steps in a vector step.
        seed: fixes the draws.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`CountingConfig`, a mapping, or a path.
        config_kwargs: options, which win over ``config``.
    """

    name: ClassVar[str] = "counting"
    config_class: ClassVar[type[Config]] = CountingConfig

    def __init__(
        self,
        env_id,
        n_envs=UNSET,
        seed=UNSET,
        logger=None,
        callbacks=None,
        *,
        config=None,
        **config_kwargs,
    ):
        resolved = resolve_config(CountingConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        self.draws = np.zeros(0)
        """Every iteration's random draw."""
        self.fail_at = None
        """Iteration that raises instead of finishing."""

    def iterate(self, hooks):
        """Report steps and updates without taking any."""
        if self.fail_at == self.clock.iterations:
            raise ArithmeticError("asked to fail")
        self._wait_while_held()
        for _ in range(self.config.n_steps):
            hooks.env_step(self.config.n_envs)
        hooks.rollout_end("batch")
        draw = self.streams.numpy("draws").random()
        for _ in range(self.config.n_updates):
            hooks.train_batch(lambda: {"loss": draw})
        self.draws = np.append(self.draws, draw)
        return CountingMetrics(mean_reward=float(len(self.draws)), noise=draw)

    def _wait_while_held(self):
        """Wait while the file ``hold`` names no more env steps than there are, or for a signal.

        So that a training in another process is under way for as long as a test needs it to be.
        """
        interruptions = [each for each in self.callbacks.callbacks if hasattr(each, "signal")]
        while not any(each.signal is not None for each in interruptions):
            try:
                held_at = int(Path("hold").read_text(encoding="utf-8") or "0")
            except FileNotFoundError:
                return
            if self.clock.env_steps < held_at:
                return
            time.sleep(0.01)

    def predict(self, obs, deterministic=True):
        """Return action 0 for one observation vector, or zeros for a batch."""
        array = np.asarray(obs)
        return 0 if array.ndim == 1 else np.zeros(len(array), np.int64)

    def state_dict(self):
        """Return the draws."""
        return {"draws": self.draws.copy()}

    def load_state_dict(self, state):
        """Restore the draws."""
        self.draws = np.array(state["draws"], np.float64)


class CountingDataset(CountingAlgorithm):
    """The same, with a dataset in the place of an env."""

    def __init__(self, dataset, **arguments):
        super().__init__(dataset, **arguments)
