"""Configs: pydantic models, their fields, files and schedules."""

from rlox.config.common_fields import (
    BACKEND,
    DEVICE,
    ENV_BACKEND,
    SEED,
    TORCH_THREADS,
    VECTORIZATION,
)
from rlox.config.files import read_mapping, to_yaml
from rlox.config.model import (
    UNSET,
    Config,
    ScheduleValue,
    Unset,
    changed,
    choice,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    probability,
    resolve_config,
    schedule,
)
from rlox.config.schedules import Linear, Piecewise, Schedules, evaluate_schedule

__all__ = [
    "BACKEND",
    "DEVICE",
    "ENV_BACKEND",
    "SEED",
    "TORCH_THREADS",
    "UNSET",
    "VECTORIZATION",
    "Config",
    "Linear",
    "Piecewise",
    "ScheduleValue",
    "Schedules",
    "Unset",
    "changed",
    "choice",
    "coefficient",
    "count",
    "discount",
    "evaluate_schedule",
    "flag",
    "option",
    "positive",
    "probability",
    "read_mapping",
    "resolve_config",
    "schedule",
    "to_yaml",
]
