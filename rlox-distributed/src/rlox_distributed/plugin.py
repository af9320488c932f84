"""Registers the command and the env backend of env workers with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec, CommandSpec, EnvBackendSpec


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox worker``."""
    yield CommandSpec(
        name="worker",
        summary="Serve envs to a learner on another machine.",
        factory="rlox_distributed.cli:make_command",
    )


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register the envs of workers."""
    yield EnvBackendSpec(
        name="grpc",
        summary="Envs of workers on other machines, over gRPC.",
        factory="rlox_distributed.backend:connect_envs",
        options="rlox_distributed.options:GrpcOptions",
        priority=0,
        remote=True,
    )


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register none."""
    return ()
