"""Search spaces of config options."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlox.cli.flags import all_fields, given_options
from rlox.config.model import Config
from rlox.config.schedules import Linear
from rlox.errors import ConfigError

__all__ = ["values_of", "with_values"]


def values_of(trial: Any, space: Sequence[str], config: Config) -> dict[str, Any]:
    """Return the values that a trial of Optuna takes in a space.

    Args:
        trial: suggests them.
        space: texts of an option with a range ``LOW:HIGH``, or ``log:LOW:HIGH`` to search its
            logarithm, or with values ``A,B,C``, such as ``"learning_rate=log:1e-5:1e-2"``.
        config: the options that are not searched; with them, the ends and values must be valid.

    Raises:
        ConfigError: a text has another form, or names an option or a value that cannot be.
    """
    found: dict[str, Any] = {}
    for text in space:
        name, _, values = text.partition("=")
        name, ends = name.strip().replace("-", "_"), values.removeprefix("log:").split(":")
        if name in ("seed", "preset", *found):
            raise ConfigError(f"--space cannot search the option '{name}', or names it twice")
        try:
            if len(ends) == 1:
                ends = [value.strip() for value in values.split(",")]
                if len(set(filter(None, ends))) < max(2, len(ends)):
                    raise ValueError("values must be several and differ")
                found[name] = trial.suggest_categorical(name, ends)
            elif name in (fields := all_fields(type(config))):
                is_float = "float" in str(fields[name][0].annotation)
                low, high = map(float if is_float else int, ends)
                ask = trial.suggest_float if is_float else trial.suggest_int
                found[name] = ask(name, low, high, log=values.startswith("log:"))
        except ValueError as error:
            raise ConfigError(
                "--space must look like learning_rate=log:1e-5:1e-2, gamma=0.9:0.999 or "
                f"hidden=64,128, got {text!r}: {error}"
            ) from None
        for end in ends:
            with_values(config, {name: end})
    return found


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return a config with the values of a trial; a linear schedule keeps its shape.

    Raises:
        ConfigError: they contradict each other or other options.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        present = getattr(config, name, None)
        if isinstance(value, str) and name in all_fields(type(config)):
            changes |= given_options(type(config), {name: value})
        elif isinstance(present, Linear) and present.start:
            end = present.end * value / present.start
            changes[name] = Linear(start=value, end=end, until=present.until)
        else:
            changes[name] = value
    return config.replace(**changes)
