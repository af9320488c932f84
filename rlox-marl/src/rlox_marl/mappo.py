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
    4. a step lasts until the agent acts again; see :mod:`rlox_marl.advantages`;
    5. tanh networks without normalised features, as PPO's;
    6. one gradient norm bounds actor and critic together unless they have optimisers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from rlox.batches import RolloutBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.learners import (
    AddedLosses,
    Losses,
    Objective,
    RolloutTask,
    make_metrics,
    mean_terms,
    passes_target_kl,
)
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.rollouts import fit_to_env
from rlox.training.hooks import Hooks

from rlox_marl.configs import MAPPOConfig
from rlox_marl.learning import check_arguments, make_learning, objective_of, scheduled
from rlox_marl.one_agent import OneAgent
from rlox_marl.team import Team
from rlox_marl.team_algorithm import TeamAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import MAPPOOptions, Unpack

__all__ = [
    "MAPPO",
    "MAPPOMetrics",
    "minimize_over_epochs",
    "report",
]


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
class MAPPO(TeamAlgorithm):
    """Multi-agent PPO with centralised critics and decentralised actors.

    Args:
        env_id: of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such an
            env, or a :class:`rlox.protocols.MultiAgentVecEnv`; of one agent: what PPO takes.
        n_agents: number of agents; ``None``: the env's.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None``: drawn from entropy.
        env_fn: makes a PettingZoo env; it is taken in the place of ``env_id``.
        policy: of several agents a callable, see :class:`rlox_marl.team.Team`; of one agent see
            :class:`rlox.rollouts.actor_critic.ActorCritic`; ``None``: networks that fit the spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`MAPPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps``,
            ``ent_coef`` or ``critic_learning_rate``; they win over the config and are not saved.
        objective: minimised by every policy in place of the clipped surrogate; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, minibatch) -> scalar`` that
            are added to the loss of every policy; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`MAPPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts the env, the policy or the
            objective.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "mappo"
    config_class: ClassVar[type[Config]] = MAPPOConfig
    config: MAPPOConfig
    learning: OneAgent | Team
    added_losses: AddedLosses

    def __init__(
        self,
        env_id: Any = None,
        n_agents: int | Unset | None = UNSET,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        *,
        env_fn: Callable[[], Any] | None = None,
        policy: Any = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: MAPPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[MAPPOOptions],
    ) -> None:
        resolved = resolve_config(
            MAPPOConfig, config, n_agents=n_agents, n_envs=n_envs, seed=seed, **config_kwargs
        )
        check_arguments(resolved, config_kwargs, policy, objective, schedules)
        source = env_id if env_fn is None else env_fn
        super().__init__(
            source, config=fit_to_env(resolved, source), callbacks=callbacks, logger=logger
        )
        self.schedules = Schedules(self.config, scheduled(self.config), schedules)
        self.learning = make_learning(self, policy, objective, added_losses, minimize_over_epochs)
        self.collector = self.learning.collector

    def iterate(self, hooks: Hooks) -> MAPPOMetrics:
        """Collect T steps of N envs, and minimise each policy's surrogate for K epochs."""
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective = objective_of(self, rates)
        with torch_threads(self.config.torch_threads):
            batch: Any = self.learning.collect(hooks)
            hooks.rollout_end(batch)
            terms = self.learning.update(batch, objective, rates, hooks)
        return report(self.learning, terms, self.added_losses, rates["learning_rate"])


def minimize_over_epochs(
    task: RolloutTask,
    batch: RolloutBatch,
    objective: Objective,
    learning_rate: float,
    hooks: Hooks,
) -> dict[str, float]:
    """Minimise the objective for K epochs of minibatches (algorithm 1).

    Args:
        task: one policy, its optimiser, and how many epochs and rows.
        batch: the steps in which its agents acted.
        objective: PPO's, or with the values' options.
        learning_rate: Adam's.
        hooks: called after every gradient step.

    Returns:
        Means of the loss's terms over the minibatches.
    """
    assert task.batch_size is not None
    collected: list[Any] = []
    for _ in range(task.n_epochs):
        for minibatch in batch.sample_minibatches(task.batch_size, generator=task.generator):
            loss, terms = objective.loss(task.policy, minibatch)
            collected.append(terms)
            if passes_target_kl(terms, task.target_kl):
                return mean_terms(type(terms), collected)
            loss = task.added_losses.add("policy", loss, task.policy, minibatch)
            task.optimizer.step(loss, learning_rate)
            hooks.train_batch(lambda terms=terms: mean_terms(type(terms), [terms]))  # type: ignore[misc]
    return mean_terms(type(collected[0]), collected)


def report(
    learning: OneAgent | Team, terms: Mapping[str, float], added: AddedLosses, rate: float
) -> MAPPOMetrics:
    """Return the metrics of an iteration.

    Args:
        learning: whose episodes are reported.
        terms: means of the loss's terms.
        added: the user's own losses.
        rate: learning rate.
    """
    statistics = learning.collector.statistics
    more: dict[str, Any] = {
        "mean_reward": statistics.mean_return,
        "mean_episode_length": statistics.mean_length,
        "episodes": float(statistics.finished),
        "learning_rate": rate,
        "agents": learning.agent_metrics(),
        "optional": learning.optional_metrics(),
    }
    return make_metrics(MAPPOMetrics, terms, added, **more)
