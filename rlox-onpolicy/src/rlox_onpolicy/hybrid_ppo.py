"""PPO with rollouts collected in Rust by candle.

The algorithm is that of :mod:`rlox_onpolicy.ppo`; what differs is who collects. By default the
thread that collects rests while torch learns, and every batch is of the newest weights. With
``overlap`` it collects the next rollout meanwhile, so that from the second iteration on

    1. batches are of the weights of one iteration before; PPO's ratio, whose denominator is the
       policy that acted, accounts for that as it does for its own epochs.

Checkpoints resume exactly by default; with ``overlap`` a resumed training begins new episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.learners.rollouts import ChosenLearner, choose_learner
from rlox.learners.tasks import Objective, RolloutTask
from rlox.learners.terms import AddedLosses, Losses, make_metrics
from rlox.logging import LoggerCallback
from rlox.losses import ClippedSurrogate
from rlox.nn import torch_threads
from rlox.rollouts import make_agent, make_objective, minimize_over_epochs, require_objective
from rlox.training.hooks import Hooks

from rlox_onpolicy.candle_rollouts import CandleRollouts
from rlox_onpolicy.configs import HybridPPOConfig
from rlox_onpolicy.ppo import PPOMetrics

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import HybridPPOOptions, Unpack

__all__ = ["HybridPPO", "HybridPPOMetrics"]


SCHEDULED = ("learning_rate", "clip_eps", "ent_coef")
LOSS_OPTIONS = tuple(f.name for f in fields(ClippedSurrogate))


@dataclass(frozen=True, kw_only=True)
class HybridPPOMetrics(PPOMetrics):
    """What one iteration reports: PPO's metrics, and the age of the weights that acted."""

    weights_staleness: float = float("nan")
    """Iterations between the weights that collected the batch and the newest: 0 or 1."""


@final
class HybridPPO(Algorithm):
    """PPO on native envs, collected by a Rust thread.

    Args:
        env_id: id of a native env.
        n_envs: number of envs stepped together.
        seed: fixes every random draw; ``None`` draws one from entropy.
        hidden: width of the hidden layers.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training; ``on_step`` comes when a rollout has arrived.
        config: a :class:`HybridPPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps`` or
            ``ent_coef``; they win over the config and are not saved in checkpoints.
        objective: see :class:`rlox_onpolicy.ppo.PPO`.
        added_losses: see there.
        config_kwargs: options of :class:`HybridPPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: ``env_id`` is no id of a native env.
        MissingDependencyError: rlox-candle is not installed.
    """

    name: ClassVar[str] = "hybrid_ppo"
    config_class: ClassVar[type[Config]] = HybridPPOConfig
    config: HybridPPOConfig
    learner: ChosenLearner
    added_losses: AddedLosses
    own_objective: Objective | None

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        hidden: int | Unset = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: HybridPPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[HybridPPOOptions],
    ) -> None:
        resolved = resolve_config(
            HybridPPOConfig, config, n_envs=n_envs, seed=seed, hidden=hidden, **config_kwargs
        )
        require_objective(objective, LOSS_OPTIONS, resolved, config_kwargs, schedules)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg = self.config
        self.schedules = Schedules(cfg, SCHEDULED, schedules)
        self.collector = CandleRollouts(
            env_id,
            cfg.n_envs,
            self.streams.seeds("envs", 1)[0],
            hidden=cfg.hidden,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            overlap=cfg.overlap,
            device=cfg.device,
        )
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.agent = make_agent(self, adam, None, self.collector)
        self.policy, self.optimizer = self.agent.policy, self.agent.optimizer
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.own_objective = objective
        self._surrogate = make_objective(ClippedSurrogate, cfg, Schedules(cfg, SCHEDULED).at(0, 0))
        task = RolloutTask(
            objective or self._surrogate,
            self.policy,
            self.optimizer,
            self.collector,
            minimize_over_epochs,
            self.agent.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=self.streams.torch("minibatches"),
            added_losses=self.added_losses,
        )
        self.learner = choose_learner(cfg.backend, task)
        self._collecting = self._learning = 0.0

    def iterate(self, hooks: Hooks) -> HybridPPOMetrics:
        """Receive T steps of N envs with advantages, and minimise the surrogate for K epochs."""
        cfg = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective = self.own_objective or replace(
            self._surrogate, clip_eps=rates["clip_eps"], ent_coef=rates["ent_coef"]
        )
        learning_rate = rates["learning_rate"]
        with torch_threads(cfg.torch_threads):
            started = time.perf_counter()
            batch = self.collector.collect(self.policy, cfg.n_steps, hooks.env_step)
            hooks.rollout_end(batch)
            collected = time.perf_counter()
            terms = self.learner.update(batch, objective, learning_rate, hooks)
            self._collecting += collected - started
            self._learning += time.perf_counter() - collected
        return make_metrics(
            HybridPPOMetrics,
            terms,
            self.added_losses,
            **self.collector.statistics.metrics(),
            explained_variance=batch.explained_variance(),
            learning_rate=learning_rate,
            weights_staleness=float(self.collector.weights_staleness),
        )

    def timing_summary(self) -> dict[str, float]:
        """Return how long this object waited for rollouts and how long it learned.

        Returns:
            ``collection_s`` and ``training_s`` in seconds, ``collection_pct`` and ``training_pct``
            in percent of the two; zeros before the first iteration. With ``overlap`` only what was
            waited for counts as collection.
        """
        total = self._collecting + self._learning
        percent = 100 / total if total else 0.0
        return {
            "collection_s": self._collecting,
            "training_s": self._learning,
            "collection_pct": self._collecting * percent,
            "training_pct": self._learning * percent,
        }

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``ActorCritic``."""
        return self.agent.predict(obs, deterministic)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.agent.policy_data(self.name)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)
