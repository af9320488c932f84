"""Actors and vector envs on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rlox.envs.processes import ProcessVecEnv
from rlox.rollouts import ActorPlan, ProcessActor

from rlox_distributed.options import RayActorOptions, RayEnvOptions
from rlox_distributed.ray_worker import RayWorker


def make_ray_actor(plan: ActorPlan, index: int, *, options: RayActorOptions) -> ProcessActor:
    """Build an actor of the backend ``ray``.

    It sends whole unrolls and receives weights once per version through the object store.
    """
    worker = partial(
        RayWorker, address=options.ray_address, cpus=options.ray_cpus, shares_arrays=True
    )
    return ProcessActor(plan, index, worker)


def make_ray_envs(
    env_id: str,
    *,
    n_envs: int,
    env_kwargs: Mapping[str, Any] | None,
    options: RayEnvOptions,
) -> ProcessVecEnv:
    """Build the envs of the backend ``ray``, each in its own Ray actor."""
    return ProcessVecEnv(
        env_id,
        n_envs,
        env_kwargs=env_kwargs,
        step_timeout=options.ray_step_timeout,
        max_restarts=options.ray_restarts,
        make_worker=partial(RayWorker, address=options.ray_address, cpus=options.ray_cpus),
    )
