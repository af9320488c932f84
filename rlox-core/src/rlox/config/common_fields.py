"""Config fields shared by all algorithms.

Each means the same in every config; pydantic copies them.
"""

from __future__ import annotations

from rlox.config.model import choice, count, option

__all__ = [
    "BACKEND",
    "COMPUTE_DTYPE",
    "DEVICE",
    "ENV_BACKEND",
    "ENV_KWARGS",
    "PRESET",
    "SEED",
    "TORCH_THREADS",
    "VECTORIZATION",
]

SEED = count(
    42, ge=0, unit="1", help="fixes every random draw; None draws one from entropy", source="rlox"
)
"""``int | None``"""

PRESET = option(
    "none", help="tuned options, ENV/NAME as rlox list --presets shows them; given options win",
    unit="name", source="rlox", min_length=1,
)  # fmt: skip
"""``str``"""

ENV_BACKEND = option(
    "auto", help="env backend for ids; auto takes the fastest that has the id",
    unit="name", source="rlox", min_length=1, selects="rlox_env_backends",
)  # fmt: skip
"""``str``"""

ENV_KWARGS = option(
    {}, help="arguments of the env; also of the env that evaluations make of the same id",
    unit="name: value", source="gymnasium.make",
)  # fmt: skip
"""``dict[str, JsonValue]``"""

VECTORIZATION = choice(
    "sync",
    help="gymnasium's and PettingZoo's envs in this process or each in its own",
    source="gymnasium",
)
"""``Literal["sync", "async"]``"""

BACKEND = option(
    "auto", help="learner backend; auto takes the fastest that can do the job",
    unit="name", source="rlox", min_length=1,
)  # fmt: skip
"""``str``"""

COMPUTE_DTYPE = choice(
    "float32", source="rlox",
    help="precision of convolutions over images; parameters and all else are float32",
)  # fmt: skip
"""``Literal["float32", "bfloat16"]``"""

DEVICE = option(
    "cpu", help="torch device of policy and batches", unit="name", source="rlox", min_length=1
)
"""``str``"""

TORCH_THREADS = count(
    1, unit="threads", source="measured: benchmarks/README.md",
    help="torch threads while training; None keeps torch's setting",
)  # fmt: skip
"""``int | None``"""
