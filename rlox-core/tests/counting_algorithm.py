"""An algorithm that counts instead of learning, to test what is around algorithms without torch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
from counting_config import CountingConfig
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.logging import LoggerCallback
from rlox.training.hooks import Hooks


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
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: CountingConfig | Mapping[str, Any] | str | Path | None = None,
        **config_kwargs: Any,
    ) -> None:
        resolved = resolve_config(CountingConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        self.draws = np.zeros(0)
        """Every iteration's random draw."""
        self.fail_at: int | None = None
        """Iteration that raises instead of finishing."""

    def iterate(self, hooks: Hooks) -> CountingMetrics:
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

    def _wait_while_held(self) -> None:
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

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return action 0 for one observation vector, or zeros for a batch."""
        array = np.asarray(obs)
        return 0 if array.ndim == 1 else np.zeros(len(array), np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Return the draws."""
        return {"draws": self.draws.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the draws."""
        self.draws = np.array(state["draws"], np.float64)


class CountingDataset(CountingAlgorithm):
    """The same, with a dataset in the place of an env."""

    def __init__(self, dataset: Any, **arguments: Any) -> None:
        super().__init__(dataset, **arguments)
