"""Configs: pydantic models, their fields, files and schedules."""

from typing import TYPE_CHECKING, Any

from rlox.config.files import read_mapping, to_yaml
from rlox.config.frames import (
    ClippedSurrogateConfig,
    ReplayConfig,
    RolloutConfig,
)
from rlox.config.model import (
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
    "ClippedSurrogateConfig",
    "Config",
    "Linear",
    "Piecewise",
    "ReplayConfig",
    "RolloutConfig",
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

if not TYPE_CHECKING:  # types of unknown names would be Any

    def __getattr__(name: str) -> Any:
        # another project's package `rlox`, installed over this one, first imports this from its own
        # `rlox.config`, which this package hides; the text of an AttributeError would be lost
        if name == "PPOConfig":
            from rlox.errors import name_clash

            if problem := name_clash():
                raise ImportError(problem)
        raise AttributeError(f"module 'rlox.config' has no '{name}'")
