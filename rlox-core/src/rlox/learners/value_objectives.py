"""Objectives of algorithms that learn action values from batches of transitions.

Each is a frozen dataclass that holds every number its gradient steps depend on, and so says what
is learnt: a learner backend that knows the class and all of its fields may take the steps in its
own way. Learning rates come with every step instead, as schedules change them.

The parts, streams and steps that an objective names are those of
:class:`rlox.learners.transitions.ReplayTask`. Networks called ``target`` are the target networks.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ConservativeQ",
    "ImplicitQ",
    "TwinDelayed",
]


@dataclass(frozen=True)
class TwinDelayed:
    """TD3's critics and policy; DDPG's with one critic and no target noise, TD3+BC's with cloning.

    Steps: ``VALUES``, the critics; ``POLICY``, the policy and then all targets. How many of the
    former come before one of the latter is the caller's choice. Parts: ``policy``, ``critic``,
    ``policy_target``, ``critic_target``, ``policy_optimizer``, ``critic_optimizer``. Stream:
    ``target noise``. A learner's ``act`` takes the policy's mode.

    Source:
        Fujimoto et al. 2018, algorithm 1.
    """

    target_noise: float = 0.2
    """Deviation σ of the noise on the targets' actions, which lie in [-1, 1]; 0 adds no noise (sec.
    5.3)."""
    noise_clip: float = 0.5
    """Bound c of that noise."""
    tau: float = 0.005
    """Share of the networks in each update of their targets."""
    cloning: float | None = None
    """α of TD3+BC (Fujimoto and Gu 2021, eq. 5): the policy minimises mean (π(s) - a)² - λ mean Q,
    with λ = α / mean abs(Q); ``None`` minimises -mean Q."""


@dataclass(frozen=True)
class ImplicitQ:
    """IQL's value, policy and critics, one after the other.

    Step: ``ALL``, whose learning rate is the policy's. Parts: ``value``, ``policy``, ``critic``,
    ``critic_target``, ``value_optimizer``, ``policy_optimizer``, ``critic_optimizer``.

    Source:
        Kostrikov et al. 2022, algorithm 1.
    """

    learning_rate: float
    """Adam's step size for the value and the critics."""
    expectile: float = 0.7
    """τ of the value's loss (eq. 5)."""
    temperature: float = 3.0
    """Inverse temperature β of the policy's weights, per unit of return (eq. 7)."""
    max_weight: float = 100.0
    """Bound of those weights."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""
    stochastic: bool = True
    """Whether the policy's likelihood is maximised; else its squared errors are minimised."""


@dataclass(frozen=True)
class ConservativeQ:
    """CQL(H): SAC with critics that are low on actions which the dataset lacks.

    Steps: ``POLICY``, the temperature and the policy; ``CLONING``, the same with the policy after
    the dataset's actions; ``VALUES``, the multiplier, the critics and their targets. Parts:
    ``policy``, ``critic``, ``target``, ``temperature``, ``multiplier`` and the optimisers
    ``policy_optimizer``, ``critic_optimizer``, ``alpha_optimizer``, ``multiplier_optimizer``.
    Stream: ``random actions``. Returns to go in a batch bound the penalty from below (Nakamoto et
    al. 2023).

    Source:
        Kumar et al. 2020, eq. 4 and 30.
    """

    target_entropy: float | None
    """Entropy in nats that the temperature keeps; ``None`` keeps the temperature fixed."""
    penalty_weight: float = 5.0
    """Weight α_c of the penalty, or its factor beside the multiplier."""
    penalty_target: float | None = None
    """Penalty T beyond which the multiplier rises (eq. 30), in units of the return; ``None`` keeps
    the multiplier fixed."""
    n_random_actions: int = 10
    """Actions of each of three kinds that the penalty's sum is estimated with."""
    mode_targets: bool = False
    """Whether the targets take the policy's mode instead of a sample."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""
