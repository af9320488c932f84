"""Actor-critic, objective and metrics of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch
from rlox.config.model import Config, changed
from rlox.envs.episodes import EpisodeStatistics
from rlox.errors import ConfigError
from rlox.learners.tasks import Objective
from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker
from torch import nn

__all__ = ["NETWORK_OPTIONS", "fill_metrics", "make_agent", "make_metrics", "require_objective"]

MetricsT = TypeVar("MetricsT")

NETWORK_OPTIONS = ("recurrent", "memory_size", "network", "hidden")
"""The options of the default networks."""


def make_agent(
    algorithm: Algorithm,
    make_optimizer: partial[Any],
    policy: nn.Module | PolicyMaker | None,
    collector: Collector | None = None,
) -> ActorCritic:
    """Return the actor-critic of an algorithm's env and config; the algorithm's close frees it.

    The algorithm gets its optimiser.

    Args:
        algorithm: its base has been initialised; its config has the fields read below.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        collector: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
    """
    cfg = algorithm.config
    agent = ActorCritic(
        algorithm.env_source,
        algorithm.streams,
        make_optimizer,
        policy=policy,
        collector=collector,
        hidden=cfg.hidden,
        network=cfg.network,
        recurrent=cfg.recurrent,
        memory_size=cfg.memory_size,
        normalize_observations=cfg.normalize_observations,
        normalize_rewards=cfg.normalize_rewards,
        frame_stack=cfg.frame_stack,
        max_grad_norm=cfg.max_grad_norm,
        n_envs=cfg.n_envs,
        gamma=cfg.gamma,
        gae_lambda=cfg.gae_lambda,
        env_backend=cfg.env_backend,
        vectorization=cfg.vectorization,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    algorithm.optimizers = {"policy": agent.optimizer}
    return agent


def require_objective(
    objective: Objective | None,
    options: Sequence[str],
    config: Config,
    keywords: Mapping[str, Any],
    schedules: Mapping[str, Callable[[int], float]] | None,
) -> None:
    """Check an objective of the user's own, which brings all the numbers of its loss.

    Args:
        objective: what the user passed.
        options: the numbers of the algorithm's own objective.
        config: what the options resolve to.
        keywords: the options that were passed one by one. They alone count if the config has every
            option, as a saved one does.
        schedules: what the user passed.

    Raises:
        ConfigError: an option or a schedule would be ignored.
        TypeError: the objective has no method ``loss``.
    """
    if objective is None:
        return
    if not callable(getattr(objective, "loss", None)):
        raise TypeError(
            "objective must have a method loss(policy, minibatch) -> (scalar, terms), got "
            f"{objective!r}"
        )
    saved = config.model_fields_set == set(type(config).model_fields)
    given = keywords if saved else config.given()
    for name in options:
        if (name in given and changed(config, name)) or name in (schedules or {}):
            raise ConfigError(
                f"{name} is a number of the algorithm's own objective, and objective= brings all "
                "of its own; leave it out, and set it in the objective"
            )


def make_metrics(
    kind: type[MetricsT],
    algorithm: Any,
    batch: RolloutBatch,
    terms: Mapping[str, float],
    **more: float,
) -> MetricsT:
    """Return the metrics of an iteration.

    Args:
        kind: dataclass of the metrics; those that an objective does not report are NaN, and what
            it reports beyond them is among ``added``.
        algorithm: whose episodes and added losses are reported.
        batch: what was learned from.
        terms: means of the loss's terms.
        more: further metrics.
    """
    return fill_metrics(
        kind,
        algorithm,
        algorithm.collector.statistics,
        terms,
        **({"explained_variance": batch.explained_variance()} | more),
    )


def fill_metrics(
    kind: type[MetricsT],
    algorithm: Any,
    statistics: EpisodeStatistics,
    terms: Mapping[str, float],
    **more: float,
) -> MetricsT:
    """Return the metrics of an iteration; see :func:`make_metrics`.

    Args:
        kind: dataclass of the metrics.
        algorithm: whose added losses are reported.
        statistics: of the episodes.
        terms: means of the loss's terms.
        more: further metrics.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    known = {
        "mean_reward": statistics.mean_return,
        "mean_episode_length": statistics.mean_length,
        "episodes": float(statistics.finished),
        **{name: value for name, value in terms.items() if name in names},
        **more,
    }
    added = {name: value for name, value in terms.items() if name not in names}
    return kind(
        **{name: float("nan") for name in names}
        | known
        | {"added": added | algorithm.added_losses.means()}
    )
