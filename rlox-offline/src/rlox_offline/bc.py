"""Behavioural cloning: supervised learning of the dataset's actions (Pomerleau 1989).

Each gradient step takes a minibatch and minimises

    mean (π(s) - a)²        for a deterministic policy of continuous actions
    -mean log π(a|s)        for a stochastic one, and for discrete actions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.logging import LoggerCallback
from rlox.networks import DeterministicPolicy, GaussianPolicy
from rlox.nn import FlatOptimizer
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch
from rlox.offline.dataset import OfflineDataset
from torch import Tensor

from rlox_offline.configs import BCConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.losses import bc_loss, bc_nll
from rlox_offline.networks import CategoricalPolicy

if TYPE_CHECKING:
    from rlox_offline.option_types import BCOptions, Unpack

__all__ = ["BC", "BCMetrics"]


@dataclass(frozen=True)
class BCMetrics:
    """What one iteration reports."""

    loss: float
    """Mean squared error of the actions in the networks' units, or negative log-likelihood."""


@final
class BC(OfflineAlgorithm):
    """Behavioural cloning of continuous or discrete actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action, or number of discrete actions; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: a :class:`BCConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`BCConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
    """

    name: ClassVar[str] = "bc"
    config_class: ClassVar[type[Config]] = BCConfig
    config: BCConfig
    metrics_class: ClassVar[type[Any]] = BCMetrics

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: BCConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[BCOptions],
    ) -> None:
        resolved = resolve_config(
            BCConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset),
            config=resolved,
            env=env,
            continuous=resolved.continuous,
            callbacks=callbacks,
            logger=logger,
        )
        cfg = self.config
        generator = self.streams.torch("networks")
        if not cfg.continuous:
            policy_class: Any = CategoricalPolicy
        else:
            policy_class = GaussianPolicy if cfg.stochastic else DeterministicPolicy
        self.policy = policy_class(cfg.obs_dim, cfg.act_dim, cfg.hidden, generator=generator)
        self.policy.to(self.device)
        self.networks = {"policy": self.policy}
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {"policy": FlatOptimizer(self.policy, adam)}

    def _update(self, batch: OfflineBatch) -> Mapping[str, Tensor]:
        """Take one step of the policy."""
        cfg = self.config
        if cfg.continuous and not cfg.stochastic:
            loss = bc_loss(self.policy(batch.obs), batch.actions)
        else:
            loss = bc_nll(self.policy.log_prob(batch.obs, batch.actions))
        self.optimizers["policy"].step(loss, cfg.learning_rate)
        return {"loss": loss.detach()}
