"""APPO: asynchronous PPO with a target network (Luo et al. 2020).

As in IMPALA, actors collect unrolls of T steps with policies μ that may be older than the learner's
π. Every k updates the target policy π_t becomes π. Each update joins U unrolls, estimates
advantages A and value targets G by V-trace or GAE with the values of π_t, and takes K epochs of
minibatch steps on

    loss = -mean min(r A, clip(r, 1-ε, 1+ε) A) + c_1 mean (V - G)² - c_2 mean H
    r    = min(μ/π_t, β) π/μ

Deviations from the paper, IMPACT:
    1. there is no circular buffer: each unroll serves one update, for ``n_epochs``;
    2. V-trace is RLlib's default, with the ratios π_t/μ; the paper's GAE is ``advantages="gae"``;
    3. V-trace's targets use π_t's values, where RLlib uses π's;
    4. truncated episodes bootstrap from the target network's value of their true final observation,
       and the trace ends there;
    5. advantages are standardised within each minibatch, as in Sample Factory;
    6. policy and value function of vectors share no parameters; the KL penalty is left out.

The loss is :class:`rlox.losses.ClippedSurrogate`, on the batches of
:class:`rlox_onpolicy.vtrace.TargetPolicy`; the order of an iteration is
:meth:`rlox.rollouts.RolloutAlgorithm.iterate`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from rlox.batches.rollout import RolloutBatch
from rlox.losses import ClippedSurrogate, make_objective
from rlox.networks.policies import polyak_update
from rlox.nn import load_module_state, module_state
from rlox.training.hooks import Hooks

from rlox_onpolicy.actors import ActorAlgorithm, ActorMetrics
from rlox_onpolicy.configs import APPOConfig
from rlox_onpolicy.vtrace import TargetPolicy

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import APPOArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class APPOMetrics(ActorMetrics):
    """Metrics of one iteration; losses are means over its minibatches."""

    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats; the old policy is the ratio's
    denominator."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the unrolls; NaN for constant returns."""
    mean_abs_log_rho: float
    """Mean absolute difference of log π_t and log μ, of the target and the acting policy."""
    clipped_fraction: float
    """Share of steps whose ratio π_t/μ exceeds ``rho_bar``."""


@final
class APPO(ActorAlgorithm):
    """Actors in threads or processes, and a learner that minimises PPO's surrogate.

    The arguments are those of :class:`rlox_onpolicy.actors.ActorAlgorithm`, with the options of
    :class:`APPOConfig`. ``learning_rate``, ``clip_eps`` and ``ent_coef`` may be schedules.
    """

    name = "appo"
    config_class = APPOConfig
    config: APPOConfig
    objective_class = ClippedSurrogate
    metrics_class = APPOMetrics
    arguments = (
        "env_id", "n_actors", "n_envs", "seed", "n_steps", "policy", "logger", "callbacks",
        "worker_addresses",
    )  # fmt: skip

    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[APPOArguments]) -> None: ...

    def _complete(self) -> None:
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self.near_target = make_objective(TargetPolicy, self.config)
        super()._complete()

    def rollout(self, hooks: Hooks) -> tuple[RolloutBatch, dict[str, float]]:
        """Return the batch of an update, with ratios near the target policy."""
        if self.actors.version % self.config.target_update_interval == 0:
            polyak_update(self.policy, self.target, tau=1.0)
        unroll, seen = super().rollout(hooks)
        batch, ratios = self.near_target.batch(unroll, self.target)
        return batch, {**seen, **ratios, "explained_variance": batch.explained_variance()}

    def state_dict(self) -> dict[str, Any]:
        """Return policies, optimiser, actors, and their collected unrolls."""
        return {**super().state_dict(), "target": module_state(self.target)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policies, optimiser, actors and unrolls."""
        super().load_state_dict(state)
        load_module_state(self.target, state["target"])
