"""Multi-agent PPO: decentralised actors, centralised critics (Yu et al. 2022, algorithm 1).

Each iteration collects T steps of N envs of several agents. With o the observation of an agent, s
what its critic sees, and A the generalised advantage estimates of V(s), the policy of a group of
agents minimises, over all steps in which one of them acted,

    -mean min(r A, clip(r, 1-ε, 1+ε) A) + c_1 mean (V(s) - G)² - c_2 mean H[π(·|o)],
    r = π(a|o) / π_old(a|o).

With one agent that is PPO on its env, done by PPO's own parts.

Deviations from the paper and its code (marlbenchmark/on-policy), by default:
    1. normalised values, Huber loss, value clip and the critic's own step size are options;
    2. advantages are standardised within each minibatch of an epoch, as PPO does it, over steps in
       which agents acted;
    3. where an agent was truncated, the value of its true final observation is bootstrapped from;
    4. a step lasts until the agent acts again; see
       :func:`rlox_marl.collector.estimate_team_advantages`;
    5. tanh networks without normalised features, as PPO's;
    6. one gradient norm bounds actor and critic together unless they have optimisers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from rlox_marl.configs import MAPPOConfig
from rlox_marl.objectives import make_surrogate
from rlox_marl.team import TeamRolloutAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import MAPPOArguments, Unpack

__all__ = ["MAPPO", "MAPPOMetrics"]


@dataclass(frozen=True)
class MAPPOMetrics:
    """What one iteration reports; losses are means over minibatches and policies."""

    mean_reward: float
    """Mean over the last 100 finished episodes of the mean over agents of their returns; NaN before
    the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    policy_loss: float
    value_loss: float
    """Of normalised values, if values are normalised."""
    entropy: float
    """In nats."""
    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    learning_rate: float
    agents: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each agent over the same episodes, ``return/<agent>``."""
    optional: Mapping[str, float] = field(default_factory=dict)
    """With ``opponents``: ``elo``, the learner's rating, and ``pool_policies``."""
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses, and of the terms of an objective of the user's own."""


@final
class MAPPO(TeamRolloutAlgorithm):
    """Multi-agent PPO with centralised critics and decentralised actors.

    Args:
        env_id: of several agents, or of one; all arguments are those of
            :class:`rlox_marl.team.TeamRolloutAlgorithm`, with the options of :class:`MAPPOConfig`.
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
