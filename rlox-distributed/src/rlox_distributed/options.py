"""Options of the env backend ``grpc`` and of the Ray backends."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator
from rlox.config.model import Config, count, flag, option, positive
from rlox.errors import ConfigError


class GrpcOptions(Config):
    """How to reach the envs of workers; secrets are in files or variables, never here."""

    worker_addresses: list[str] = option(
        ..., help="env workers as host:port, on the command line separated by commas",
        unit="addresses", source="rlox", min_length=1,
    )  # fmt: skip
    step_timeout: float = positive(
        30.0, unit="seconds", source="rlox",
        help="time a worker has for a step, including attempts to reconnect",
    )  # fmt: skip
    reset_timeout: float = positive(
        120.0, unit="seconds", source="rlox",
        help="time a worker has for a reset, and for the first connection",
    )  # fmt: skip
    worker_restarts: int = count(
        3, ge=0, unit="restarts", source="rlox",
        help="how often each worker may restart its envs",
    )  # fmt: skip
    token_file: str | None = option(
        None, help="file with the workers' token; None takes the variable RLOX_WORKER_TOKEN",
        unit="path", source="rlox",
    )  # fmt: skip
    tls_ca: str | None = option(
        None, help="file of certificates that must have signed the workers'",
        unit="path", source="rlox",
    )  # fmt: skip
    tls_cert: str | None = option(
        None, help="file of the learner's certificate, for workers that require one",
        unit="path", source="rlox",
    )  # fmt: skip
    tls_key: str | None = option(
        None, help="file of its private key", unit="path", source="rlox"
    )  # fmt: skip

    @field_validator("worker_addresses", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value

    @field_validator("worker_addresses")
    @classmethod
    def _differ(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("each worker once")
        return value

    def for_actor(self, index: int, n_actors: int) -> GrpcOptions:
        """Return the options of one of several actors; the workers are divided evenly.

        Raises:
            ConfigError: there are fewer workers than actors.
        """
        given = len(self.worker_addresses)
        if given < n_actors:
            raise ConfigError(
                f"worker_addresses names {given} workers for n_actors = {n_actors}; every actor "
                "needs one of its own, so start more or lower n_actors"
            )
        share, more = divmod(given, n_actors)
        first = index * share + min(index, more)
        part = self.worker_addresses[first : first + share + (index < more)]
        return self.replace(worker_addresses=part)


class RayActorOptions(Config):
    """Options of the actor backend ``ray``, which all Ray backends have."""

    ray_address: str | None = option(
        None, unit="address", source="ray.init",
        help="of the Ray cluster, host:port or auto; None: RAY_ADDRESS, or else a cluster on this "
        "machine that ends with the training",
    )  # fmt: skip
    ray_cpus: float = option(
        1.0, unit="CPUs", source="ray.remote", ge=0.0,
        help="CPUs of the cluster that each actor occupies; a cluster of this machine alone, "
        "started here, counts none",
    )  # fmt: skip


class RayBufferOptions(RayActorOptions):
    """Options of the replay buffer ``ray``."""

    draw_ahead: bool = flag(
        True, source="Horgan et al. 2018, sec. 3",
        help="draw the next batch while learning from the present one; it lacks transitions stored "
        "between the two",
    )  # fmt: skip


class RayEnvOptions(RayActorOptions):
    """Options of the env backend ``ray``."""

    ray_step_timeout: float = positive(
        60.0, unit="seconds", help="longest time of a step of all envs", source="rlox"
    )
    ray_restarts: int = count(
        0, ge=0, unit="restarts", source="rlox",
        help="how often each env may restart; 0 makes a lost env an error",
    )  # fmt: skip
