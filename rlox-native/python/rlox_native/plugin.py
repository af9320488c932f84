"""Registers the native backends with rlox; loaded through the `rlox` entry-point group."""

from collections.abc import Iterable

from rlox.registry.specs import EnvBackendSpec, LearnerBackendSpec, hookimpl

from rlox_native import native_env_ids, native_team_env_ids


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Offer the Rust envs, with priority over the libraries' own: they give the same numbers."""
    yield EnvBackendSpec(
        name="native",
        summary="Rust envs, bit-identical to gymnasium for the same seed.",
        factory="rlox_native.envs:make_vec_env",
        env_ids=tuple(native_env_ids()),
        priority=100,
    )
    yield EnvBackendSpec(
        name="native_teams",
        summary="Rust multi-agent envs, with PettingZoo's ids and numbers.",
        factory="rlox_native.envs:make_team_env",
        env_ids=tuple(native_team_env_ids()),
        env_kwargs=("N", "local_ratio", "max_cycles", "continuous_actions"),
        priority=100,
        teams=True,
    )


@hookimpl
def rlox_learner_backends() -> Iterable[LearnerBackendSpec]:
    """Offer the fused updates, with priority over torch: they learn the same up to rounding."""
    yield LearnerBackendSpec(
        name="native",
        summary="Whole updates in one Rust call each, for default MLPs on a CPU.",
        factory="rlox_native.learner:make_learner",
        priority=100,
    )
