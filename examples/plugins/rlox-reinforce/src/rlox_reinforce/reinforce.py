"""REINFORCE with a learned baseline (Williams 1992, eq. 11; Sutton and Barto 2018, sec. 13.4).

Each iteration collects T steps of N envs and takes one step up the gradient

    ∇J = mean over steps of (G_t - b(s_t)) ∇ log π(a_t | s_t),

where G_t is the discounted return from step t on, and one step down that of the squared error
(G_t - b(s_t))².

Deviations from Williams:
    1. the baseline b depends on the state, as in Sutton and Barto;
    2. T steps of N envs instead of one episode: where a rollout's end or a time limit cuts an
       episode, the baseline stands in for the rest of its return;
    3. G_t - b(s_t) is standardised over the rollout, so that the step size fits any reward scale;
    4. Adam with a bound on the gradient's norm instead of plain ascent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from rlox.losses import PolicyGradientTerms, evaluate_actions, standardize
from rlox.rollouts import RolloutAlgorithm
from torch import Tensor

from rlox_reinforce.config import ReinforceConfig


@dataclass(frozen=True)
class BaselinedReturns:
    """What is minimised: -mean (G - b) log π + c mean (G - b)², the first without b's gradient."""

    baseline_coef: float
    """Weight c of the baseline's squared error."""

    def loss(self, policy: Any, minibatch: Any) -> tuple[Tensor, PolicyGradientTerms]:
        """Return the loss of a rollout's steps, and what is reported of it."""
        log_probs, entropy, baseline = evaluate_actions(policy, minibatch)
        # for λ = 1 the advantages are G_t - b(s_t), and the returns are G_t
        policy_loss = -(standardize(minibatch.advantages) * log_probs).mean()
        baseline_loss = (minibatch.returns - baseline).square().mean()
        loss = policy_loss + self.baseline_coef * baseline_loss
        terms = policy_loss.detach(), baseline_loss.detach(), entropy.mean().detach()
        return loss, PolicyGradientTerms(*terms)


@final
class Reinforce(RolloutAlgorithm):
    """Monte-Carlo policy gradient for discrete and continuous actions.

    The arguments are those of :class:`rlox.rollouts.RolloutAlgorithm`, with the options of
    :class:`ReinforceConfig`.
    """

    name = "reinforce"
    config_class = ReinforceConfig
    objective_class = BaselinedReturns
    arguments = ("env_id", "n_envs", "seed", "policy", "logger", "callbacks")
