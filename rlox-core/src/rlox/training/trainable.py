"""Trainable: what the training loop and checkpoints need of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlox.callbacks import CallbackList
from rlox.config.model import Config
from rlox.logging import LoggerCallback
from rlox.seeding import SeedStreams
from rlox.training.progress import Clock

if TYPE_CHECKING:
    from rlox.protocols import Optimizer

__all__ = ["Trainable"]


class Trainable(Protocol):
    """An algorithm as :func:`rlox.training.loop.run` trains it and checkpoints hold it.

    :class:`rlox.Algorithm` is one.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Config]]
    env_required: ClassVar[bool]
    config: Any
    env_source: Any
    clock: Clock
    streams: SeedStreams
    callbacks: CallbackList
    logger: LoggerCallback | None
    optimizers: Mapping[str, Optimizer]

    def iterate(self, hooks: Any) -> Any:
        """Collect once, learn once, and return a frozen dataclass of float metrics."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes, as nested dicts of arrays and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
