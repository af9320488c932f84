"""Registers the native backends with rlox; loaded through the `rlox` entry-point group."""

from collections.abc import Iterable

from rlox.registry.hookspecs import hookimpl
from rlox.registry.specs import EnvBackendSpec, LearnerBackendSpec

from rlox_native import native_env_ids


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Offer the Rust envs, ahead of gymnasium's: they step to the same bits."""
    yield EnvBackendSpec(
        name="native",
        summary="Rust envs, bit-identical to gymnasium for the same seed.",
        factory="rlox_native.vector_env:make_vec_env",
        env_ids=tuple(native_env_ids()),
        priority=100,
    )


@hookimpl
def rlox_learner_backends() -> Iterable[LearnerBackendSpec]:
    """Offer the fused updates, ahead of torch: they learn the same up to rounding."""
    yield LearnerBackendSpec(
        name="native",
        summary="Whole updates in one Rust call each, for default MLPs on a CPU.",
        factory="rlox_native.learner:make_learner",
        priority=100,
    )
