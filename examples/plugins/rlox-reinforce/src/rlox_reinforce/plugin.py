"""Registers everything with rlox. Only strings: nothing heavy is imported before its first use."""

from collections.abc import Iterable

from rlox import AlgorithmSpec, EnvBackendSpec, LoggerSpec, hookimpl


@hookimpl
def rlox_algorithms() -> Iterable[AlgorithmSpec]:
    """Register REINFORCE."""
    yield AlgorithmSpec(
        name="reinforce",
        summary="Monte-Carlo policy gradient with a learned baseline.",
        config="rlox_reinforce.config:ReinforceConfig",
        factory="rlox_reinforce.reinforce:Reinforce",
        paper="https://doi.org/10.1007/BF00992696",
    )


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register the corridor; any algorithm finds it by its id."""
    yield EnvBackendSpec(
        name="corridor",
        summary="A corridor of eight cells, N of them stepped by NumPy.",
        factory="rlox_reinforce.corridor:make_corridor",
        env_ids=("Corridor-v0",),
    )


@hookimpl
def rlox_loggers() -> Iterable[LoggerSpec]:
    """Register the Markdown logger."""
    yield LoggerSpec(
        name="markdown",
        summary="Markdown tables, training.md and evaluation.md.",
        factory="rlox_reinforce.logger:MarkdownLogger",
    )
