"""Config options of every offline algorithm."""

from __future__ import annotations

from pydantic import JsonValue

from rlox.config.model import (
    DEVICE,
    ENV_KWARGS,
    PRESET,
    SEED,
    TORCH_THREADS,
    Config,
    count,
    positive,
)


class OfflineConfig(Config):
    """Base of the configs of offline algorithms."""

    obs_dim: int | None = count(
        None,
        unit="numbers",
        help="size of an observation; `None` takes the dataset's",
        source="rlox",
    )
    act_dim: int | None = count(
        None, unit="numbers", source="rlox",
        help="size of an action, or the number of discrete actions; `None` takes the dataset's",
    )  # fmt: skip
    act_high: float | None = positive(
        None, unit="action", source="sfujim/TD3_BC",
        help="actions lie in [-act_high, act_high]; `None` takes the dataset's bounds, else "
        "the env's, else 1",
    )  # fmt: skip
    batch_size: int = count(
        256, unit="rows", help="transitions in a minibatch", source="Fujimoto and Gu 2021, table 3"
    )
    steps_per_iteration: int = count(
        1000, unit="gradient steps", source="rlox",
        help="gradient steps over which metrics are averaged and after which they are logged",
    )  # fmt: skip
    seed: int | None = SEED
    preset: str = PRESET
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS
    device: str = DEVICE
    torch_threads: int | None = TORCH_THREADS
