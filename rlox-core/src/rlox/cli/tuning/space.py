"""Search spaces of config options, within the bounds of their fields."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rlox.cli.flags import all_fields, given_options
from rlox.config.schedules import Linear, Piecewise
from rlox.errors import ConfigError, suggest

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from rlox.config.model import Config

__all__ = ["Dimension", "parse_space", "with_values"]

TIMES = 10.0
"""How far from its present value a number is searched if no range is given: a tenth to ten times
of a float, and of what is missing to 1 of a share."""

TIMES_INTEGER = 4
"""The same of an integer."""


@dataclass(frozen=True)
class Dimension:
    """One option that is searched."""

    name: str
    kind: Literal["float", "int", "choice"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[str, ...] = ()
    """As flags would spell them."""

    def suggest(self, trial: Any) -> Any:
        """Return the value that an Optuna trial takes."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.name, self.choices)
        if self.kind == "int":
            return trial.suggest_int(self.name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)


def parse_space(texts: Sequence[str], config: Config) -> tuple[Dimension, ...]:
    """Return the dimensions that texts such as ``"learning_rate=log:1e-5:1e-2"`` name.

    Args:
        texts: an option alone, searched around its present value; with a range ``LOW:HIGH``, or
            ``log:LOW:HIGH`` to search its logarithm; or with values ``A,B,C``.
        config: the options that are not searched; its fields' bounds hold.

    Raises:
        ConfigError: a text has another form, an option is unknown, or a range is out of bounds.
    """
    found: dict[str, Dimension] = {}
    fields = all_fields(type(config))
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if name in ("seed", "preset"):
            raise ConfigError(f"--space cannot search the {name}")
        if name not in fields:
            raise ConfigError(f"--space: unknown option '{name}'{suggest(name, fields)}")
        if name in found:
            raise ConfigError(f"--space names '{name}' twice")
        field = fields[name][0]
        present = getattr(config, name, field.default)
        number = _present_number(name, present)
        kind = _kind(field)
        if not equals:
            found[name] = _around(name, field, kind, number, type(config))
        elif ":" in values and kind is not None:
            found[name] = _range(name, kind, values, type(config), field)
        else:
            choices = tuple(value.strip() for value in values.split(","))
            if not all(choices) or len(set(choices)) < 2:
                raise ConfigError(
                    f"--space must look like learning_rate=log:1e-5:1e-2, gamma=0.9:0.999 or "
                    f"hidden=64,128, got {text!r}"
                )
            found[name] = Dimension(name, "choice", choices=choices)
    if not found:
        raise ConfigError(
            "name what to search, such as --space learning_rate or --space "
            "gamma=0.9:0.999; `rlox explain` lists the options"
        )
    return tuple(found.values())


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return a config with the values of a trial; a linear schedule keeps its shape.

    Raises:
        ConfigError: they contradict each other or other options.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        present = getattr(config, name, None)
        if isinstance(value, str):
            changes |= given_options(type(config), {name: value})
        elif isinstance(present, Linear) and present.start:
            end = present.end * value / present.start
            changes[name] = Linear(start=value, end=end, until=present.until)
        else:
            changes[name] = value
    return config.replace(**changes)


def _present_number(name: str, present: Any) -> float | None:
    if isinstance(present, Piecewise):
        raise ConfigError(f"--space cannot search {name}, which is a piecewise schedule")
    if isinstance(present, Linear):
        return present.start
    if isinstance(present, bool) or not isinstance(present, (int, float)):
        return None
    return float(present)


def _kind(field: FieldInfo) -> Literal["float", "int"] | None:
    """Return what kind of number a field holds; ``None``: it holds something else."""
    types = _members(field.annotation)
    if bool in types or not types & {int, float}:
        return None
    return "float" if float in types else "int"


def _members(annotation: Any) -> set[Any]:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal or not arguments:
        return {annotation}
    return set().union(*(_members(each) for each in arguments))


def _bounds(name: str, field: FieldInfo, cls: type[Config]) -> tuple[float, float]:
    """Return the closed bounds of a field's numbers."""
    low, high = cls.schedule_bounds.get(name, (-math.inf, math.inf))
    for bound in field.metadata:
        for attribute in ("ge", "gt"):
            low = max(low, getattr(bound, attribute, low))
        for attribute in ("le", "lt"):
            high = min(high, getattr(bound, attribute, high))
    return float(low), float(high)


def _around(
    name: str, field: FieldInfo, kind: str | None, number: float | None, cls: type[Config]
) -> Dimension:
    """Return a range around the present value, or all that there is to choose."""
    if kind is None:
        if field.annotation is bool:
            return Dimension(name, "choice", choices=("false", "true"))
        if typing.get_origin(field.annotation) is Literal:
            choices = tuple(map(str, typing.get_args(field.annotation)))
            return Dimension(name, "choice", choices=choices)
    low, high = _bounds(name, field, cls)
    if kind is None or number is None or number <= 0:
        raise ConfigError(
            f"--space {name} needs a range or values, {name}=LOW:HIGH or {name}=A,B: its present "
            "value is no positive number"
        )
    if (low, high) == (0.0, 1.0) and 0.5 <= number < 1:
        rest = 1 - number
        return Dimension(name, "float", max(low, 1 - TIMES * rest), 1 - rest / TIMES)
    if kind == "int":
        least = max(low, 1, number // TIMES_INTEGER)
        return Dimension(name, "int", least, min(high, number * TIMES_INTEGER), log=True)
    return Dimension(name, "float", number / TIMES, min(high, number * TIMES), log=True)


def _range(
    name: str, kind: Literal["float", "int"], text: str, cls: type[Config], field: FieldInfo
) -> Dimension:
    log = text.startswith("log:")
    try:
        low, high = (float(part) for part in text.removeprefix("log:").split(":"))
    except ValueError:
        raise ConfigError(
            f"--space {name} must be LOW:HIGH or log:LOW:HIGH, got {text!r}"
        ) from None
    least, most = _bounds(name, field, cls)
    if not (least <= low < high <= most):
        raise ConfigError(
            f"--space {name} must be a range within [{least:g}, {most:g}], got {low:g} to {high:g}"
        )
    if log and low <= 0:
        raise ConfigError(f"--space {name}: a logarithm needs a range above 0, got {low:g}")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"--space {name} must be a range of whole numbers, got {text!r}")
    return Dimension(name, kind, low, high, log)
