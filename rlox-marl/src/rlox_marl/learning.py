"""Arguments, learning and objectives of MAPPO and IPPO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rlox.config.schedules import Schedules
from rlox.envs import is_team
from rlox.errors import ConfigError
from rlox.learners import AddedLosses, Losses, Objective, Update
from rlox.losses import ClippedSurrogate
from rlox.networks.validate import refuse_network_options
from rlox.rollouts import NETWORK_OPTIONS, make_objective, require_objective

from rlox_marl.configs import MAPPOConfig
from rlox_marl.objectives import TeamSurrogate
from rlox_marl.one_agent import OneAgent
from rlox_marl.team import Team

__all__ = ["check_arguments", "make_learning", "objective_of", "scheduled"]

SCHEDULED = ("learning_rate", "clip_eps", "ent_coef")

LOSS_OPTIONS = (*(field.name for field in fields(ClippedSurrogate)), "huber_delta")
"""The options that are numbers of the algorithm's own objective."""


def check_arguments(
    config: MAPPOConfig,
    keywords: Mapping[str, Any],
    policy: Any,
    objective: Objective | None,
    schedules: Mapping[str, Callable[[int], float]] | None,
) -> None:
    """Check a policy and an objective of the user's own against the options beside them.

    Args:
        config: what the options resolve to.
        keywords: the options that were passed one by one.
        policy: the user's own, or ``None``.
        objective: the user's own, or ``None``.
        schedules: what the user passed.

    Raises:
        ConfigError: an option or a schedule would be ignored.
        TypeError: the objective has no method ``loss``.
    """
    if policy is not None:
        refuse_network_options(NETWORK_OPTIONS, config, keywords)
    require_objective(objective, LOSS_OPTIONS, config, keywords, schedules)


def scheduled(config: MAPPOConfig) -> tuple[str, ...]:
    """Return the options that may be schedules."""
    own = () if config.critic_learning_rate is None else ("critic_learning_rate",)
    return (*SCHEDULED, *own)


def make_learning(
    algorithm: Any,
    policy: Any,
    objective: Objective | None,
    added_losses: Losses | None,
    update: Update,
) -> OneAgent | Team:
    """Return how an algorithm learns: as a team, or as one agent.

    Args:
        algorithm: its base has been initialised; ``schedules`` too. It gets the objective and the
            added losses.
        policy: the user's own, or ``None``.
        objective: the user's own, or ``None``.
        added_losses: of the part ``"policy"``, which all policies minimise.
        update: of one policy from its rollout, in torch.

    Raises:
        ConfigError: ``n_agents`` contradicts the env, or there is no env.
    """
    cfg, source = algorithm.config, algorithm.env_source
    algorithm.added_losses = AddedLosses(added_losses, ("policy",))
    algorithm.own_objective = objective
    if source is None:
        raise ConfigError("there is no env; pass its id or a callable as env_id, or env_fn=")
    first = objective_of(algorithm, Schedules(cfg, scheduled(cfg)).at(0, 0))
    if is_team(source, backend=cfg.env_backend, env_kwargs=cfg.env_kwargs):
        _check_memory(cfg)
        return Team(algorithm, policy, first, update)
    if cfg.n_agents not in (None, 1):
        raise ConfigError(
            f"n_agents is {cfg.n_agents}, but the env has one agent; pass a PettingZoo env, or "
            "leave n_agents out"
        )
    return OneAgent(algorithm, policy, first, update)


def _check_memory(config: MAPPOConfig) -> None:
    """Check what a memory needs of a team's rollouts, whose rows only the env says."""
    if config.recurrent == "none":
        return
    if config.batch_size % config.n_steps:
        raise ConfigError(
            f"batch_size {config.batch_size} is no multiple of n_steps {config.n_steps}; the "
            "minibatches of a recurrent policy are whole sequences"
        )
    if config.opponents != "none":
        raise ConfigError(
            f"opponents='{config.opponents}' needs policies without a memory, got "
            f"recurrent='{config.recurrent}'; leave one of them out"
        )


def objective_of(algorithm: Any, rates: Mapping[str, float]) -> Objective:
    """Return what an algorithm's policies minimise now.

    Args:
        algorithm: has a config and an objective of its own or ``None``.
        rates: values of the options that may be schedules.
    """
    cfg = algorithm.config
    if algorithm.own_objective is not None:
        own: Objective = algorithm.own_objective
        return own
    surrogate = make_objective(ClippedSurrogate, cfg, rates)
    if cfg.normalize_values != "none" or cfg.huber_delta is not None:
        return TeamSurrogate(surrogate, cfg.huber_delta)
    return surrogate
