"""PPO with rollouts collected in Rust by candle.

The algorithm is :mod:`rlox_onpolicy.ppo`; only the collector differs. By default the collecting
thread rests while torch learns, so every batch comes from the newest weights. With ``overlap``
it collects the next rollout meanwhile, so that from the second iteration on

    1. batches come from the weights of one iteration before; PPO's ratio accounts for that as for
       its own epochs, because its denominator is the policy that acted.

Checkpoints resume exactly by default; with ``overlap`` a resumed training begins new episodes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from rlox.batches.rollout import RolloutBatch
from rlox.errors import ConfigError
from rlox.losses import ClippedSurrogate
from rlox.nn import Layers
from rlox.rollouts import RolloutAlgorithm
from rlox.training.hooks import Hooks

from rlox_onpolicy.candle_rollouts import CandleRollouts
from rlox_onpolicy.configs import HybridPPOConfig
from rlox_onpolicy.ppo import PPOMetrics

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import HybridPPOArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class HybridPPOMetrics(PPOMetrics):
    """Metrics of one iteration: PPO's, and the age of the weights that acted."""

    weights_staleness: float
    """Iterations between the weights that collected the batch and the newest: 0 or 1."""


@final
class HybridPPO(RolloutAlgorithm):
    """PPO on native envs, collected by a Rust thread.

    Args:
        env_id: id of a native env.
        callbacks: hooks into training; ``on_step`` is called when a rollout has arrived.

    Raises:
        ConfigError: a ``policy`` was passed.
        EnvError: ``env_id`` is not the id of a native env.
        MissingDependencyError: rlox-candle is not installed.
    """

    name = "hybrid_ppo"
    config_class = HybridPPOConfig
    config: HybridPPOConfig
    objective_class = ClippedSurrogate
    metrics_class = HybridPPOMetrics
    arguments = ("env_id", "n_envs", "seed", "hidden", "logger", "callbacks")
    _iterating = _collecting = _waited = 0.0
    """Seconds; the first two are totals, the last belongs to the current iteration."""
    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any, *given: Any, **options: Unpack[HybridPPOArguments]
        ) -> None: ...

    def _make_policy(self, given: Any) -> Any:
        if given is not None:
            raise ConfigError("HybridPPO takes no policy: candle acts with the default ones")
        return super()._make_policy(given)

    def make_collector(self) -> CandleRollouts:
        """Return the collecting thread."""
        cfg = self.config
        return CandleRollouts(
            self.env_source,
            cfg.n_envs,
            self.streams.seeds("envs", 1)[0],
            hidden=Layers.of(cfg),
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            overlap=cfg.overlap,
            device=cfg.device,
        )

    def iterate(self, hooks: Hooks) -> HybridPPOMetrics:
        """Receive T steps of N envs with advantages, and minimise the surrogate for K epochs."""
        started = time.perf_counter()
        metrics: HybridPPOMetrics = super().iterate(hooks)
        self._iterating += time.perf_counter() - started
        self._collecting += self._waited
        return metrics

    def rollout(self, hooks: Hooks) -> tuple[RolloutBatch, dict[str, float]]:
        """Return the rollout that the thread collected."""
        started = time.perf_counter()
        batch = self.collector.collect(self.policy, self.config.n_steps, hooks.env_step)
        self._waited = time.perf_counter() - started
        return batch, {
            "explained_variance": batch.explained_variance(),
            "weights_staleness": float(self.collector.weights_staleness),
        }

    def timing_summary(self) -> dict[str, float]:
        """Return the time spent waiting for rollouts and learning.

        Returns:
            ``collection_s`` and ``training_s`` in seconds, ``collection_pct`` and ``training_pct``
            in percent of their sum; zeros before the first iteration. With ``overlap`` only the
            wait for a rollout counts as collection.
        """
        total, collecting = self._iterating, self._collecting
        percent = 100 / total if total else 0.0
        return {
            "collection_s": collecting,
            "training_s": total - collecting,
            "collection_pct": collecting * percent,
            "training_pct": (total - collecting) * percent,
        }
