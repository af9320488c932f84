"""Proximal policy optimisation, PPO (Schulman et al. 2017, algorithm 1).

Each iteration collects T steps of N envs, estimates advantages (eq. 11 and 12, the truncated form
of GAE) and takes several epochs of minibatch steps on eq. 9.

Deviations from the paper, all from common implementations (Huang et al. 2022):
    1. advantages are standardised within each minibatch;
    2. the gradient's norm is clipped;
    3. policy and value function share no parameters;
    4. truncated episodes bootstrap from the value of their true final observation;
    5. optional: value clip, dual clip (Ye et al. 2020), stop at a target KL.

Eq. 9 is :class:`rlox.losses.ClippedSurrogate`, the order of an iteration
:meth:`rlox.rollouts.RolloutAlgorithm.iterate`, and the epochs are
:func:`rlox.rollouts.minimize_over_epochs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from rlox.losses import ClippedSurrogate
from rlox.rollouts import RolloutAlgorithm, RolloutMetrics

from rlox_onpolicy.configs import PPOConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import PPOArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class PPOMetrics(RolloutMetrics):
    """Metrics of one iteration; losses are means over its minibatches."""

    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""


@final
class PPO(RolloutAlgorithm):
    """Proximal policy optimisation for discrete and continuous actions.

    The arguments are those of :class:`rlox.rollouts.RolloutAlgorithm`, with the options of
    :class:`PPOConfig`. ``learning_rate``, ``clip_eps`` and ``ent_coef`` may be schedules.
    """

    name = "ppo"
    config_class = PPOConfig
    config: PPOConfig
    objective_class = ClippedSurrogate
    metrics_class = PPOMetrics
    arguments = ("env_id", "n_envs", "seed", "policy", "logger", "callbacks")

    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[PPOArguments]) -> None: ...
