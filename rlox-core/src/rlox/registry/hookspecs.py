"""Plugin hook specifications (pluggy).

Each hook returns frozen specs and is called once, when the registry is first used.

A plugin is an import-light module named by an entry point of the group ``rlox``; the entry point's
name is the distribution's. There are no hooks into training: callbacks are that.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from rlox.registry.specs import (
    ActorBackendSpec,
    AlgorithmSpec,
    BufferSpec,
    CallbackSpec,
    CommandSpec,
    EnvBackendSpec,
    LearnerBackendSpec,
    LoggerSpec,
    LossSpec,
    PlaceSpec,
    PresetsSpec,
    RunOptionsSpec,
)

hookspec = pluggy.HookspecMarker("rlox")
hookimpl = pluggy.HookimplMarker("rlox")
"""Marks a plugin's function as the implementation of the hook of the same name."""


@hookspec
def rlox_algorithms() -> Iterable[AlgorithmSpec]:  # type: ignore[empty-body]
    """Return the algorithms that the distribution provides."""


@hookspec
def rlox_env_backends() -> Iterable[EnvBackendSpec]:  # type: ignore[empty-body]
    """Return the env backends that the distribution provides."""


@hookspec
def rlox_buffers() -> Iterable[BufferSpec]:  # type: ignore[empty-body]
    """Return the replay buffers that the distribution provides."""


@hookspec
def rlox_learner_backends() -> Iterable[LearnerBackendSpec]:  # type: ignore[empty-body]
    """Return the learner backends that the distribution provides."""


@hookspec
def rlox_actor_backends() -> Iterable[ActorBackendSpec]:  # type: ignore[empty-body]
    """Return the actor backends that the distribution provides."""


@hookspec
def rlox_policy_losses() -> Iterable[LossSpec]:  # type: ignore[empty-body]
    """Return the losses of sampled completions that the distribution provides."""


@hookspec
def rlox_preference_losses() -> Iterable[LossSpec]:  # type: ignore[empty-body]
    """Return the losses of preference pairs that the distribution provides."""


@hookspec
def rlox_loggers() -> Iterable[LoggerSpec]:  # type: ignore[empty-body]
    """Return the loggers that the distribution provides."""


@hookspec
def rlox_callbacks() -> Iterable[CallbackSpec]:  # type: ignore[empty-body]
    """Return the callbacks that the distribution provides."""


@hookspec
def rlox_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]
    """Return the commands that the distribution adds to the command line."""


@hookspec
def rlox_places() -> Iterable[PlaceSpec]:  # type: ignore[empty-body]
    """Return the places that the distribution provides for the runs of sweeps."""


@hookspec
def rlox_presets() -> Iterable[PresetsSpec]:  # type: ignore[empty-body]
    """Return the files of presets that the distribution provides."""


@hookspec
def rlox_run_options() -> Iterable[RunOptionsSpec]:  # type: ignore[empty-body]
    """Return the options that the distribution adds to ``rlox train`` and ``rlox resume``."""
