"""Options of algorithms that learn from actors' unrolls by V-trace."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue, model_validator
from rlox.config.clipped import (
    CLIP_REWARDS,
    FRAME_STACK,
    MEMORY_SIZE,
    NETWORK,
    NORMALIZE_OBSERVATIONS,
    RECURRENT,
    refuse_memory_size_without_memory,
)
from rlox.config.model import (
    BACKEND,
    DEVICE,
    ENV_BACKEND,
    ENV_KWARGS,
    PRESET,
    SEED,
    TORCH_THREADS,
    VECTORIZATION,
    Config,
    choice,
    count,
    discount,
    option,
    positive,
)

__all__ = ["ActorsConfig"]

ESPEHOLT = "Espeholt et al. 2018"
SCALABLE_AGENT = "deepmind/scalable_agent, experiment.py"
TORCHBEAST = "facebookresearch/torchbeast, monobeast.py"


class ActorsConfig(Config):
    """Base of the configs of algorithms that learn from actors' unrolls."""

    seed: int | None = SEED
    preset: str = PRESET
    n_actors: int = count(2, unit="actors", help="number of actors A", source="rlox")
    n_envs: int = count(
        2, unit="envs", help="number of envs N that each actor steps together", source="rlox"
    )
    n_steps: int = count(
        32, unit="env steps per env", help="length T of an unroll",
        source=f"rlox; 100 in {SCALABLE_AGENT}",
    )  # fmt: skip
    unrolls_per_update: int | None = count(
        None, unit="unrolls", help="unrolls U of an update; None takes one of each actor",
        source=f"rlox; 8 in {TORCHBEAST}",
    )  # fmt: skip
    actor_backend: str = option(
        "thread", help="where actors collect: thread, process, or what a plugin registers",
        unit="name", source="rlox", min_length=1, selects="rlox_actor_backends",
    )  # fmt: skip
    order: Literal["auto", "fixed", "arrival"] = choice(
        "auto", source="rlox",
        help="unrolls in an order that one seed fixes, or as they come; auto takes arrival where "
        "actors may be lost, else fixed",
    )  # fmt: skip
    queue_size: int = count(
        0, ge=0, unit="unrolls", source="rlox; 1 in " + SCALABLE_AGENT,
        help="unrolls collected ahead of their update; 0: actors rest while it learns",
    )  # fmt: skip
    max_lag: int | None = count(
        None, ge=0, unit="gradient steps", source="rlox",
        help="unrolls of older weights are dropped; None drops none",
    )  # fmt: skip
    min_workers: int | None = count(
        None, unit="actors", help="fewer living actors are an error; None: all must live",
        source="rlox",
    )  # fmt: skip
    worker_timeout: float = positive(
        60.0, unit="seconds", source="rlox",
        help="time an actor elsewhere has for one step of its envs; then it begins again",
    )  # fmt: skip
    max_restarts: int = count(
        3, ge=0, unit="restarts", help="how often each actor elsewhere may begin again",
        source="rlox",
    )  # fmt: skip
    gamma: float = discount(0.99, help="discount factor γ", source=SCALABLE_AGENT)
    rho_bar: float = positive(
        1.0, help="bound of the ratios in V-trace's targets", source=f"{ESPEHOLT}, sec. 4.1"
    )
    c_bar: float = positive(
        1.0, help="bound of the ratios that pass corrections back",
        source=f"{ESPEHOLT}, sec. 4.1",
    )  # fmt: skip
    pg_rho_bar: float = positive(
        1.0, help="bound of the ratios in the advantages", source=SCALABLE_AGENT
    )
    max_grad_norm: float = positive(
        40.0, help="bound of the gradient's Euclidean norm", source=TORCHBEAST
    )
    hidden: int = count(64, unit="units", help="width of the two hidden layers", source="rlox")
    network: Literal["auto", "mlp", "cnn"] = NETWORK
    recurrent: Literal["none", "lstm", "gru"] = RECURRENT
    memory_size: int = MEMORY_SIZE
    normalize_observations: bool = NORMALIZE_OBSERVATIONS
    clip_rewards: float | None = CLIP_REWARDS
    frame_stack: int = FRAME_STACK
    backend: str = BACKEND
    env_backend: str = ENV_BACKEND
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS
    vectorization: Literal["sync", "async"] = VECTORIZATION
    device: str = DEVICE
    torch_threads: int | None = TORCH_THREADS

    @property
    def update_size(self) -> int:
        """Unrolls U of an update."""
        return self.n_actors if self.unrolls_per_update is None else self.unrolls_per_update

    @model_validator(mode="after")
    def _check_actors(self) -> ActorsConfig:
        refuse_memory_size_without_memory(self)
        lag = -(-self.queue_size // self.update_size)
        if self.order != "arrival" and self.max_lag is not None and self.max_lag < lag:
            raise ValueError(
                f"max_lag {self.max_lag} is less than the lag {lag} of queue_size "
                f"{self.queue_size} with {self.update_size} unrolls an update; lower queue_size or "
                "raise max_lag"
            )
        if self.min_workers is not None and self.min_workers > self.n_actors:
            raise ValueError(
                f"min_workers {self.min_workers} exceeds n_actors {self.n_actors}; lower it"
            )
        if self.order == "fixed" and self.min_workers not in (None, self.n_actors):
            raise ValueError(
                f"min_workers {self.min_workers} < n_actors {self.n_actors} needs "
                "order='arrival': in the fixed order every unroll has its actor"
            )
        return self
