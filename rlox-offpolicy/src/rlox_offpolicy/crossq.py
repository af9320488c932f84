"""CrossQ (Bhatt et al. 2024; arXiv 1902.05605, version 4).

Batch renormalization in critics and policy takes the place of target networks. Each gradient step
takes a batch, and passes it through the critics once, together with its next state and action:

    [q, q'] = Q([s, s'], [a, a']),  a' ~ π(.|s')                           sec. 3.2, fig. 2
    y       = r + γ (min over k of q'_k - α log π(a'|s'))
    J_Q     = Σ over k of mean ½ (q_k - y)²

where y has no gradient, so that both halves are normalised by the statistics of their mixture.
Every ``policy_delay`` steps it is followed by SAC's steps of the policy and the temperature, with
the critics in evaluation mode:

    J_π = mean α log π(a|s) - min over k of Q_k(s, a),  a ~ π(.|s)
    J_α = -mean log α (log π(a|s) + H̄)

Deviations from the paper:
    1. before ``learning_starts`` actions are uniform (the authors' code);
    2. optional: prioritized replay, targets of several steps;
    3. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.transitions import TransitionBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.learners.terms import AddedLosses, Losses, mean_terms
from rlox.learners.transitions import ChosenReplayLearner, Learn, Step, StepResult
from rlox.logging import LoggerCallback
from rlox.networks.defaults import EncodedCritics, EncodedPolicy, find_encoder
from rlox.networks.policies import SquashedGaussianPolicy
from rlox.networks.predict import drawing_from
from rlox.nn import FlatOptimizer, frozen, load_parts_state, parts_state
from rlox.spaces.rows import map_leaves
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offpolicy.batch_renorm import RenormCritics, RenormMLP
from rlox_offpolicy.building import make_learner, make_replay, optimizer_parts, require_box, resolve
from rlox_offpolicy.crossq_config import CrossQConfig
from rlox_offpolicy.metrics import SACMetrics, all_metrics
from rlox_offpolicy.own_networks import (
    B,
    on_device,
    require_outputs,
    require_stochastic,
    stochastic_actions,
)
from rlox_offpolicy.sac import Temperature
from rlox_offpolicy.targets import soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import CrossQOptions, Unpack

__all__ = ["CrossQ", "CrossQObjective", "CrossQPolicyTerms", "CrossQTerms"]


@dataclass(frozen=True)
class CrossQObjective:
    """What the steps depend on, for learner backends."""

    target_entropy: float | None
    """Entropy H̄ in nats that the temperature is learnt for; ``None``: it is fixed."""


@dataclass(frozen=True)
class CrossQTerms:
    """What a step of the critics reports; scalars without gradient."""

    q_loss: Tensor
    q_value: Tensor


@dataclass(frozen=True)
class CrossQPolicyTerms:
    """What a step of the policy reports; scalars without gradient."""

    policy_loss: Tensor
    entropy: Tensor
    alpha: Tensor


@final
class CrossQ(Algorithm):
    """CrossQ for continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.StochasticActor`;
            if it has an attribute ``generator`` that is ``None``, it gets the run's random stream.
            ``None`` makes one that fits the env's spaces.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics, normalised over the batch in training mode. ``None`` makes
            two MLPs.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer`.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`CrossQConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``priority_beta``; they
            win over the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"critic"`` or ``"policy"``,
            that are added to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`CrossQConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are no bounded box, or the observations have no encoder.
    """

    name: ClassVar[str] = "crossq"
    config_class: ClassVar[type[Config]] = CrossQConfig
    config: CrossQConfig
    learner: ChosenReplayLearner
    added_losses: AddedLosses

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | None = None,
        critic: nn.Module | None = None,
        buffer: Any = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: CrossQConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[CrossQOptions],
    ) -> None:
        resolved, parts = resolve(
            CrossQConfig, config, env_id, (policy, critic), {"buffer": buffer},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg, self.own_parts = self.config, parts.given
        self.schedules = Schedules(cfg, ("learning_rate", "priority_beta"), schedules)
        self.replay = make_replay(self, parts, self.schedules)
        act_dim = require_box(self.replay, "CrossQ")
        stream = self.streams.torch("policy")
        self.policy: Any = on_device(
            policy or self._make_policy(act_dim, stream), "policy", self.replay.device
        ).eval()
        self.critic: Any = on_device(
            critic or self._make_critic(act_dim, stream), "critic", self.replay.device
        ).eval()
        self._draw = stochastic_actions(self.policy, "policy", stream)
        if policy is not None:
            require_stochastic(policy, self.replay, "policy", act_dim)
        if critic is not None:
            require_outputs(critic, self.replay, "critic", (None, B), actions=True)
        self.temperature = Temperature(cfg.alpha).to(self.replay.device)
        self.target_entropy = -act_dim if cfg.target_entropy is None else cfg.target_entropy
        self.objective = CrossQObjective(self.target_entropy if cfg.auto_entropy else None)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        with_beta1 = partial(adam, betas=(cfg.adam_beta1, 0.999))
        self.optimizers = {
            "policy": FlatOptimizer(self.policy, with_beta1),
            "critic": FlatOptimizer(self.critic, with_beta1),
            "alpha": FlatOptimizer(self.temperature, adam),
        }
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self._parts = {
            "policy": self.policy,
            "critic": self.critic,
            "temperature": self.temperature,
            **optimizer_parts(self.optimizers),
            "agent": self.replay,
        }
        steps = {
            Learn.VALUES: Step(self._learn_values, CrossQTerms),
            Learn.POLICY: Step(self._learn_policy, CrossQPolicyTerms),
        }
        self.learner = make_learner(self, self.replay, self.objective, self._parts, steps)
        self._choose = self.learner.acting(self._sample)

    def _make_policy(self, act_dim: int, stream: torch.Generator) -> nn.Module:
        encoder, size = find_encoder(self.replay.env.observation_space, stream)
        cfg = self.config
        sizes = (size, cfg.hidden, cfg.hidden, 2 * act_dim)
        net = RenormMLP(sizes, generator=stream, **cfg.renorm)
        policy = SquashedGaussianPolicy(size, act_dim, net=net, generator=stream)
        return policy if encoder is None else EncodedPolicy(encoder, policy)

    def _make_critic(self, act_dim: int, stream: torch.Generator) -> nn.Module:
        encoder, size = find_encoder(self.replay.env.observation_space, stream)
        cfg = self.config
        critics = RenormCritics(size, act_dim, cfg.critic_hidden, generator=stream, **cfg.renorm)
        return critics if encoder is None else EncodedCritics(encoder, critics)

    def iterate(self, hooks: Hooks) -> SACMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        replay, q_terms, policy_terms = (
            self.replay, list[CrossQTerms](), list[CrossQPolicyTerms](),
        )  # fmt: skip

        def learn() -> None:
            for learning_rate in replay.updates_due(hooks, self.schedules):
                batch = replay.draw(self.learner)
                learnt = self.learner.step(Learn.VALUES, batch, learning_rate)
                replay.update_priorities(batch.indices, learnt.errors)
                q_terms.append(learnt.terms)
                if (self.clock.gradient_steps + 1) % self.config.policy_delay == 0:
                    learnt = self.learner.step(Learn.POLICY, batch, learning_rate)
                    policy_terms.append(learnt.terms)
                hooks.train_batch(lambda: mean_terms(CrossQTerms, q_terms[-1:]))

        with replay.iteration():
            learn()  # what an interrupted iteration left
            for _ in range(replay.vector_steps_left):
                replay.step(self._choose, hooks, self.learner)
                learn()
                if hooks.stopped:
                    break
        terms = mean_terms(CrossQTerms, q_terms), mean_terms(CrossQPolicyTerms, policy_terms)
        return SACMetrics(**all_metrics(self, *terms))

    def _learn_values(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        with torch.no_grad():
            next_actions, next_log_probs = self._draw(batch.next_obs)
        obs = map_leaves(lambda now, then: torch.cat((now, then)), batch.obs, batch.next_obs)
        self.critic.train()
        q, next_q = self.critic(obs, torch.cat((batch.actions, next_actions))).chunk(2, -1)
        self.critic.eval()
        next_values = soft_values(next_q.detach(), next_log_probs, self.temperature.value())
        errors = q - td_targets(batch.rewards, batch.discounts, next_values)
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = self.added_losses.add("critic", q_loss, self.critic, batch)
        self.optimizers["critic"].step(q_loss, learning_rate)
        terms = CrossQTerms(q_loss=q_loss.detach(), q_value=q.detach().mean())
        return StepResult(terms, errors.detach())

    def _learn_policy(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        alpha = self.temperature.value()
        self.policy.train()
        actions, log_probs = self._draw(batch.obs)
        self.policy.eval()
        with frozen(self.critic):
            values = self.critic(batch.obs, actions).amin(0)
        policy_loss = (alpha * log_probs - values).mean()
        policy_loss = self.added_losses.add("policy", policy_loss, self.policy, batch)
        self.optimizers["policy"].step(policy_loss, learning_rate)

        entropy = -log_probs.detach().mean()
        if self.objective.target_entropy is not None:
            alpha_loss = self.temperature.log_alpha * (entropy - self.objective.target_entropy)
            self.optimizers["alpha"].step(alpha_loss, learning_rate)
        return StepResult(
            CrossQPolicyTerms(policy_loss=policy_loss.detach(), entropy=entropy, alpha=alpha)
        )

    def _sample(self, obs: Tensor) -> npt.NDArray[Any]:
        return self._draw(obs)[0].cpu().numpy()

    def _mode(self, obs: Tensor) -> npt.NDArray[Any]:
        return self.policy.deterministic(obs).cpu().numpy()  # type: ignore[no-any-return]

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: tanh of the mean; else a sample of the policy.
        """
        if deterministic:
            return self.replay.predict(self._mode, obs)
        with drawing_from(self.streams.torch("predict"), self.policy):
            return self.replay.predict(self._sample, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.replay.policy_data(self.name, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, envs and buffer."""
        return parts_state(self._parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all parts; a fixed temperature is the config's."""
        load_parts_state(self._parts, state)
        if not self.config.auto_entropy:
            self.temperature.set(self.config.alpha)
