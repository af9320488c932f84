"""Behavioural cloning: supervised learning of the dataset's actions (Pomerleau 1989).

Each gradient step takes a minibatch and minimises

    mean (π(s) - a)²        for a deterministic policy of continuous actions
    -mean log π(a|s)        for a stochastic one, and for discrete actions
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import DeterministicPolicy, GaussianPolicy
from torch import nn

from rlox_offline.base import DatasetAlgorithm
from rlox_offline.configs import BCConfig
from rlox_offline.losses import bc_loss
from rlox_offline.networks import CategoricalPolicy

if TYPE_CHECKING:
    from rlox_offline.option_types import BCArguments, Unpack


@dataclass(frozen=True)
class BCMetrics:
    """Metrics of one iteration."""

    loss: float
    """Mean squared error of the actions in the networks' units, or negative log-likelihood."""


@dataclass(frozen=True)
class Cloning(ReplayObjective):
    """The policy's errors on the dataset's actions."""

    continuous: bool = True
    """Whether actions are a ``Box``; else ``Discrete``."""
    stochastic: bool = False
    """Whether a continuous policy is fitted by likelihood; discrete ones always are."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the policy."""
        if self.continuous and not self.stochastic:
            loss = bc_loss(parts.policy(batch.obs), batch.actions)
        else:
            loss = -parts.policy.log_prob(batch.obs, batch.actions).mean()
        return StepResult({"loss": parts.minimize("policy", loss, batch, learning_rate)})


@final
class BC(DatasetAlgorithm):
    """Behavioural cloning of continuous or discrete actions."""

    name = "bc"
    config_class = BCConfig
    metrics_class = BCMetrics
    objective_class = Cloning
    targets = ()
    arguments = ("dataset", "obs_dim", "act_dim")
    if TYPE_CHECKING:

        def __init__(self, *_: Any, env: Any = None, **options: Unpack[BCArguments]) -> None: ...

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the policy."""
        cfg = self.config
        policy: Any = GaussianPolicy if cfg.stochastic else DeterministicPolicy
        if not cfg.continuous:
            policy = CategoricalPolicy
        return {"policy": policy(obs_dim, act_dim, **options)}
