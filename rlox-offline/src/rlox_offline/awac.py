"""AWAC (Nair et al. 2020): imitation weighted by advantages.

Each gradient step takes a minibatch (s, a, r, s') and

    step on  Σ_i mean (r + γ min_i Q'_i(s', a') - Q_i(s, a))²,   a' ~ π(s')     eq. 4
    A = min_i Q_i(s, a) - min_i Q_i(s, ã),   ã ~ π(s)
    step on  -mean min(exp(A / λ), w) log π(a|s)                              eq. 13
    Q' ← Q' + τ (Q - Q')

The policy already sees the new Q.

Deviations from the paper:
    1. the weights are bounded by w, as IQL's are; the authors' code divides them by their sum
       over the minibatch;
    2. two hidden layers in all networks; the authors' code has four in the policy;
    3. actions are learnt in [-1, 1], to which the dataset's bounds are mapped; sampled ones are
       clipped to them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.logging import LoggerCallback
from rlox.networks import GaussianPolicy, TwinQNetwork, polyak_update
from rlox.nn import FlatOptimizer
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch
from rlox.offline.dataset import OfflineDataset
from torch import Tensor

from rlox_offline.configs import AWACConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.losses import advantage_weights, critic_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import AWACOptions, Unpack

__all__ = ["AWAC", "AWACMetrics"]


@dataclass(frozen=True)
class AWACMetrics:
    """What one iteration reports."""

    critic_loss: float
    """Sum of both critics' mean squared errors."""
    actor_loss: float
    """Weighted negative log-likelihood of the dataset's actions."""
    mean_q: float
    """Mean of both critics' values of the dataset's actions."""
    mean_weight: float
    """Mean of the log-likelihoods' weights."""


@final
class AWAC(OfflineAlgorithm):
    """Advantage-weighted actor-critic for continuous actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: an :class:`AWACConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`AWACConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
    """

    name: ClassVar[str] = "awac"
    config_class: ClassVar[type[Config]] = AWACConfig
    config: AWACConfig
    metrics_class: ClassVar[type[Any]] = AWACMetrics

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: AWACConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[AWACOptions],
    ) -> None:
        resolved = resolve_config(
            AWACConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset), config=resolved, env=env, callbacks=callbacks, logger=logger
        )
        cfg = self.config
        sizes: Any = (cfg.obs_dim, cfg.act_dim, cfg.hidden)
        generator = self.streams.torch("networks")
        self.policy = GaussianPolicy(*sizes, generator=generator).to(self.device)
        self.critics = TwinQNetwork(*sizes, generator=generator).to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.networks = {
            "policy": self.policy,
            "critics": self.critics,
            "target_critics": self.target_critics,
        }
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {
            name: FlatOptimizer(self.networks[name], adam) for name in ("policy", "critics")
        }

    def _update(self, batch: OfflineBatch) -> Mapping[str, Tensor]:
        """Take one step of the critics, then one of the policy."""
        cfg = self.config
        rows = batch.transitions(cfg.gamma, cfg.reward_scale, cfg.reward_shift)
        with torch.no_grad():
            next_values = self._value(self.target_critics, rows.next_obs)
            target = rows.rewards + rows.discounts * next_values
        q_values = self.critics(rows.obs, rows.actions)
        loss = critic_loss(q_values, target)
        self.optimizers["critics"].step(loss, cfg.learning_rate)

        with torch.no_grad():
            q_of_data = self.critics(rows.obs, rows.actions).amin(0)
            advantages = q_of_data - self._value(self.critics, rows.obs)
        weights = advantage_weights(advantages, 1 / cfg.awac_lambda, cfg.max_weight)
        actor_loss = -(weights * self.policy.log_prob(rows.obs, rows.actions)).mean()
        self.optimizers["policy"].step(actor_loss, cfg.learning_rate)
        polyak_update(self.critics, self.target_critics, cfg.tau)
        return {
            "critic_loss": loss.detach(),
            "actor_loss": actor_loss.detach(),
            "mean_q": q_values.detach().mean(),
            "mean_weight": weights.mean(),
        }

    def _value(self, critics: TwinQNetwork, obs: Tensor) -> Tensor:
        """Return the lesser of two critics' values (B,) of an action of the policy."""
        actions, _ = self.policy.get_action_and_logprob(obs)
        values: Tensor = critics(obs, actions.clamp(-1, 1)).amin(0)
        return values
