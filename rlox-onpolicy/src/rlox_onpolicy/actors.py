"""The actors of an algorithm's env and config."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rlox.config.composition import selection
from rlox.envs.make import fixed_env_count
from rlox.errors import ConfigError
from rlox.rollouts import ActorCritic, Collector, PolicyMaker
from rlox.rollouts.actors import ActorPlan, ActorRollouts
from torch import nn

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

    from rlox_onpolicy.actor_options import ActorsConfig

__all__ = ["fit_to_envs", "make_actor_critic", "start_actors", "worker_options"]


def fit_to_envs(config: ActorsConfig, env: Any) -> ActorsConfig:
    """Return the config with the numbers of actors and envs that ``env`` is, if that is fixed.

    Args:
        config: of the algorithm.
        env: what the user passed as env.

    Raises:
        ConfigError: another number of actors was chosen, envs of several actors differ in number,
            or they are objects that only a thread can step.
    """
    several = isinstance(env, (list, tuple))
    counts = [fixed_env_count(each) for each in (env if several else [env])]
    if not counts or (several and None in counts):
        raise ConfigError(
            f"a list of envs must hold a vector env for each actor, got {env!r}; for copies of one "
            "env pass its id"
        )
    if counts[0] is None:
        return config
    if len(set(counts)) > 1:
        raise ConfigError(f"the actors' vector envs must be of equal size, got {counts}")
    if config.actor_backend != "thread":
        raise ConfigError(
            f"actor_backend '{config.actor_backend}' builds its envs elsewhere, got a "
            f"{type(env[0] if several else env).__name__}; pass an id or a callable, or take "
            "actor_backend='thread'"
        )
    chosen = {"n_actors": len(counts), "n_envs": counts[0]}
    for name, fixed in chosen.items():
        if name in config.model_fields_set and getattr(config, name) != fixed:
            raise ConfigError(
                f"{name} is {getattr(config, name)}, but the env is {len(counts)} vector envs of "
                f"{counts[0]} envs; leave {name} out, or pass an id"
            )
    return config.replace(**chosen)


def worker_options(env_id: Any, addresses: Sequence[str] | str | None) -> dict[str, Any]:
    """Return the options of envs that workers step; none without addresses.

    Args:
        env_id: what the workers must serve.
        addresses: ``host:port`` of each, or a text of them separated by commas.

    Raises:
        ConfigError: the env has no id.
        MissingDependencyError: rlox-distributed is not installed.
    """
    if addresses is None:
        return {}
    if not isinstance(env_id, str):
        raise ConfigError(
            f"worker_addresses needs the id of the env that the workers serve, got {env_id!r}"
        )
    importlib.import_module("rlox.distributed")
    return {"env_backend": "grpc", "worker_addresses": addresses}


def make_actor_critic(
    algorithm: Algorithm,
    env: Any,
    make_optimizer: partial[Any],
    policy: nn.Module | PolicyMaker | None,
) -> tuple[ActorCritic, ActorRollouts]:
    """Return policy and optimiser for an env and a config, and the actors, not begun.

    The algorithm gets its optimiser, and its close frees the actors.

    Args:
        algorithm: has the config.
        env: an id, a callable, a vector env, or one for each actor.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
    """
    cfg: ActorsConfig = algorithm.config
    actors = ActorRollouts(
        env,
        _env_options(cfg),
        n_actors=cfg.n_actors,
        n_envs=cfg.n_envs,
        normalize_observations=cfg.normalize_observations,
        frame_stack=cfg.frame_stack,
        clip_rewards=cfg.clip_rewards,
    )
    agent = ActorCritic(
        env,
        algorithm.streams,
        make_optimizer,
        policy=policy,
        collector=cast("Collector", actors),
        hidden=cfg.hidden,
        network=cfg.network,
        recurrent=cfg.recurrent,
        memory_size=cfg.memory_size,
        max_grad_norm=cfg.max_grad_norm,
        device=cfg.device,
        threads=cfg.torch_threads,
    )
    algorithm.resources.callback(agent.close)
    algorithm.optimizers = {"policy": agent.optimizer}
    return agent, actors


def start_actors(algorithm: Algorithm, env: Any, agent: ActorCritic, actors: ActorRollouts) -> None:
    """Build the actors of an algorithm that has its policy."""
    cfg: ActorsConfig = algorithm.config
    plan = ActorPlan(
        env=env,
        policy=copy.deepcopy(agent.policy).cpu(),
        n_actors=cfg.n_actors,
        n_envs=cfg.n_envs,
        n_steps=cfg.n_steps,
        seed=algorithm.streams.seeds("actors", 1)[0],
        backend=cfg.backend if cfg.device == "cpu" else "auto",
        normalize_observations=cfg.normalize_observations,
        frame_stack=cfg.frame_stack,
        torch_threads=cfg.torch_threads,
        deadline=cfg.worker_timeout,
        max_restarts=cfg.max_restarts,
        **_env_options(cfg),
    )
    actors.start(
        plan,
        selection(cfg, "actor_backend"),
        order=cfg.order,
        min_actors=cfg.min_workers,
        per_update=cfg.update_size,
        queue_size=cfg.queue_size,
        max_lag=cfg.max_lag,
    )


def _env_options(config: ActorsConfig) -> dict[str, Any]:
    return {
        "env_backend": selection(config, "env_backend"),
        "vectorization": config.vectorization,
        "env_kwargs": config.env_kwargs,
    }
