"""Conservative Q-learning, CQL(H) (Kumar et al. 2020): SAC with pessimistic critics.

Q is pushed down on actions of the policy and on random ones, and up on the dataset's actions.
Each gradient step takes a minibatch (s, a, r, s') and

    ã ~ π(s);  step log α on  -log α · mean (log π(ã|s) + H)             entropy temperature
    step π on   mean α log π(ã|s) - min_i Q_i(s, ã)      (at first:  - log π(a|s) instead of - Q)
    y = r + γ min_i Q'_i(s', a'),  a' ~ π(s') or its mode                 no entropy in the backup
    P_i = mean log Σ_a exp Q_i(s, a) - Q_i(s, a_data)                     eq. 4, by sampling
    step Q on   Σ_i mean (Q_i(s, a) - y)² + α_c Σ_i (P_i - T)
    Q' ← Q' + τ (Q - Q')

With ``calibrated`` it is Cal-QL (Nakamoto et al. 2023): for the policy's actions a, P replaces
Q_i(s, a) by max(Q_i(s, a), G(s)) (eq. 5.1), with the dataset's discounted return G
from s on, so that pessimism ends where the behaviour policy is known to do better.

α_c is ``cql_alpha`` and T = 0, or, with ``auto_alpha``, α_c is ``cql_alpha`` times a Lagrange
multiplier ≥ 0 that rises where the penalty exceeds T = ``cql_target_value`` (eq. 30).

Deviations from the paper and the authors' code:
    1. two hidden layers in all networks; the code has three in the critics;
    2. the policy clones at first only if ``bc_steps`` is set; the code's 40 000 steps are meant
       for trainings of millions;
    3. actions are learnt in [-1, 1], to which the dataset's bounds are mapped;
    4. G of a cut episode repeats its last reward for ever, as Cal-QL's code does in tasks without
       an end, and elsewhere for episodes without success; for a successful one, its code sums the
       recorded rewards;
    5. Cal-QL's code uses the highest value of ten next actions in the targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import ConfigError
from rlox.learners.transitions import Parts, ReplayObjective, StepResult, frozen
from rlox.losses import make_objective
from rlox.networks import SquashedGaussianPolicy, TwinQNetwork, polyak_update
from rlox.nn import uniform
from torch import Tensor, nn

from rlox_offline.base import ActorCriticMetrics, DatasetAlgorithm
from rlox_offline.configs import CQLConfig
from rlox_offline.datasets.protocol import OfflineDataset
from rlox_offline.losses import cql_penalty, critic_loss
from rlox_offline.networks import LogScale

if TYPE_CHECKING:
    from rlox_offline.option_types import CQLArguments, Unpack


@dataclass(frozen=True)
class CQLMetrics(ActorCriticMetrics):
    """Metrics of one iteration."""

    cql_loss: float
    """The weighted penalty, summed over both critics."""
    alpha: float
    """Weight α of the entropy."""
    cql_alpha: float
    """Weight α_c of the penalty."""
    entropy: float
    """Estimate -mean log π(ã|s) in nats."""


@dataclass(frozen=True)
class ConservativeQ(ReplayObjective):
    """CQL(H): SAC with low critic values for actions outside the dataset.

    If a batch has returns to go, they are lower bounds in the penalty, as in Cal-QL.
    """

    target_entropy: float | None
    """Target entropy H of the temperature, in nats; ``None`` fixes the temperature."""
    penalty_weight: float = 5.0
    """Weight α_c of the penalty; multiplied by the Lagrange multiplier if that is learnt."""
    penalty_target: float | None = None
    """Penalty T beyond which the multiplier rises (eq. 30), in units of the return; ``None`` fixes
    the multiplier."""
    n_random_actions: int = 10
    """Samples of each of three kinds of actions in the penalty's estimate."""
    mode_targets: bool = False
    """Whether the targets use the policy's mode instead of a sample."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""
    bc_steps: int = 0
    """Initial gradient steps in which the policy clones the dataset."""

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the policy's step and the critics'."""
        return "clone" if gradient_step <= self.bc_steps else "learn_policy", "learn_values"

    def clone(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the policy up the likelihood of the dataset's actions."""
        _, log_probs = parts.policy.get_action_and_logprob(batch.obs)
        attraction = parts.policy.log_prob(batch.obs, batch.actions)
        return self._step_policy(parts, batch, log_probs, attraction, learning_rate)

    def learn_policy(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the policy up the values of its actions."""
        actions, log_probs = parts.policy.get_action_and_logprob(batch.obs)
        with frozen(parts.critic):
            attraction = parts.critic(batch.obs, actions).amin(0)
        return self._step_policy(parts, batch, log_probs, attraction, learning_rate)

    def _step_policy(
        self, parts: Parts, batch: Any, log_probs: Tensor, attraction: Tensor, learning_rate: float
    ) -> StepResult:
        entropy = -log_probs.detach().mean()
        if self.target_entropy is not None:
            alpha_loss = parts.alpha.log_value * (entropy - self.target_entropy)
            parts.minimize("alpha", alpha_loss, batch, learning_rate)
        alpha = parts.alpha().detach()
        loss = (alpha * log_probs - attraction).mean()
        loss = parts.minimize("policy", loss, batch, learning_rate)
        return StepResult({"policy_loss": loss, "entropy": entropy, "alpha": alpha})

    def learn_values(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the multiplier and the critics, and move the targets."""
        q = parts.critic(batch.obs, batch.actions)
        q_loss = critic_loss(q, self.bellman_targets(parts, batch))
        penalty = self.penalty(parts, batch, q)
        if self.penalty_target is not None:
            penalty = penalty - self.penalty_target
            excess = (parts.multiplier() * self.penalty_weight * penalty.detach()).mean()
            parts.minimize("multiplier", -excess, batch, learning_rate)
        weight = self.penalty_weight * parts.multiplier().detach().clamp(max=1e6)
        cql_loss = weight * penalty.sum()
        parts.minimize("critic", q_loss + cql_loss, batch, learning_rate)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        terms = {"q_loss": q_loss.detach(), "q_value": q.detach().mean()}
        return StepResult({**terms, "cql_loss": cql_loss.detach(), "cql_alpha": weight})

    @torch.no_grad()
    def bellman_targets(self, parts: Parts, batch: TransitionBatch) -> Tensor:
        """Return the critics' targets y, (B,)."""
        if self.mode_targets:
            next_actions = parts.policy.deterministic(batch.next_obs)
        else:
            next_actions, _ = parts.policy.get_action_and_logprob(batch.next_obs)
        next_values = parts.critic_target(batch.next_obs, next_actions).amin(0)
        return batch.rewards + batch.discounts * next_values  # type: ignore[no-any-return]

    def penalty(self, parts: Parts, batch: TransitionBatch, data_q: Tensor) -> Tensor:
        """Return the unweighted penalty of each critic, (K,)."""
        n, (size, act_dim) = self.n_random_actions, batch.actions.shape
        with torch.no_grad():
            here, here_log_probs = parts.policy.get_action_and_logprob(batch.obs, n)
            there, there_log_probs = parts.policy.get_action_and_logprob(batch.next_obs, n)
            log_probs = torch.cat((here_log_probs, there_log_probs))
            random = uniform(here, parts.stream("random actions"))
            actions = torch.cat((random, here, there))
        obs = batch.obs.expand(3 * n, -1, -1).reshape(3 * n * size, -1)
        q = parts.critic(obs, actions.view(3 * n * size, act_dim)).view(-1, 3 * n, size)
        return cql_penalty(q[:, :n], q[:, n:], log_probs, data_q, act_dim, batch.returns_to_go)


@final
class CQL(DatasetAlgorithm):
    """Conservative Q-learning for continuous actions.

    With ``calibrated``, a dataset without returns raises a ``ConfigError``.
    """

    name = "cql"
    config_class = CQLConfig
    metrics_class = CQLMetrics
    arguments = ("dataset", "obs_dim", "act_dim")
    if TYPE_CHECKING:

        def __init__(self, *_: Any, env: Any = None, **options: Unpack[CQLArguments]) -> None: ...

    def drawn_from(self, dataset: OfflineDataset) -> OfflineDataset:
        """Return the dataset, with returns for Cal-QL."""
        cfg = self.config
        if not cfg.calibrated:
            return dataset
        if not hasattr(dataset, "with_returns"):
            raise ConfigError(
                "calibrated=True needs a dataset with a method with_returns, as "
                f"rlox_offline.datasets.Dataset has it, got {type(dataset).__name__}"
            )
        view: OfflineDataset = dataset.with_returns(cfg.gamma, cfg.reward_scale, cfg.reward_shift)
        return view

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return policy, two critics, temperature and multiplier."""
        policy = SquashedGaussianPolicy(obs_dim, act_dim, **options)
        policy.generator = self.streams.torch("policy")
        critic = TwinQNetwork(obs_dim, act_dim, **options)
        return {"policy": policy, "critic": critic, "alpha": LogScale(), "multiplier": LogScale()}

    def make_objective(self) -> ConservativeQ:
        """Return the objective; the default target entropy is minus the action size."""
        cfg = self.config
        entropy = -float(cfg.act_dim) if cfg.target_entropy is None else cfg.target_entropy
        numbers = {
            "target_entropy": entropy if cfg.auto_entropy else None,
            "penalty_weight": cfg.cql_alpha,
            "penalty_target": cfg.cql_target_value if cfg.auto_alpha else None,
        }
        return make_objective(ConservativeQ, cfg, numbers)

    def step_size(self, step: str) -> float:
        """Return the step size of policy and temperature, or of critics and multiplier."""
        cfg = self.config
        return float(cfg.learning_rate if step == "learn_values" else cfg.actor_learning_rate)
