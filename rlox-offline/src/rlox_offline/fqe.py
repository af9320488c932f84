"""Fitted Q evaluation (Le et al. 2019): off-policy evaluation from a dataset.

Each gradient step takes a minibatch (s, a, r, s') and

    step Q on  mean (r + γ Q'(s', π(s')) - Q(s, a))²                                 sec. 4.3
    Q' ← Q' + τ (Q - Q')

and the estimate is the mean of Q(s, π(s)) over the episodes' first observations.

Deviation from the paper: the target network follows slowly, instead of being copied after each
converged regression.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Unset
from rlox.deployment import load_policy
from rlox.envs.evaluation import Predictor
from rlox.errors import DatasetError, ExportError, SpaceError
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.logging import LoggerCallback
from rlox.networks import QNetwork, polyak_update
from rlox.nn.layer_data import LayerData
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offline.base import DatasetAlgorithm
from rlox_offline.batch import Scaling
from rlox_offline.configs import FQEConfig
from rlox_offline.datasets.protocol import OfflineDataset
from rlox_offline.losses import critic_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import FQEOptions, Unpack


@dataclass(frozen=True)
class FQEMetrics:
    """Metrics of one iteration."""

    critic_loss: float
    """Mean squared error of Q."""
    mean_q: float
    """Mean of Q over the dataset's actions."""
    estimate: float = math.nan
    """Result of :meth:`FQE.estimate`; NaN if the dataset lacks first observations."""


@dataclass(frozen=True)
class FittedQ(ReplayObjective):
    """Values of a fixed policy."""

    policy: _InNetworkUnits
    tau: float = 0.005
    """Share of Q in each update of its target."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of Q, and move its target."""
        with torch.no_grad():
            next_actions = self.policy.deterministic(batch.next_obs)
            next_values = parts.critic_target(batch.next_obs, next_actions).squeeze(-1)
            targets = batch.rewards + batch.discounts * next_values
        q = parts.critic(batch.obs, batch.actions).squeeze(-1)
        q_loss = parts.minimize("critic", critic_loss(q, targets), batch, learning_rate)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        return StepResult({"q_loss": q_loss, "q_value": q.detach().mean()})


@final
class FQE(DatasetAlgorithm):
    """Fitted Q evaluation of a policy with continuous actions.

    Args:
        policy: policy to evaluate: an algorithm, any object with its ``predict``, called with an
            env's observations, or the path of a file written by :func:`rlox.export`.

    Raises:
        CheckpointError: the policy's file is missing or damaged, or holds no policy.
        SpaceError: the policy does not take the dataset's observations, returns other actions, or
            needs a memory, which single transitions cannot provide.
    """

    name = "fqe"
    config_class = FQEConfig
    metrics_class = FQEMetrics
    critic: QNetwork

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
        **options: Unpack[FQEOptions],
    ) -> None:
        if policy is None:
            raise TypeError("pass the policy to evaluate as policy=")
        self.policy = load_policy(policy) if isinstance(policy, (str, Path)) else policy
        super().__init__(
            dataset, env=env, config=config, callbacks=callbacks, logger=logger,
            obs_dim=obs_dim, act_dim=act_dim, **options,
        )  # fmt: skip

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return Q."""
        return {"critic": QNetwork(obs_dim, act_dim, **options)}

    def make_objective(self) -> FittedQ:
        """Return the objective, after trying the policy."""
        policy, shape = self.policy.predict, (2, self.config.obs_dim)
        if "state" in signature(policy).parameters:
            given: Any = {"state": None}
            if policy(np.zeros(shape, np.float32), **given)[1] is not None:
                raise SpaceError(
                    "the policy acts by earlier observations, which a batch of transitions "
                    "does not hold; evaluate one without memory and stacked frames"
                )
        self.policy = _InNetworkUnits(self.policy, self.scaling)
        self.policy.deterministic(torch.zeros(shape, device=self.device))
        return FittedQ(self.policy, self.config.tau)

    def iterate(self, hooks: Hooks) -> FQEMetrics:
        """Take up to ``steps_per_iteration`` gradient steps, and estimate the return."""
        metrics: FQEMetrics = super().iterate(hooks)
        known = getattr(self.dataset, "initial_obs", None) is not None
        return replace(metrics, estimate=self.estimate()) if known else metrics

    def findings(self) -> dict[str, str]:
        """Return the estimate in words, for the end of ``rlox train``; empty if there is none.

        The interval is that of a mean over as many first observations; errors of Q are not in it.
        """
        if getattr(self.dataset, "initial_obs", None) is None:
            return {}
        values = self._values(None).cpu().numpy()
        mean, half = values.mean(), 1.96 * values.std() / math.sqrt(len(values))
        interval = f"95 % interval [{mean - half:.4g}, {mean + half:.4g}]"
        text = f"{mean:.4g}, {interval} over {len(values):,} first observations"
        return {"discounted return": text}

    def estimate(self, initial_obs: npt.ArrayLike | None = None) -> float:
        """Return the estimated mean discounted return of the policy.

        Args:
            initial_obs: (B, obs_dim) first observations of an env; ``None`` takes the first ones
                of the dataset's episodes.

        Raises:
            DatasetError: none are given and the dataset lacks them.
            SpaceError: their shape is wrong, or the policy's actions are invalid.
        """
        return float(self._values(initial_obs).mean())

    @torch.no_grad()
    def _values(self, initial_obs: npt.ArrayLike | None) -> Tensor:
        """Return the policy's values (B, 1) of first observations."""
        given = getattr(self.dataset, "initial_obs", None) if initial_obs is None else initial_obs
        if given is None:
            raise DatasetError("the dataset has no attribute initial_obs; pass initial_obs=")
        raw = np.asarray(given, np.float32)
        if raw.ndim != 2 or raw.shape[1:] != self.observation_space.shape:
            size = self.config.obs_dim
            raise SpaceError(f"initial_obs must have shape (B, {size}), got {raw.shape}")
        obs = self.scaling.obs_in(torch.as_tensor(raw, device=self.device))
        return cast("Tensor", self.critic(obs, self.policy.deterministic(obs)))


class _InNetworkUnits:
    """Converts between the networks' units and those of a policy in env units."""

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

    def layer_data(self) -> LayerData:
        raise ExportError("'fqe' has no policy of its own; export the one that it evaluates")
