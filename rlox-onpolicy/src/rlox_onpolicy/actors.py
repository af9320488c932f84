"""The frame of algorithms that learn from actors' unrolls."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlox.batches.rollout import join_unrolls, on_device
from rlox.config.composition import selection
from rlox.config.model import given_options
from rlox.envs.make import fixed_env_count
from rlox.errors import ConfigError
from rlox.rollouts import (
    ActorPlan,
    ActorRollouts,
    RolloutAlgorithm,
    RolloutMetrics,
    resolve_for_env,
)
from rlox.training.hooks import Hooks

from rlox_onpolicy.configs import ActorsConfig


@dataclass(frozen=True, kw_only=True)
class ActorMetrics(RolloutMetrics):
    """Metrics of one iteration about its actors."""

    lag_min: float
    """Age in updates of the weights that acted: least, mean and greatest over the unrolls."""
    lag_mean: float
    lag_max: float
    queue: float
    """Unrolls ready for the next updates."""
    unrolls_dropped: float
    """Total so far, for a lag beyond ``max_lag``."""
    restarts: float
    """Total restarts of actors so far."""


class ActorAlgorithm(RolloutAlgorithm):
    """Actors in threads or processes collect, with weights that may be older than the learner's.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env (one actor), or
            a list of vector envs, one for each actor.
        policy: see :class:`rlox.rollouts.RolloutAlgorithm`; actors act with copies of it.
        callbacks: hooks into training; ``on_step`` is called when an unroll has arrived.
        worker_addresses: ``host:port`` of env workers that serve ``env_id``
            (``env_backend="grpc"``), as a sequence or separated by commas, divided evenly among
            the actors; ``None``: the envs are built here. Checkpoints do not hold them.
    """

    config_class: ClassVar[type[ActorsConfig]]
    config: ActorsConfig
    actors: ActorRollouts

    def _resolve(self, env_id: Any, config: Any, options: dict[str, Any]) -> ActorsConfig:
        self.worker_addresses = options.pop("worker_addresses", None)
        for name, value in worker_options(env_id, self.worker_addresses).items():
            options.setdefault(name, value)
        given = given_options(self.config_class, config, **options)
        of_envs = ("actor_backend", "n_actors")
        return resolve_for_env(self.config_class, given, fit_to_envs, env_id, *of_envs)

    def _env_options(self) -> dict[str, Any]:
        cfg = self.config
        return {
            "env_backend": selection(cfg, "env_backend"),
            "vectorization": cfg.vectorization,
            "env_kwargs": cfg.env_kwargs,
        }

    def make_collector(self) -> ActorRollouts:
        """Return the actors, not yet started."""
        cfg = self.config
        self.actors = ActorRollouts(
            self.env_source,
            self._env_options(),
            n_actors=cfg.n_actors,
            n_envs=cfg.n_envs,
            normalize_observations=cfg.normalize_observations,
            frame_stack=cfg.frame_stack,
            clip_rewards=cfg.clip_rewards,
        )
        return self.actors

    def _complete(self) -> None:
        """Build the actors, now that there is a policy."""
        cfg = self.config
        plan = ActorPlan(
            env=self.env_source,
            policy=copy.deepcopy(self.policy).cpu(),
            n_actors=cfg.n_actors,
            n_envs=cfg.n_envs,
            n_steps=cfg.n_steps,
            seed=self.streams.seeds("actors", 1)[0],
            backend=cfg.backend if cfg.device == "cpu" else "auto",
            normalize_observations=cfg.normalize_observations,
            frame_stack=cfg.frame_stack,
            torch_threads=cfg.torch_threads,
            deadline=cfg.worker_timeout,
            max_restarts=cfg.max_restarts,
            **self._env_options(),
        )
        self.actors.start(
            plan,
            selection(cfg, "actor_backend"),
            order=cfg.order,
            min_actors=cfg.min_workers,
            per_update=cfg.update_size,
            queue_size=cfg.queue_size,
            max_lag=cfg.max_lag,
        )

    def iterate(self, hooks: Hooks) -> Any:
        """Take collected unrolls and learn from them."""
        metrics = super().iterate(hooks)
        self.actors.version += 1
        return metrics

    def rollout(self, hooks: Hooks) -> tuple[Any, dict[str, float]]:
        """Return the joined unrolls of an update."""
        seen = dict(vars(self.actors.gather(self, hooks)))
        return on_device(join_unrolls(seen.pop("unrolls")), self.device), seen


def fit_to_envs(config: ActorsConfig, env: Any) -> ActorsConfig:
    """Return the config with the numbers of actors and envs that ``env`` fixes, if any.

    Args:
        config: the algorithm's.
        env: the user's ``env`` argument.

    Raises:
        ConfigError: another number of actors was chosen, the actors' vector envs differ in size,
            or the envs are objects that only a thread can step.
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
            f"{type(env[0] if several else env).__name__}; pass an id or a callable, or use "
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
    """Return the options of envs that workers step; an empty dict without addresses.

    Args:
        env_id: id of the env that the workers serve.
        addresses: ``host:port`` of each, or one text separated by commas.

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
