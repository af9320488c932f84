"""Soft actor-critic (Haarnoja et al. 2018b, algorithm 1; arXiv 1812.05905).

Each gradient step takes a batch from the replay buffer and, with a' ~ π(.|s') and a ~ π(.|s),

    y    = r + γ (min over k of Q'_k(s', a') - α log π(a'|s'))            eq. 2, 3
    J_Q  = Σ over k of mean ½ (Q_k(s, a_data) - y)²                        eq. 5
    J_π  = mean α log π(a|s) - min over k of Q_k(s, a)                     eq. 7, 9
    J_α  = -mean log α (log π(a|s) + H̄)                                    eq. 18

and moves the target critics Q' towards Q. γ is 0 where the task ended.

Deviations from the paper:
    1. log α is learnt, with log α in the place of α in J_α (the authors' softlearning);
    2. before ``learning_starts`` actions are uniform (the authors' softlearning);
    3. optional: exploration noise on top of the policy's own, prioritized replay, targets of
       several steps;
    4. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

import copy
import math
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
from rlox.learners.terms import AddedLosses, Losses, Scalar, mean_terms
from rlox.learners.transitions import ChosenReplayLearner, Learn, Step, StepResult
from rlox.learners.value_objectives import SoftActorCritic
from rlox.logging import LoggerCallback
from rlox.networks import polyak_update
from rlox.networks.defaults import make_critics, make_squashed_gaussian
from rlox.networks.predict import drawing_from
from rlox.nn import FlatOptimizer, frozen, load_parts_state, parts_state
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_offpolicy.building import (
    make_exploration,
    make_learner,
    make_replay,
    optimizer_parts,
    require_box,
    resolve,
)
from rlox_offpolicy.configs import SACConfig
from rlox_offpolicy.metrics import SACMetrics, all_metrics
from rlox_offpolicy.own_networks import (
    B,
    on_device,
    require_outputs,
    require_stochastic,
    stochastic_actions,
)
from rlox_offpolicy.targets import soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import SACOptions, Unpack

__all__ = ["SAC", "SACTerms"]


@dataclass(frozen=True)
class SACTerms:
    """What one gradient step reports."""

    q_loss: Scalar
    q_value: Scalar
    policy_loss: Scalar
    entropy: Scalar
    alpha: Scalar


class Temperature(nn.Module):
    """α as a parameter, kept positive as exp(log α).

    Args:
        alpha: initial value.
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))

    @torch.no_grad()
    def set(self, alpha: float) -> None:
        """Set α."""
        self.log_alpha.fill_(math.log(alpha))

    def value(self) -> Tensor:
        """Return α without gradient."""
        return self.log_alpha.detach().exp()


@final
class SAC(Algorithm):
    """Soft actor-critic for continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.StochasticActor`;
            if it has an attribute ``generator`` that is ``None``, it gets the run's random stream.
            ``None`` makes one that fits the env's spaces.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics. ``None`` makes two MLPs.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer`.
        exploration: noise on top of the policy's own, see :mod:`rlox_offpolicy.exploration`;
            ``None`` takes what the config says.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`SACConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``priority_beta``; they
            win over the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"critic"`` or ``"policy"``,
            that are added to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`SACConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are no bounded box, or the observations have no encoder.
    """

    name: ClassVar[str] = "sac"
    config_class: ClassVar[type[Config]] = SACConfig
    config: SACConfig
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
        exploration: Any = UNSET,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: SACConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[SACOptions],
    ) -> None:
        resolved, parts = resolve(
            SACConfig, config, env_id, (policy, critic),
            {"buffer": buffer, "exploration": exploration},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg, self.own_parts = self.config, parts.given
        self.schedules = Schedules(cfg, ("learning_rate", "priority_beta"), schedules)
        self.replay = make_replay(self, parts, self.schedules)
        self.exploration = make_exploration(self, parts)
        space, act_dim = self.replay.env.observation_space, require_box(self.replay, "SAC")
        stream = self.streams.torch("policy")
        device = self.replay.device
        sizes: Any = {"hidden": cfg.hidden, "generator": stream}
        own = policy or make_squashed_gaussian(space, act_dim, **sizes)
        self.policy: Any = on_device(own, "policy", device)
        own = critic or make_critics(space, act_dim, n_critics=2, **sizes)
        self.critic: Any = on_device(own, "critic", device)
        self._draw = stochastic_actions(self.policy, "policy", stream)
        if policy is not None:
            require_stochastic(policy, self.replay, "policy", act_dim)
        if critic is not None:
            require_outputs(critic, self.replay, "critic", (None, B), actions=True)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(cfg.alpha).to(device)
        self.target_entropy = -act_dim if cfg.target_entropy is None else cfg.target_entropy
        self.objective = SoftActorCritic(
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
            "exploration": self.exploration,
            "agent": self.replay,
        }
        steps = {Learn.ALL: Step(self._learn, SACTerms)}
        self.learner = make_learner(self, self.replay, self.objective, self._parts, steps)
        self._choose = self.learner.acting(self._sample)

    def iterate(self, hooks: Hooks) -> SACMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        replay, collected = self.replay, list[SACTerms]()
        with replay.iteration():
            self._learn_due(hooks, collected)  # what an interrupted iteration left
            for _ in range(replay.vector_steps_left):
                replay.step(self._act, hooks, self.learner)
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

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        starts = self.replay.collector.episode_start
        return self.exploration.explore(self._choose(obs), starts, self.clock.env_steps)

    def _learn(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        alpha = self.temperature.value()
        with torch.no_grad():
            next_actions, next_log_probs = self._draw(batch.next_obs)
            next_q = self.target(batch.next_obs, next_actions)
            next_values = soft_values(next_q, next_log_probs, alpha)
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        q = self.critic(batch.obs, batch.actions)
        errors = q - targets
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = self.added_losses.add("critic", q_loss, self.critic, batch)
        self.optimizers["critic"].step(q_loss, learning_rate)

        actions, log_probs = self._draw(batch.obs)
        with frozen(self.critic):
            values = self.critic(batch.obs, actions).amin(0)
        policy_loss = (alpha * log_probs - values).mean()
        policy_loss = self.added_losses.add("policy", policy_loss, self.policy, batch)
        self.optimizers["policy"].step(policy_loss, learning_rate)

        entropy = -log_probs.detach().mean()
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

    def _sample(self, obs: Tensor) -> npt.NDArray[Any]:
        return self._draw(obs)[0].cpu().numpy()

    def _mode(self, obs: Tensor) -> npt.NDArray[Any]:
        return self.policy.deterministic(obs).cpu().numpy()  # type: ignore[no-any-return]

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: tanh of the mean; else a sample of the policy, without added noise.
        """
        if deterministic:
            return self.replay.predict(self._mode, obs)
        with drawing_from(self.streams.torch("predict"), self.policy):
            return self.replay.predict(self._sample, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.replay.policy_data(self.name, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, noise, envs and buffer."""
        return parts_state(self._parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all parts; a fixed temperature is the config's."""
        load_parts_state(self._parts, state)
        if not self.config.auto_entropy:
            self.temperature.set(self.config.alpha)
