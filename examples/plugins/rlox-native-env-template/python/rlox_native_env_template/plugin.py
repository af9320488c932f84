"""Registers the Rust envs with rlox; any algorithm finds them by id."""

from collections.abc import Iterable, Mapping
from typing import Any

from rlox import EnvBackendSpec, hookimpl
from rlox.protocols import StatefulVecEnv

from rlox_native_env_template._envs import env_ids, make


@hookimpl
def rlox_env_backends() -> Iterable[EnvBackendSpec]:
    """Register the corridor."""
    yield EnvBackendSpec(
        name="native-template",
        summary="A corridor of ten metres, in Rust.",
        factory="rlox_native_env_template.plugin:make_vec_env",
        env_ids=tuple(env_ids()),
    )


def make_vec_env(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> StatefulVecEnv:
    """Build a vector env; the corridor has no options, so ``env_kwargs`` must be empty."""
    if env_kwargs:
        raise ValueError(f"{env_id} takes no env_kwargs, got {sorted(env_kwargs)}")
    return make(env_id, n_envs)
