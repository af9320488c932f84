"""rlox: reinforcement learning in Python over a Rust core.

Names resolve on first use, so that ``import rlox`` loads neither torch nor any plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlox_candle import CandleCollector
    from rlox_native import CartPole, MmapReplayBuffer, VecEnv

    from rlox.algorithm import Algorithm, explain
    from rlox.algorithms.make_types import make
    from rlox.config.model import Config
    from rlox.deployment import export, load_policy
    from rlox.envs.evaluation import evaluate
    from rlox.kernels.reference import (
        HerReplayBuffer,
        OfflineDatasetBuffer,
        PrioritizedReplayBuffer,
        ReplayBuffer,
        RunningMeanStd,
        SequenceReplayBuffer,
        compute_batch_group_advantages,
        compute_batch_token_kl,
        compute_batch_token_kl_schulman,
        compute_discounted_returns,
        compute_gae,
        compute_gae_batched,
        compute_gae_batched_f32,
        compute_group_advantages,
        compute_lambda_returns,
        compute_n_step_returns,
        compute_token_kl,
        compute_token_kl_schulman,
        compute_vtrace,
        get_num_threads,
        normalize_advantages,
        pack_sequences,
        set_num_threads,
    )
    from rlox.kernels.reference.groups import DPOPair
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
        hookimpl,
    )
    from rlox.registry.table import list_algorithms, spec

__version__ = "2.0.0.dev0"

_MODULES = {
    "Algorithm": "rlox.algorithm",
    "Config": "rlox.config.model",
    "DPOPair": "rlox.kernels.reference.groups",
    "evaluate": "rlox.envs.evaluation",
    "explain": "rlox.algorithm",
    "export": "rlox.deployment",
    "hookimpl": "rlox.registry.specs",
    "load_policy": "rlox.deployment",
    "list_algorithms": "rlox.registry.table",
    "make": "rlox.algorithm",
    "spec": "rlox.registry.table",
}

_SUBMODULES = (
    "algorithms", "callbacks", "collectors", "distributed", "llm", "logging", "losses", "networks",
    "policies", "trainers",
)  # fmt: skip
"""Submodules that the documentation uses as attributes."""

_RUST = {
    "CandleCollector": ("rlox_candle", "candle"),
    "CartPole": ("rlox_native", "native"),
    "MmapReplayBuffer": ("rlox_native", "native"),
    "VecEnv": ("rlox_native", "native"),
}
"""Names that only exist in Rust: their module, and the extra that installs it."""

__all__ = [
    "ActorBackendSpec",
    "Algorithm",
    "AlgorithmSpec",
    "BufferSpec",
    "CallbackSpec",
    "CandleCollector",
    "CartPole",
    "CommandSpec",
    "Config",
    "DPOPair",
    "EnvBackendSpec",
    "HerReplayBuffer",
    "LearnerBackendSpec",
    "LoggerSpec",
    "LossSpec",
    "MmapReplayBuffer",
    "OfflineDatasetBuffer",
    "PlaceSpec",
    "PresetsSpec",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "RunOptionsSpec",
    "RunningMeanStd",
    "SequenceReplayBuffer",
    "VecEnv",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_schulman",
    "compute_discounted_returns",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_group_advantages",
    "compute_lambda_returns",
    "compute_n_step_returns",
    "compute_token_kl",
    "compute_token_kl_schulman",
    "compute_vtrace",
    "evaluate",
    "explain",
    "export",
    "get_num_threads",
    "hookimpl",
    "list_algorithms",
    "load_policy",
    "make",
    "normalize_advantages",
    "pack_sequences",
    "set_num_threads",
    "spec",
]

_MODULES |= {name: "rlox.registry.specs" for name in __all__ if name.endswith("Spec")}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        value = importlib.import_module(f"rlox.{name}")
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    elif name in _RUST:
        from rlox.errors import missing_extra, unusable
        from rlox.kernels import installed

        module, extra = _RUST[name]
        if not installed(module):
            raise missing_extra(f"rlox.{name}", extra)
        try:
            value = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise unusable(f"rlox.{name}", module, error) from error
    elif name in __all__:  # a kernel: Rust if installed, else the NumPy reference
        from rlox.kernels import backend

        value = getattr(backend(), name)
    else:
        from rlox.errors import name_clash, suggest
        from rlox.registry.families import ALGORITHMS

        clash = f"; {problem}" if (problem := name_clash()) else ""
        if any(row.class_name == name for row in ALGORITHMS):
            clash = f"; it is rlox.algorithms.{name}{clash}"
        raise AttributeError(f"module 'rlox' has no '{name}'{suggest(name, __all__)}{clash}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
