"""Own replay buffers and exploration, and options that belong to neither."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rlox.config.model import UNSET, Config, changed
from rlox.config.presets import fill_in
from rlox.config.schedules import Schedules
from rlox.errors import ConfigError
from rlox.protocols import PrioritizedBuffer

__all__ = [
    "Parts",
    "given_options",
    "require_capacity",
    "require_no_ignored_options",
    "require_priorities",
]

OF_MADE_PARTS = {"buffer": ("buffer_size", "buffers"), "exploration": ("noise_std", "noise")}
"""By argument, the option of what is made here, which an object has of its own, and its kind."""


@dataclass(frozen=True)
class Parts:
    """What a caller passed as replay buffer and as exploration, and which options."""

    given: Mapping[str, Any]
    """By argument, of those that were passed: a registered name or an object."""
    options: Collection[str] = ()
    """Names of the options that were given; see :func:`given_options`."""

    @property
    def names(self) -> dict[str, str]:
        """The registered names, which are options."""
        return {name: part for name, part in self.given.items() if isinstance(part, str)}

    def own(self, name: str) -> Any:
        """Return the object that was passed as an argument; ``None`` if there is none."""
        return None if name in self.names else self.given.get(name)


def given_options(config: Config, keywords: Collection[str]) -> set[str]:
    """Return the names of the options that the caller chose.

    Args:
        config: what the caller's options resolve to. One that has every option was saved, and does
            not show what was chosen; nor do the options of a preset, or those with their defaults.
        keywords: those that were passed one by one, which count whatever they are.
    """
    if config.model_fields_set == set(type(config).model_fields):
        return set(keywords)
    given = config.given()
    preset = fill_in(type(config), {"preset": given.get("preset", "none")})
    return {
        name
        for name, value in given.items()
        if name in keywords or (changed(config, name) and preset.get(name, UNSET) != value)
    }


def require_no_ignored_options(parts: Parts, options: Collection[str]) -> None:
    """Refuse options that an object brings itself.

    Raises:
        ConfigError: one is given.
    """
    for part, (option, kind) in OF_MADE_PARTS.items():
        own = parts.own(part)
        if own is not None and option in options:
            raise ConfigError(
                f"{option} belongs to {kind} made here, and your {type(own).__name__} has its own; "
                "leave it out"
            )


def require_capacity(config: Any, own: Any) -> None:
    """Refuse a buffer that is overwritten before the first batch is drawn.

    Args:
        config: a :class:`rlox_offpolicy.replay_config.ReplayConfig`.
        own: the caller's buffer; its ``capacity`` counts if it has one. ``None``: one made here.

    Raises:
        ConfigError: it holds fewer transitions than ``learning_starts``.
    """
    name, capacity = "buffer_size", config.buffer_size
    remedy = "lower it, enlarge the buffer or pass a larger one of your own as buffer="
    if own is not None:
        name = f"the capacity of your {type(own).__name__},"
        capacity = getattr(own, "capacity", None)
        remedy = "lower it or enlarge the buffer"
    if isinstance(capacity, int) and config.learning_starts > capacity:
        raise ConfigError(
            f"learning_starts {config.learning_starts} exceeds {name} {capacity}: the first "
            f"transitions would be lost unseen; {remedy}"
        )


def require_priorities(config: Any, parts: Parts, schedules: Schedules, buffer: Any) -> None:
    """Refuse ``priority_beta`` beside a buffer that has no priorities.

    Args:
        config: the resolved config.
        parts: with the options that were given.
        schedules: with the functions that were passed.
        buffer: the one in use.

    Raises:
        ConfigError: the option would be ignored.
    """
    name = "priority_beta"
    given = name in schedules.overridden or (name in parts.options and changed(config, name))
    if given and not isinstance(buffer, PrioritizedBuffer):
        raise ConfigError(
            "priority_beta needs buffer='prioritized' or another buffer with update_priorities and "
            f"set_beta, got a {type(buffer).__name__}; leave it out"
        )
