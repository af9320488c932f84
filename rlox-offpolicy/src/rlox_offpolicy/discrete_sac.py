"""Soft actor-critic for discrete actions (Christodoulou 2019, algorithm 1; arXiv 1910.07207).

What :mod:`rlox_offpolicy.sac` estimates with one sampled action is a sum over all of them here.
Each gradient step takes a batch from the replay buffer and, with π(s) and Q(s) as vectors,

    V(s') = π(s')ᵀ (min over k of Q'_k(s') - α log π(s'))                  eq. 10
    y     = r + γ V(s')
    J_Q   = Σ over k of mean ½ (Q_k(s, a_data) - y)²                       eq. 4
    J_π   = mean π(s)ᵀ (α log π(s) - min over k of Q_k(s))                 eq. 12
    J_α   = -mean log α (π(s)ᵀ log π(s) + H̄)                               eq. 11

and moves the target critics Q' towards Q. γ is 0 where the task ended.

Deviations from the paper:
    1. log α is learnt, with log α in the place of α in J_α, as in :mod:`rlox_offpolicy.sac`;
    2. the target critics move by τ each gradient step, where the paper copies every 8000;
    3. before ``learning_starts`` actions are uniform (the author's code);
    4. optional: prioritized replay, targets of several steps;
    5. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
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
from rlox.learners.value_objectives import DiscreteSoftActorCritic
from rlox.logging import LoggerCallback
from rlox.networks import polyak_update
from rlox.networks.defaults import make_discrete_critics, make_logits
from rlox.nn import (
    FlatOptimizer,
    load_parts_state,
    parts_state,
)
from rlox.nn.distributions import Categorical
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offpolicy.building import (
    make_learner,
    make_replay,
    optimizer_parts,
    require_discrete,
    resolve,
)
from rlox_offpolicy.configs import DiscreteSACConfig
from rlox_offpolicy.metrics import SACMetrics, all_metrics
from rlox_offpolicy.own_networks import B, on_device, require_outputs
from rlox_offpolicy.sac import SACTerms, Temperature
from rlox_offpolicy.targets import expected_soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DiscreteSACOptions, Unpack

__all__ = ["DiscreteSAC"]


@final
class DiscreteSAC(Algorithm):
    """Soft actor-critic for discrete actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: a ``torch.nn.Module`` from observations (B, *shape) to logits (B, A). ``None``
            makes one that fits the env's spaces.
        critic: a ``torch.nn.Module`` from observations (B, *shape) to action values (K, B, A) of K
            critics. ``None`` makes two that fit.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer`.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`DiscreteSACConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``priority_beta``; they
            win over the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"critic"`` or ``"policy"``,
            that are added to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`DiscreteSACConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are not discrete, or the observations have no encoder.
    """

    name: ClassVar[str] = "discrete_sac"
    config_class: ClassVar[type[Config]] = DiscreteSACConfig
    config: DiscreteSACConfig
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
        config: DiscreteSACConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[DiscreteSACOptions],
    ) -> None:
        resolved, parts = resolve(
            DiscreteSACConfig, config, env_id, (policy, critic), {"buffer": buffer},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg, self.own_parts = self.config, parts.given
        self.schedules = Schedules(cfg, ("learning_rate", "priority_beta"), schedules)
        self.replay = make_replay(self, parts, self.schedules)
        space = self.replay.env.observation_space
        n_actions = require_discrete(self.replay, self.name)
        sizes: Any = {"hidden": cfg.hidden, "generator": self.streams.torch("policy")}
        device = self.replay.device
        own = policy or make_logits(space, n_actions, **sizes)
        self.policy: Any = on_device(own, "policy", device)
        own = critic or make_discrete_critics(space, n_actions, n_critics=2, **sizes)
        self.critic: Any = on_device(own, "critic", device)
        if policy is not None:
            require_outputs(policy, self.replay, "policy", (B, n_actions))
        if critic is not None:
            require_outputs(critic, self.replay, "critic", (None, B, n_actions))
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(cfg.alpha).to(device)
        self.target_entropy = (
            0.98 * math.log(n_actions) if cfg.target_entropy is None else cfg.target_entropy
        )
        self.objective = DiscreteSoftActorCritic(
            target_entropy=self.target_entropy if cfg.auto_entropy else None, tau=cfg.tau
        )
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.optimizers = {
            "policy": FlatOptimizer(self.policy, adam),
            "critic": FlatOptimizer(self.critic, adam),
            "alpha": FlatOptimizer(self.temperature, adam),
        }
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self._parts = {
            "policy": self.policy,
            "critic": self.critic,
            "target": self.target,
            "temperature": self.temperature,
            **optimizer_parts(self.optimizers),
            "agent": self.replay,
        }
        steps = {Learn.ALL: Step(self._learn, SACTerms)}
        self.learner = make_learner(self, self.replay, self.objective, self._parts, steps)
        self._choose = self.learner.acting(self._act)

    def iterate(self, hooks: Hooks) -> SACMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        replay, collected = self.replay, list[SACTerms]()
        with replay.iteration():
            self._learn_due(hooks, collected)  # what an interrupted iteration left
            for _ in range(replay.vector_steps_left):
                replay.step(self._choose, hooks, self.learner)
                self._learn_due(hooks, collected)
                if hooks.stopped:
                    break
        return SACMetrics(**all_metrics(self, mean_terms(SACTerms, collected)))

    def _learn_due(self, hooks: Hooks, collected: list[SACTerms]) -> None:
        """Take the gradient steps that are due."""
        for learning_rate in self.replay.updates_due(hooks, self.schedules):
            batch = self.replay.draw(self.learner)
            learnt = self.learner.step(Learn.ALL, batch, learning_rate)
            self.replay.update_priorities(batch.indices, learnt.errors)
            collected.append(learnt.terms)
            hooks.train_batch(lambda: mean_terms(SACTerms, collected[-1:]))

    def _learn(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        alpha = self.temperature.value()

        with torch.no_grad():
            next_log_probs = self.policy(batch.next_obs).log_softmax(-1)
            next_values = expected_soft_values(self.target(batch.next_obs), next_log_probs, alpha)
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        all_q = self.critic(batch.obs)
        q = all_q.gather(-1, batch.actions.expand(len(all_q), -1, -1)).squeeze(-1)
        errors = q - targets
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = self.added_losses.add("critic", q_loss, self.critic, batch)
        self.optimizers["critic"].step(q_loss, learning_rate)

        log_probs = self.policy(batch.obs).log_softmax(-1)
        probs = log_probs.exp()
        with torch.no_grad():
            values = self.critic(batch.obs).amin(0)
        policy_loss = (probs * (alpha * log_probs - values)).sum(-1).mean()
        policy_loss = self.added_losses.add("policy", policy_loss, self.policy, batch)
        self.optimizers["policy"].step(policy_loss, learning_rate)

        entropy = -(probs * log_probs).detach().sum(-1).mean()
        if self.objective.target_entropy is not None:
            alpha_loss = self.temperature.log_alpha * (entropy - self.objective.target_entropy)
            self.optimizers["alpha"].step(alpha_loss, learning_rate)

        polyak_update(self.critic, self.target, self.objective.tau)
        terms = SACTerms(
            q_loss=q_loss.detach(),
            q_value=q.detach().mean(),
            policy_loss=policy_loss.detach(),
            entropy=entropy,
            alpha=alpha,
        )
        return StepResult(terms, errors.detach())

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        return self._sample(obs, "actions")

    def _sample(self, obs: Any, stream: str) -> npt.NDArray[Any]:
        actions, _ = Categorical(self.policy(obs)).sample(self.streams.torch(stream))
        return actions.cpu().numpy()

    def _mode(self, obs: Any) -> npt.NDArray[Any]:
        logits: Tensor = self.policy(obs)
        return logits.argmax(-1).cpu().numpy()

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: the most probable action; else a sample of the policy.
        """
        choose = self._mode if deterministic else partial(self._sample, stream="predict")
        return self.replay.predict(choose, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.replay.policy_data(self.name, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, envs and buffer."""
        return parts_state(self._parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers, envs and buffer; a fixed temperature is the config's."""
        load_parts_state(self._parts, state)
        if not self.config.auto_entropy:
            self.temperature.set(self.config.alpha)
