"""Actor-critics built from configs, and objectives of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from torch import nn

from rlox.config.composition import selection
from rlox.config.model import Config, changed
from rlox.errors import ConfigError
from rlox.learners.tasks import Objective
from rlox.nn import set_compute_dtype
from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker

__all__ = ["NETWORK_OPTIONS", "make_agent", "make_objective", "require_objective"]

ObjectiveT = TypeVar("ObjectiveT")

NETWORK_OPTIONS = ("recurrent", "memory_size", "network", "hidden")
"""The options of the default networks."""


def make_agent(
    algorithm: Any,
    make_optimizer: partial[Any],
    policy: nn.Module | PolicyMaker | None,
    collector: Collector | None = None,
) -> ActorCritic:
    """Return the actor-critic of an algorithm's env and config; the algorithm's close frees it.

    The algorithm gets its optimiser.

    Args:
        algorithm: a :class:`rlox.Algorithm` whose base has been initialised; its config has the
            fields read below.
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
        clip_rewards=cfg.clip_rewards,
        frame_stack=cfg.frame_stack,
        seq_len=getattr(cfg, "seq_len", None),
        max_grad_norm=cfg.max_grad_norm,
        n_envs=cfg.n_envs,
        gamma=cfg.gamma,
        gae_lambda=cfg.gae_lambda,
        env_backend=selection(cfg, "env_backend"),
        vectorization=cfg.vectorization,
        env_kwargs=cfg.env_kwargs,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    set_compute_dtype(agent.policy, cfg.compute_dtype)
    algorithm.optimizers = {"policy": agent.optimizer}
    return agent


def make_objective(
    kind: type[ObjectiveT], config: Config, rates: Mapping[str, float]
) -> ObjectiveT:
    """Return an objective with the numbers of now.

    Args:
        kind: a dataclass whose fields are options of the config.
        config: the algorithm's.
        rates: values of the options that may be schedules, which win over the config.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: rates.get(name, getattr(config, name)) for name in names})


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
