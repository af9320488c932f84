"""Options of the Ray backends."""

from __future__ import annotations

from rlox.config.model import Config, count, flag, option, positive

__all__ = ["RayActorOptions", "RayBufferOptions", "RayEnvOptions"]

ADDRESS = option(
    None, unit="address", source="ray.init",
    help="of the Ray cluster, host:port or auto; None: RAY_ADDRESS, or else a cluster on this "
    "machine that ends with the training",
)  # fmt: skip
"""``str | None``"""

CPUS = option(
    1.0, unit="CPUs", source="ray.remote", ge=0.0,
    help="CPUs of the cluster that each actor occupies; a cluster of this machine alone, started "
    "here, counts none",
)  # fmt: skip
"""``float``"""


class RayActorOptions(Config):
    """Options of the actor backend ``ray``."""

    ray_address: str | None = ADDRESS
    ray_cpus: float = CPUS


class RayBufferOptions(Config):
    """Options of the replay buffer ``ray``."""

    ray_address: str | None = ADDRESS
    ray_cpus: float = CPUS
    draw_ahead: bool = flag(
        True, source="Horgan et al. 2018, sec. 3",
        help="draw the next batch while the present one is learnt from; it lacks what was stored "
        "between the two",
    )  # fmt: skip


class RayEnvOptions(Config):
    """Options of the env backend ``ray``."""

    ray_address: str | None = ADDRESS
    ray_cpus: float = CPUS
    ray_step_timeout: float = positive(
        60.0, unit="seconds", help="time that a step of all envs may take", source="rlox"
    )
    ray_restarts: int = count(
        0, ge=0, unit="restarts", source="rlox",
        help="how often each env may begin again; 0 makes a lost env an error",
    )  # fmt: skip
