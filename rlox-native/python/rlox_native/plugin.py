"""Registers the native env backend with rlox; loaded through the `rlox` entry-point group."""

from collections.abc import Iterable

from rlox.hookspecs import hookimpl
from rlox.specs import EnvBackendSpec

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
