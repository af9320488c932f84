"""The frame of the offline algorithms.

An algorithm is its objective, a :class:`rlox.learners.transitions.ReplayObjective` with the code of
the gradient steps, and a class of a few declarations; config, networks, targets, optimisers and the
choice of a learner are here, and the loop over minibatches, predictions and checkpoints in
:class:`rlox_offline.base.OfflineAlgorithm`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from rlox.callbacks import Callback
from rlox.config.model import Config, resolve_config
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayObjective,
    ReplayTask,
    choose_replay_learner,
    with_targets,
)
from rlox.logging import LoggerCallback
from rlox.losses import Scalar, make_objective
from rlox.nn import FlatOptimizer
from torch import nn

from rlox_offline.base import OfflineAlgorithm
from rlox_offline.batch import OfflineBatch
from rlox_offline.datasets import open_dataset
from rlox_offline.datasets.protocol import OfflineDataset

METRICS = {
    "q_loss": "critic_loss",
    "q_value": "mean_q",
    "policy_loss": "actor_loss",
    "weight": "mean_weight",
}
"""What the terms of objectives are called among the metrics."""


@dataclass(frozen=True)
class ActorCriticMetrics:
    """What one iteration reports of critics and a policy."""

    critic_loss: float
    """Sum of the critics' mean squared errors."""
    actor_loss: float
    """The policy's loss; NaN if the iteration had no step of it."""
    mean_q: float
    """Mean of the critics' values of the dataset's actions."""


class DatasetAlgorithm(OfflineAlgorithm):
    """An offline algorithm that is its objective.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`). ``obs_dim``, the size of an observation,
            and ``act_dim``, the size of an action or the number of discrete actions, are the
            dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: an object of the algorithm's config class, a mapping, or the path of a YAML or JSON
            file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        options: of the config, which win over ``config``.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
    """

    objective_class: ClassVar[type[ReplayObjective]]
    """Class of the objective, whose fields are options of the config."""
    targets: ClassVar[tuple[str, ...]] = ("critic",)
    """Names of the networks of which a target copy is kept, called ``critic_target``."""

    learner: ChosenReplayLearner
    critic: Any

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        *,
        env: Any = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **options: Any,
    ) -> None:
        resolved: Any = resolve_config(self.config_class, config, **options)
        super().__init__(
            open_dataset(dataset),
            config=resolved,
            env=env,
            continuous=getattr(resolved, "continuous", True),
            callbacks=callbacks,
            logger=logger,
        )
        cfg = self.config
        if self.dataset is not None:
            self.minibatches = self.drawn_from(self.dataset)
        generator = self.streams.torch("networks")
        networks = self.make_networks(
            cfg.obs_dim, cfg.act_dim, hidden=cfg.hidden, generator=generator
        )
        for network in networks.values():
            network.to(self.device)
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {name: FlatOptimizer(net, adam) for name, net in networks.items()}
        self.networks = with_targets(networks, self.targets)
        self.parts = Parts(self.networks, self.optimizers, self.device, self.stream)
        vars(self).update(self.networks)
        self.objective = self.make_objective()
        task = ReplayTask(self.objective, self.parts)
        self.learner = choose_replay_learner(getattr(cfg, "backend", "torch"), task)
        names = ("gamma", "reward_scale", "reward_shift")
        self._rewards = {name: getattr(cfg, name) for name in names if hasattr(cfg, name)}

    @abstractmethod
    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the networks that learn, by name, in the order in which they are made.

        Args:
            obs_dim: size of an observation.
            act_dim: components of an action, or choices.
            options: ``hidden``, the width of hidden layers, and ``generator``, the source of
                weights.
        """

    def make_objective(self) -> ReplayObjective:
        """Return what is learnt; the networks are there."""
        return make_objective(self.objective_class, self.config)

    def drawn_from(self, dataset: OfflineDataset) -> OfflineDataset:
        """Return what minibatches are drawn from."""
        return dataset

    def stream(self, name: str) -> torch.Generator:
        """Return the source of noise that the objective calls by a name."""
        return self.streams.torch(name)

    def step_size(self, step: str) -> float:
        """Return the step size of one of the objective's steps."""
        return float(self.config.learning_rate)

    def _update(self, batch: OfflineBatch) -> Mapping[str, Scalar]:
        """Take the objective's steps that are due."""
        transitions = batch.transitions(**self._rewards)
        terms: dict[str, Scalar] = {}
        for step in self.objective.due(self.clock.gradient_steps + 1):
            learnt = self.learner.step(step, transitions, self.step_size(step)).terms
            terms |= {METRICS.get(name, name): value for name, value in learnt.items()}
        return terms
