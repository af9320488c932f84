"""Fitted Q evaluation (Le et al. 2019): off-policy evaluation from a dataset.

Each gradient step takes a minibatch (s, a, r, s') and

    step Q on  mean (r + γ Q'(s', π(s')) - Q(s, a))²                                 sec. 4.3
    Q' ← Q' + τ (Q - Q')

and the estimate is the mean of Q(s, π(s)) over first observations.

Deviation from the paper: the target network follows slowly, instead of being copied after each
regression has converged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.deployment import load_policy
from rlox.errors import DatasetError, SpaceError
from rlox.evaluation import Predictor
from rlox.logging import LoggerCallback
from rlox.networks import QNetwork, polyak_update
from rlox.nn import FlatOptimizer
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch, Scaling
from rlox.offline.dataset import OfflineDataset
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_offline.configs import FQEConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.losses import critic_loss, td_target

if TYPE_CHECKING:
    from rlox_offline.option_types import FQEOptions, Unpack

__all__ = ["FQE", "FQEMetrics"]


@dataclass(frozen=True)
class FQEMetrics:
    """What one iteration reports."""

    critic_loss: float
    """Mean squared error of Q."""
    mean_q: float
    """Mean of Q over the dataset's actions."""
    estimate: float = math.nan
    """What :meth:`FQE.estimate` returns; NaN if the dataset does not know first observations."""


@final
class FQE(OfflineAlgorithm):
    """Fitted Q evaluation of a policy of continuous actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        policy: what to evaluate: an algorithm, anything with its ``predict``, which gets an env's
            observations, or the path of a file that :func:`rlox.export` wrote.
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: an :class:`FQEConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`FQEConfig`, which win over ``config``.

    Raises:
        CheckpointError: the file of the policy is missing, damaged or holds no policy.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
        SpaceError: the policy does not act on such observations, or returns other actions.
    """

    name: ClassVar[str] = "fqe"
    config_class: ClassVar[type[Config]] = FQEConfig
    config: FQEConfig
    metrics_class: ClassVar[type[Any]] = FQEMetrics

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        policy: Predictor | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: FQEConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[FQEOptions],
    ) -> None:
        if policy is None:
            raise TypeError("pass the policy to evaluate as policy=")
        resolved = resolve_config(
            FQEConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset), config=resolved, env=env, callbacks=callbacks, logger=logger
        )
        cfg = self.config
        sizes: Any = (cfg.obs_dim, cfg.act_dim, cfg.hidden)
        acting = load_policy(policy) if isinstance(policy, (str, Path)) else policy
        self.policy = _InNetworkUnits(acting, self.scaling)
        self.policy.deterministic(torch.zeros(2, sizes[0], device=self.device))
        self.critic = QNetwork(*sizes, generator=self.streams.torch("networks")).to(self.device)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.networks = {"critic": self.critic, "target_critic": self.target_critic}
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {"critic": FlatOptimizer(self.critic, adam)}

    def _update(self, batch: OfflineBatch) -> Mapping[str, Tensor]:
        """Take one step of Q."""
        cfg = self.config
        with torch.no_grad():
            next_actions = self.policy.deterministic(batch.next_obs)
            next_values = self.target_critic(batch.next_obs, next_actions).squeeze(-1)
        target = td_target(batch.rewards, batch.terminated, next_values, cfg.gamma)
        q_values = self.critic(batch.obs, batch.actions).squeeze(-1)
        loss = critic_loss(q_values, target)
        self.optimizers["critic"].step(loss, cfg.learning_rate)
        polyak_update(self.critic, self.target_critic, cfg.tau)
        return {"critic_loss": loss.detach(), "mean_q": q_values.detach().mean()}

    def iterate(self, hooks: Hooks) -> FQEMetrics:
        """Take up to ``steps_per_iteration`` gradient steps and estimate."""
        metrics: FQEMetrics = super().iterate(hooks)
        known = getattr(self.dataset, "initial_obs", None) is not None
        return replace(metrics, estimate=self.estimate()) if known else metrics

    @torch.no_grad()
    def estimate(self, initial_obs: npt.ArrayLike | None = None) -> float:
        """Return the estimated mean discounted return of the policy.

        Args:
            initial_obs: (B, obs_dim) an env's first observations; ``None`` takes those of the
                dataset's episodes.

        Raises:
            DatasetError: none are given and the dataset does not know them.
            SpaceError: their shape is wrong, or the policy's actions are.
        """
        given = getattr(self.dataset, "initial_obs", None) if initial_obs is None else initial_obs
        if given is None:
            raise DatasetError("the dataset has no attribute initial_obs; pass initial_obs=")
        raw = np.asarray(given, np.float32)
        if raw.ndim != 2 or raw.shape[1:] != self.observation_space.shape:
            size = self.config.obs_dim
            raise SpaceError(f"initial_obs must have shape (B, {size}), got {raw.shape}")
        obs = self.scaling.obs_in(torch.as_tensor(raw, device=self.device))
        return float(self.critic(obs, self.policy.deterministic(obs)).mean())


class _InNetworkUnits:
    """A policy in an env's units that takes and returns what the networks do."""

    def __init__(self, policy: Predictor, scaling: Scaling) -> None:
        self._policy = policy
        self._scaling = scaling

    def deterministic(self, obs: Tensor) -> Tensor:
        actions = np.asarray(self._policy.predict(self._scaling.obs_out(obs).cpu().numpy()))
        shape = (len(obs), len(self._scaling.act_low))
        if actions.shape != shape or not np.isfinite(actions).all():
            raise SpaceError(
                f"the policy must return finite actions of shape {shape} for observations of shape "
                f"{tuple(obs.shape)}, got shape {actions.shape}"
            )
        return self._scaling.actions_in(
            torch.as_tensor(actions, dtype=obs.dtype, device=obs.device)
        )
