"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, algorithm 1).

Each gradient step takes a batch from the replay buffer and, with ε ~ clip(N(0, σ²), -c, c),

    a'   = clip(μ'(s') + ε, -1, 1)                                         eq. 14
    y    = r + γ min over k of Q'_k(s', a')                                eq. 10
    J_Q  = Σ over k of mean (Q_k(s, a_data) - y)²

and every d-th gradient step a step up the gradient of mean Q_1(s, μ(s)), after which the target
networks μ' and Q' move towards μ and Q. γ is 0 where the task ended.

DDPG (Lillicrap et al. 2016) is the same with one critic, d = 1 and no ε.

Deviations from the paper:
    1. a' is clipped to the action space (the authors' code);
    2. optional: Ornstein-Uhlenbeck noise, prioritized replay, targets of several steps;
    3. a value is bootstrapped from the true final observation if an episode was truncated.
"""

from __future__ import annotations

import copy
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
from rlox.learners.terms import AddedLosses, Losses, PolicyTerms, QTerms, mean_terms
from rlox.learners.transitions import ChosenReplayLearner, Learn, Step, StepResult
from rlox.learners.value_objectives import TwinDelayed
from rlox.logging import LoggerCallback
from rlox.networks import polyak_update
from rlox.networks.defaults import make_critics, make_deterministic_policy
from rlox.nn import FlatOptimizer, frozen, load_parts_state, parts_state, standard_normal
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
from rlox_offpolicy.configs import TD3Config
from rlox_offpolicy.metrics import TD3Metrics, all_metrics
from rlox_offpolicy.own_networks import B, on_device, require_outputs
from rlox_offpolicy.own_parts import Parts
from rlox_offpolicy.targets import clipped_double_values, smoothed_actions, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import TD3Options, Unpack

__all__ = ["TD3", "DeterministicActorCritic"]


class DeterministicActorCritic:
    """Everything of TD3 but its place in the registry: DDPG is this with other arguments.

    Args:
        algorithm: whose env, config, clock and streams are used; its base has been initialised.
        policy: see :class:`TD3`.
        critic: see :class:`TD3`.
        parts: buffer and exploration; see :class:`TD3`.
        schedules: see :class:`TD3`.
        n_critics: number K of critics that are made here.
        policy_delay: gradient steps d of the critics for one of the policy.
        objective: what is learnt.
        added_losses: see :class:`TD3`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        policy: nn.Module | None,
        critic: nn.Module | None,
        parts: Parts,
        schedules: Mapping[str, Callable[[int], float]] | None,
        n_critics: int,
        policy_delay: int,
        objective: TwinDelayed,
        added_losses: Losses | None,
    ) -> None:
        cfg, self.clock = algorithm.config, algorithm.clock
        self.policy_delay, self.objective = policy_delay, objective
        self.schedules = Schedules(cfg, ("learning_rate", "priority_beta"), schedules)
        self.replay = make_replay(algorithm, parts, self.schedules)
        self.exploration = make_exploration(algorithm, parts)
        space = self.replay.env.observation_space
        act_dim = require_box(self.replay, algorithm.name.upper())
        sizes: Any = {"hidden": cfg.hidden, "generator": algorithm.streams.torch("policy")}
        own = policy or make_deterministic_policy(space, act_dim, **sizes)
        self.policy: Any = on_device(own, "policy", self.replay.device)
        own = critic or make_critics(space, act_dim, n_critics=n_critics, **sizes)
        self.critic: Any = on_device(own, "critic", self.replay.device)
        if policy is not None:
            mode = "deterministic" if hasattr(policy, "deterministic") else None
            require_outputs(policy, self.replay, "policy", (B, act_dim), method=mode)
        if critic is not None:
            require_outputs(critic, self.replay, "critic", (None, B), actions=True)
        self.policy_target: Any = copy.deepcopy(self.policy).requires_grad_(False)
        self.critic_target: Any = copy.deepcopy(self.critic).requires_grad_(False)
        self._mu = getattr(self.policy, "deterministic", self.policy)
        self._target_mu = getattr(self.policy_target, "deterministic", self.policy_target)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.optimizers = algorithm.optimizers = {
            "policy": FlatOptimizer(self.policy, adam),
            "critic": FlatOptimizer(self.critic, adam),
        }
        algorithm.added_losses = self.added_losses = AddedLosses(added_losses, self.optimizers)
        self._noise = algorithm.streams.torch("target noise")
        self.parts = {
            "policy": self.policy,
            "critic": self.critic,
            "policy_target": self.policy_target,
            "critic_target": self.critic_target,
            **optimizer_parts(self.optimizers),
            "exploration": self.exploration,
            "agent": self.replay,
        }
        steps = {
            Learn.VALUES: Step(self.learn_values, QTerms),
            Learn.POLICY: Step(self.learn_policy, PolicyTerms),
        }
        streams = {"target noise": self._noise}
        self.learner = make_learner(algorithm, self.replay, objective, self.parts, steps, streams)
        self._choose = self.learner.acting(self.mode)

    def iterate(self, hooks: Hooks) -> TD3Metrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        replay, q_terms, policy_terms = self.replay, list[QTerms](), list[PolicyTerms]()

        def learn() -> None:
            for learning_rate in replay.updates_due(hooks, self.schedules):
                batch = replay.draw(self.learner)
                learnt = self.learner.step(Learn.VALUES, batch, learning_rate)
                replay.update_priorities(batch.indices, learnt.errors)
                q_terms.append(learnt.terms)
                if (self.clock.gradient_steps + 1) % self.policy_delay == 0:
                    learnt = self.learner.step(Learn.POLICY, batch, learning_rate)
                    policy_terms.append(learnt.terms)
                hooks.train_batch(lambda: mean_terms(QTerms, q_terms[-1:]))

        with replay.iteration():
            learn()  # what an interrupted iteration left
            for _ in range(replay.vector_steps_left):
                replay.step(self._act, hooks, self.learner)
                learn()
                if hooks.stopped:
                    break
        terms = mean_terms(QTerms, q_terms), mean_terms(PolicyTerms, policy_terms)
        return TD3Metrics(**all_metrics(self, *terms))

    def mode(self, obs: Tensor) -> npt.NDArray[Any]:
        """Return the actions of observations, without noise."""
        return self._mu(obs).cpu().numpy()  # type: ignore[no-any-return]

    def _act(self, obs: Any) -> npt.NDArray[Any]:
        begun = self.replay.collector.episode_start
        return self.exploration.explore(self._choose(obs), begun, self.clock.env_steps)

    def learn_values(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the critics."""
        with torch.no_grad():
            next_actions = self._target_mu(batch.next_obs)
            if (deviation := self.objective.target_noise) > 0:
                noise = standard_normal(next_actions, self._noise).mul_(deviation)
                next_actions = smoothed_actions(next_actions, noise, self.objective.noise_clip)
            next_values = clipped_double_values(self.critic_target(batch.next_obs, next_actions))
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        q = self.critic(batch.obs, batch.actions)
        errors = q - targets
        q_loss = (batch.weights * errors.square()).mean(-1).sum()
        q_loss = self.added_losses.add("critic", q_loss, self.critic, batch)
        self.optimizers["critic"].step(q_loss, learning_rate)
        terms = QTerms(q_loss=q_loss.detach(), q_value=q.detach().mean())
        return StepResult(terms, errors.detach())

    def learn_policy(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the policy, and move the target networks."""
        with frozen(self.critic):
            values = self.critic(batch.obs, self._mu(batch.obs))[0]
        policy_loss = -values.mean()
        policy_loss = self.added_losses.add("policy", policy_loss, self.policy, batch)
        self.optimizers["policy"].step(policy_loss, learning_rate)
        polyak_update(self.policy, self.policy_target, self.objective.tau)
        polyak_update(self.critic, self.critic_target, self.objective.tau)
        return StepResult(PolicyTerms(policy_loss=policy_loss.detach()))


@final
class TD3(Algorithm):
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: a ``torch.nn.Module`` as :class:`rlox.protocols.DeterministicActor`. ``None``
            makes one that fits the env's spaces.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics. ``None`` makes two MLPs.
        buffer: a registered name, or an object with the methods of
            :class:`rlox.protocols.ReplayBuffer`.
        exploration: ``"gaussian"``, ``"ornstein-uhlenbeck"``, ``"none"``, or an object with the
            methods of :class:`rlox.protocols.ExplorationStrategy`.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`TD3Config`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``priority_beta``; they
            win over the config and are not saved in checkpoints.
        added_losses: functions ``(module, batch) -> scalar`` by part, ``"critic"`` or ``"policy"``,
            that are added to the part's loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`TD3Config`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range.
        EnvError: the env cannot be built.
        SpaceError: the actions are no bounded box, or the observations have no encoder.
    """

    name: ClassVar[str] = "td3"
    config_class: ClassVar[type[Config]] = TD3Config
    config: TD3Config
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
        config: TD3Config | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[TD3Options],
    ) -> None:
        resolved, parts = resolve(
            TD3Config, config, env_id, (policy, critic),
            {"buffer": buffer, "exploration": exploration},
            n_envs=n_envs, seed=seed, **config_kwargs,
        )  # fmt: skip
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        self.own_parts = parts.given
        self.actor_critic = DeterministicActorCritic(
            self,
            policy=policy,
            critic=critic,
            schedules=schedules,
            parts=parts,
            n_critics=2,
            policy_delay=self.config.policy_delay,
            objective=TwinDelayed(
                target_noise=self.config.target_noise,
                noise_clip=self.config.noise_clip,
                tau=self.config.tau,
            ),
            added_losses=added_losses,
        )
        of = self.actor_critic
        self.replay, self.schedules, self.exploration = of.replay, of.schedules, of.exploration
        self.policy, self.policy_target, self.critic = of.policy, of.policy_target, of.critic
        self.target, self.learner = of.critic_target, of.learner

    def iterate(self, hooks: Hooks) -> TD3Metrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        return self.actor_critic.iterate(hooks)

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return μ(s) for one observation, or for a batch; see ``Algorithm``."""
        return self.replay.predict(self.actor_critic.mode, obs)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.replay.policy_data(self.name, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimisers, noise, envs and buffer."""
        return parts_state(self.actor_critic.parts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimisers, noise, envs and buffer."""
        load_parts_state(self.actor_critic.parts, state)
