"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from typing_extensions import Unpack

__all__ = [
    "AWACOptions",
    "BCOptions",
    "CQLOptions",
    "FQEOptions",
    "IQLOptions",
    "TD3BCOptions",
    "Unpack",
]

class AWACOptions(TypedDict, total=False):
    """Options of :class:`AWACConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    awac_lambda: float
    max_weight: float
    hidden: int
    learning_rate: float
    tau: float
    gamma: float
    reward_scale: float
    reward_shift: float

class BCOptions(TypedDict, total=False):
    """Options of :class:`BCConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    continuous: bool
    stochastic: bool
    hidden: int
    learning_rate: float

class CQLOptions(TypedDict, total=False):
    """Options of :class:`CQLConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    cql_alpha: float
    n_random_actions: int
    calibrated: bool
    auto_alpha: bool
    cql_target_value: float
    mode_targets: bool
    hidden: int
    learning_rate: float
    actor_learning_rate: float
    bc_steps: int
    tau: float
    gamma: float
    reward_scale: float
    reward_shift: float
    auto_entropy: bool
    target_entropy: float | None
    backend: str

class FQEOptions(TypedDict, total=False):
    """Options of :class:`FQEConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    hidden: int
    learning_rate: float
    tau: float
    gamma: float

class IQLOptions(TypedDict, total=False):
    """Options of :class:`IQLConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    expectile: float
    temperature: float
    max_weight: float
    stochastic: bool
    hidden: int
    learning_rate: float
    actor_decay_steps: int | None
    tau: float
    gamma: float
    reward_scale: float
    reward_shift: float
    backend: str

class TD3BCOptions(TypedDict, total=False):
    """Options of :class:`TD3BCConfig`."""

    act_high: float | None
    batch_size: int
    steps_per_iteration: int
    seed: int | None
    preset: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    alpha: float
    hidden: int
    learning_rate: float
    tau: float
    gamma: float
    reward_scale: float
    reward_shift: float
    policy_delay: int
    target_noise: float
    noise_clip: float
    backend: str
