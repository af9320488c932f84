"""Multi-agent PPO: decentralised actors, centralised critics (Yu et al. 2022, algorithm 1).

Each iteration collects T steps of N envs of several agents. With an agent's observation o, its
critic's input s, and the generalised advantage estimates A of V(s), the policy of a group of agents
minimises, over all steps in which one of them acted,

    -mean min(r A, clip(r, 1-ε, 1+ε) A) + c_1 mean (V(s) - G)² - c_2 mean H[π(·|o)],
    r = π(a|o) / π_old(a|o).

With a single agent this is PPO, and PPO's own code runs it.

Deviations from the paper and its code (marlbenchmark/on-policy), by default:
    1. normalised values, Huber loss, value clip and the critic's own step size are options;
    2. advantages are standardised within each minibatch of an epoch, as in PPO, over the steps in
       which agents acted;
    3. where an agent is truncated, its return is bootstrapped from its true final observation;
    4. a step lasts until the agent acts again; see
       :func:`rlox_marl.collector.estimate_team_advantages`;
    5. tanh networks without normalised features, as in PPO;
    6. one gradient norm bounds actor and critic together unless each has its own optimiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.losses import (
    ClippedSurrogate,
    Objective,
    PPOTerms,
    evaluate_actions,
    make_objective,
    ppo_loss,
    standardize,
)
from rlox.rollouts import RolloutMetrics
from torch import Tensor

from rlox_marl.configs import MAPPOConfig
from rlox_marl.team import TeamRolloutAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import MAPPOArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class MAPPOMetrics(RolloutMetrics):
    """Metrics of one iteration; losses are means over minibatches and policies.

    ``mean_reward`` averages the agents' mean return over episodes. ``value_loss`` is in normalised
    units if values are normalised.
    """

    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each agent over the same episodes, ``return/<agent>``."""
    optional: Mapping[str, float] = field(default_factory=dict)
    """With ``opponents``: the learner's rating ``elo``, and the pool's size ``pool_policies``."""


@dataclass(frozen=True)
class TeamSurrogate:
    """The clipped surrogate of a policy whose critic learns normalised targets.

        loss = -L_CLIP + c_1 mean max(h(V - G), h(clip(V, V_old ± ε_v) - G)) - c_2 mean H

    with h from :func:`huber`. If the policy has a ``value_norm``, its moments first take in G, and
    then it normalises V_old and G; V is the critic's output, normalised already.

    Source:
        Yu et al. 2022, sec. 5.1 and appendix A, and its code.
    """

    surrogate: ClippedSurrogate
    """The coefficients shared with PPO."""
    huber_delta: float | None = None
    """Error beyond which h is linear; ``None``: h is quadratic everywhere."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PPOTerms]:
        """Return the loss over B steps, and its terms."""
        numbers = self.surrogate
        advantages, returns, before = minibatch.advantages, minibatch.returns, minibatch.values
        if numbers.normalize_advantages:
            advantages = standardize(advantages)
        norm = getattr(policy, "value_norm", None)
        if norm is not None:
            norm.update(returns)
            returns, before = norm.normalize(returns), norm.normalize(before)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        loss, terms = ppo_loss(
            log_probs, entropy, values, minibatch.log_probs, before, advantages, returns,
            clip_eps=numbers.clip_eps, vf_coef=0.0, ent_coef=numbers.ent_coef,
            dual_clip=numbers.dual_clip,
        )  # fmt: skip
        errors = huber(values - returns, self.huber_delta)
        if numbers.vf_clip_eps is not None:
            change = values - before
            bound = numbers.vf_clip_eps
            clipped = huber(before + change.clamp(-bound, bound) - returns, self.huber_delta)
            errors = torch.where(change.abs() > bound, torch.maximum(errors, clipped), errors)
        value_loss = errors.mean()
        return loss + numbers.vf_coef * value_loss, replace(terms, value_loss=value_loss.detach())


def huber(errors: Tensor, delta: float | None) -> Tensor:
    """Return e² if abs(e) ≤ δ, else δ (2 abs(e) - δ).

    Args:
        errors: e.
        delta: δ; ``None`` squares every error.

    Source:
        Huber 1964, times 2, so that small errors are squared as in the plain value loss.
    """
    squares = errors.square()
    if delta is None:
        return squares
    size = errors.abs()
    return torch.where(size <= delta, squares, delta * (2 * size - delta))


def make_surrogate(config: Any, rates: Mapping[str, float]) -> Objective:
    """Return the current clipped surrogate, a :class:`TeamSurrogate` if a value option needs it.

    Args:
        config: MAPPO's or IPPO's.
        rates: current values of the scheduled options.
    """
    surrogate = make_objective(ClippedSurrogate, config, rates)
    if config.normalize_values != "none" or config.huber_delta is not None:
        return TeamSurrogate(surrogate, config.huber_delta)
    return surrogate


@final
class MAPPO(TeamRolloutAlgorithm):
    """Multi-agent PPO with centralised critics and decentralised actors.

    The arguments are those of :class:`rlox_marl.team.TeamRolloutAlgorithm`, with the options of
    :class:`MAPPOConfig`.
    """

    name = "mappo"
    config_class = MAPPOConfig
    config: MAPPOConfig
    metrics_class = MAPPOMetrics
    arguments = ("env_id", "n_agents", "n_envs", "seed")
    make_objective = staticmethod(make_surrogate)

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any = None, *given: Any, **options: Unpack[MAPPOArguments]
        ) -> None: ...
