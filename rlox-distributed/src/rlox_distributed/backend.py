"""The env backend ``grpc``: envs of workers on other machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlox.errors import EnvError

from rlox_distributed.options import GrpcOptions
from rlox_distributed.pool import RemoteEnvPool

__all__ = ["connect_envs"]


def connect_envs(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None, options: GrpcOptions
) -> RemoteEnvPool:
    """Return the envs of workers, connected.

    Args:
        env_id: what they must serve.
        n_envs: how many envs they must have together.
        env_kwargs: what they must have made the env with.
        options: see there.

    Raises:
        ConfigError: TLS or the token is missing.
        EnvError: they serve another env, other arguments or another number.
        WorkerLostError: one cannot be reached.
    """
    pool = RemoteEnvPool(
        options.worker_addresses,
        options.step_timeout,
        env_id=env_id,
        env_kwargs=env_kwargs or {},
        reset_timeout=options.reset_timeout,
        max_restarts=options.worker_restarts,
        token_file=options.token_file,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
    )
    try:
        if pool.n_envs != n_envs:
            counts = ", ".join(f"{where} has {count}" for where, count in pool.counts.items())
            raise EnvError(
                f"n_envs is {n_envs}, but the workers serve {pool.n_envs} envs ({counts}); pass "
                f"n_envs={pool.n_envs}, or start them with other --n-envs"
            )
    except BaseException:
        pool.close()
        raise
    return pool
