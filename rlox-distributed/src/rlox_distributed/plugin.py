"""Registers the command of env workers with rlox."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import AlgorithmSpec, CommandSpec


@hookimpl
def rlox_commands() -> Iterable[CommandSpec]:
    """Register ``rlox worker``."""
    yield CommandSpec(
        name="worker",
        summary="Serve envs to a learner on another machine.",
        factory="rlox_distributed.cli:make_command",
    )


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register none."""
    return ()
