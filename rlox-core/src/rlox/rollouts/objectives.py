"""Objectives of a config, and of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from rlox.config.model import Config, changed
from rlox.errors import ConfigError
from rlox.learners.tasks import Objective

__all__ = ["make_objective", "require_objective"]

ObjectiveT = TypeVar("ObjectiveT")


def make_objective(
    kind: type[ObjectiveT], config: Config, rates: Mapping[str, float]
) -> ObjectiveT:
    """Return an objective with the numbers of now.

    Args:
        kind: a dataclass; its fields that are no options of the config keep their defaults.
        config: the algorithm's.
        rates: values of the options that may be schedules, which win over the config.
    """
    options = type(config).model_fields
    names = [field.name for field in fields(kind) if field.name in options]  # type: ignore[arg-type]
    return kind(**{name: rates[name] if name in rates else getattr(config, name) for name in names})


def require_objective(
    objective: Objective | None,
    options: Sequence[str],
    config: Config,
    keywords: Mapping[str, Any],
    schedules: Mapping[str, Callable[[int], float]] | None,
) -> None:
    """Check an objective of the user's own, which brings all the numbers of its loss.

    Args:
        objective: what the user passed.
        options: the numbers of the algorithm's own objective.
        config: what the options resolve to.
        keywords: the options that were passed one by one. They alone count if the config has every
            option, as a saved one does.
        schedules: what the user passed.

    Raises:
        ConfigError: an option or a schedule would be ignored.
        TypeError: the objective has no method ``loss``.
    """
    if objective is None:
        return
    if not callable(getattr(objective, "loss", None)):
        raise TypeError(
            "objective must have a method loss(policy, minibatch) -> (scalar, terms), got "
            f"{objective!r}"
        )
    saved = config.model_fields_set == set(type(config).model_fields)
    given = keywords if saved else config.given()
    for name in options:
        if (name in given and changed(config, name)) or name in (schedules or {}):
            raise ConfigError(
                f"{name} is a number of the algorithm's own objective, and objective= brings all "
                "of its own; leave it out, and set it in the objective"
            )
