"""Synchronous advantage actor-critic (Mnih et al. 2016, algorithm S3, without the asynchrony).

Each iteration collects T steps of N envs and takes one step on

    loss = -mean A log π(a|s) + c_v mean (V - G)² - c_e mean H

Deviations from the paper:
    1. all envs step together and one gradient is taken over all of them (openai/baselines a2c);
    2. advantages are GAE's, which for λ = 1 are the paper's n-step ones;
    3. the gradient's norm is clipped;
    4. policy and value function share no parameters;
    5. truncated episodes bootstrap from the value of their true final observation.

The loss is :class:`rlox.losses.PolicyGradient`, the order of an iteration
:meth:`rlox.rollouts.RolloutAlgorithm.iterate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.losses import PolicyGradient
from rlox.rollouts import RolloutAlgorithm, RolloutMetrics

from rlox_onpolicy.configs import A2CConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import A2CArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class A2CMetrics(RolloutMetrics):
    """Metrics of one iteration."""

    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""


@final
class A2C(RolloutAlgorithm):
    """Synchronous advantage actor-critic for discrete and continuous actions.

    The arguments are those of :class:`rlox.rollouts.RolloutAlgorithm`, with the options of
    :class:`A2CConfig`. ``learning_rate`` and ``ent_coef`` may be schedules.
    """

    name = "a2c"
    config_class = A2CConfig
    config: A2CConfig
    objective_class = PolicyGradient
    metrics_class = A2CMetrics
    arguments = ("env_id", "n_envs", "seed", "policy", "logger", "callbacks")

    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[A2CArguments]) -> None: ...

    def make_optimizer(self) -> Any:
        """Return a factory of RMSprop."""
        alpha, eps = self.config.rmsprop_alpha, self.config.rmsprop_eps
        return partial(torch.optim.RMSprop, alpha=alpha, eps=eps)
