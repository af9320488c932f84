"""IMPALA: importance weighted actor-learner architecture (Espeholt et al. 2018).

Actors collect unrolls of T steps with weights that may be older than the learner's. Each update
joins U unrolls and takes one step on

    loss = -mean A log π(a|s) + c_v mean (V - vs)² - c_e mean H

with V-trace's targets vs and advantages A (eq. 1 and sec. 4.2) from the learner's current values
and probabilities. Actors send observations, actions and log μ(a|s); their values are not used.

Deviations from the paper:
    1. the loss is a mean over the steps, as in RLlib; ``loss_reduction="sum"`` is the paper's, with
       its gradient norm of 40;
    2. truncated episodes bootstrap from the current value of their true final observation, and the
       trace ends there;
    3. policy and value function of vectors share no parameters;
    4. rewards are clipped only on demand; weight decay and population based training are left out.

The loss is :class:`rlox_onpolicy.vtrace.VTraceActorCritic`, the order of an iteration
:meth:`rlox.rollouts.RolloutAlgorithm.iterate`, with the unrolls of
:class:`rlox_onpolicy.actors.ActorAlgorithm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from rlox_onpolicy.actors import ActorAlgorithm, ActorMetrics
from rlox_onpolicy.configs import IMPALAConfig
from rlox_onpolicy.vtrace import VTraceActorCritic

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import IMPALAArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class IMPALAMetrics(ActorMetrics):
    """Metrics of one iteration; losses and entropy are means over its steps."""

    mean_abs_log_rho: float
    """Mean absolute difference of log π and log μ, of the learning and the acting policy."""
    clipped_fraction: float
    """Share of steps whose ratio π/μ exceeds ``rho_bar``."""


@final
class IMPALA(ActorAlgorithm):
    """Actors in threads or processes, and a learner that corrects their lag by V-trace.

    The arguments are those of :class:`rlox_onpolicy.actors.ActorAlgorithm`, with the options of
    :class:`IMPALAConfig`. An ``objective`` and ``added_losses`` receive a whole
    :class:`rlox.batches.rollout.Unroll`. ``learning_rate`` and ``ent_coef`` may be schedules.
    """

    name = "impala"
    config_class = IMPALAConfig
    config: IMPALAConfig
    objective_class = VTraceActorCritic
    metrics_class = IMPALAMetrics
    arguments = (
        "env_id", "n_actors", "n_envs", "seed", "n_steps", "policy", "logger", "callbacks",
        "worker_addresses",
    )  # fmt: skip

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any, *given: Any, **options: Unpack[IMPALAArguments]
        ) -> None: ...

    def make_optimizer(self) -> Any:
        """Return a factory of RMSprop."""
        alpha, eps = self.config.rmsprop_alpha, self.config.rmsprop_eps
        return partial(torch.optim.RMSprop, alpha=alpha, eps=eps)
