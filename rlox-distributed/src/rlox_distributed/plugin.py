"""Registers env workers, Ray's backends and a command with rlox."""

from collections.abc import Iterable

from rlox.registry.specs import (
    ActorBackendSpec,
    BufferSpec,
    CommandSpec,
    EnvBackendSpec,
    PlaceSpec,
    hookimpl,
)


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox worker``."""
    yield CommandSpec(
        name="worker",
        summary="Serve envs to a learner on another machine.",
        factory="rlox_distributed.cli:make_command",
    )


@hookimpl
def rlox_actor_backends() -> Iterable[ActorBackendSpec]:
    """Register ``ray``."""
    yield ActorBackendSpec(
        name="ray",
        summary="Actors on a Ray cluster; unrolls and weights go through its object store.",
        factory="rlox_distributed.ray_backends:make_ray_actor",
        options="rlox_distributed.options:RayActorOptions",
    )


@hookimpl
def rlox_buffers() -> Iterable[BufferSpec]:
    """Register ``ray``."""
    yield BufferSpec(
        name="ray",
        summary="Transitions in a Ray actor, which draws the next batch ahead.",
        factory="rlox_distributed.ray_buffer:make_ray_buffer",
        options="rlox_distributed.options:RayBufferOptions",
        in_memory=False,
    )


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register the envs of workers and those of a Ray cluster."""
    yield EnvBackendSpec(
        name="grpc",
        summary="Envs of workers on other machines, over gRPC.",
        factory="rlox_distributed.pool:connect_envs",
        options="rlox_distributed.options:GrpcOptions",
        priority=0,
        remote=True,
    )
    yield EnvBackendSpec(
        name="ray",
        summary="gymnasium envs on a Ray cluster, one per actor; for slow envs.",
        factory="rlox_distributed.ray_backends:make_ray_envs",
        options="rlox_distributed.options:RayEnvOptions",
        priority=-1,
    )


@hookimpl
def rlox_places() -> Iterable[PlaceSpec]:
    """Register ``ray``."""
    yield PlaceSpec(
        name="ray",
        summary="The nodes of a Ray cluster; runs of a lost node continue on others.",
        factory="rlox_distributed.ray_place:RayPlace",
    )
