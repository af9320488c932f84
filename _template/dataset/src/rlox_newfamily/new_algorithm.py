"""Reward-weighted regression (Peters and Schaal 2007).

Each gradient step takes a minibatch of a dataset and a step down the gradient of

    loss = -Σ w_i log π(a_i|s_i),    w = softmax(r / β)

Deviations from the paper:
    1. gradient steps on minibatches instead of a regression on all rewards at once;
    2. the temperature β is an option and not adapted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final

import torch
from rlox.config.model import resolve_config
from rlox.networks import GaussianPolicy
from rlox.nn import FlatOptimizer
from rlox.offline.base import OfflineAlgorithm
from torch import Tensor

from rlox_newfamily.configs import NewAlgorithmConfig

__all__ = ["NewAlgorithm"]


@final
class NewAlgorithm(OfflineAlgorithm):
    """Imitation of actions by their rewards.

    Args:
        dataset: what to learn from; ``None`` acts alone.
        config: an object of :class:`NewAlgorithmConfig`, a mapping, or the path of a file.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        options: of the config, which win over ``config``.
    """

    name = "new_algorithm"
    config_class = NewAlgorithmConfig

    def __init__(
        self,
        dataset: Any = None,
        *,
        config: Any = None,
        env: Any = None,
        callbacks: Any = None,
        logger: Any = None,
        **options: Any,
    ) -> None:
        resolved = resolve_config(self.config_class, config, **options)
        super().__init__(dataset, config=resolved, env=env, callbacks=callbacks, logger=logger)
        cfg, source = self.config, self.streams.torch("networks")
        self.policy = GaussianPolicy(cfg.obs_dim, cfg.act_dim, cfg.hidden, generator=source)
        self.networks = {"policy": self.policy.to(self.device)}
        adam = FlatOptimizer(self.policy, partial(torch.optim.Adam, fused=True))
        self.optimizers = {"policy": adam}

    def _update(self, batch: Any) -> Mapping[str, Tensor | float]:
        weights = (batch.rewards / self.config.temperature).softmax(0)
        loss = -(weights * self.policy.log_prob(batch.obs, batch.actions)).sum()
        self.optimizers["policy"].step(loss, self.config.learning_rate)
        return {"loss": loss.detach()}
