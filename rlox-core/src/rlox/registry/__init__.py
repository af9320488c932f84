"""Registry: plugins, specs and names."""

from rlox.registry.entry import Registration, kind_of
from rlox.registry.hookspecs import hookimpl
from rlox.registry.plugins import GROUP, HOOKS, load_plugins
from rlox.registry.references import resolve
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
from rlox.registry.table import (
    Registry,
    algorithm_class,
    config_class,
    find_algorithm,
    get_registry,
    list_algorithms,
    spec,
)

__all__ = [
    "GROUP",
    "HOOKS",
    "ActorBackendSpec",
    "AlgorithmSpec",
    "BufferSpec",
    "CallbackSpec",
    "CommandSpec",
    "EnvBackendSpec",
    "LearnerBackendSpec",
    "LoggerSpec",
    "LossSpec",
    "PlaceSpec",
    "PresetsSpec",
    "Registration",
    "Registry",
    "RunOptionsSpec",
    "algorithm_class",
    "config_class",
    "find_algorithm",
    "get_registry",
    "hookimpl",
    "kind_of",
    "list_algorithms",
    "load_plugins",
    "resolve",
    "spec",
]
