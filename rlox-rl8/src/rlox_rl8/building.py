"""The config of an agent from rlox's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rlox.config.model import Config
from rlox.errors import ConfigError

__all__ = ["agent_config"]

ConfigT = TypeVar("ConfigT")


def agent_config(cls: type[ConfigT], config: Config, parts: Mapping[str, Any] | None) -> ConfigT:
    """Return an agent's config with the numbers of ``config``.

    Args:
        cls: :class:`rlox_rl8.AlgorithmConfig` or the recurrent one.
        config: rlox's.
        parts: what is no number.

    Raises:
        ConfigError: a part is unknown, or is an option.
    """
    numbers = config.to_dict()
    del numbers["seed"]
    numbers["num_envs"] = numbers.pop("n_envs")
    rate = numbers.pop("learning_rate")
    given = dict(parts or {})
    known = set(cls.__dataclass_fields__) - set(numbers)  # type: ignore[attr-defined]
    for name in given.keys() - known:
        raise ConfigError(f"part '{name}' is unknown; expected one of {', '.join(sorted(known))}")
    options = {"lr": rate, **(given.pop("optimizer_config", None) or {})}
    return cls(**numbers, **given, optimizer_config=options)
