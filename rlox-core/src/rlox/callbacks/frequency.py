"""Step frequencies for periodic callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlox.config.arguments import require_integer

__all__ = ["Multiples", "require_at_least"]


class Multiples:
    """Detects when another multiple of a frequency has been reached or passed.

    A vector step advances the clock by N and an iteration by T*N env steps, so a multiple is
    mostly passed rather than met.

    Args:
        name: of the option that sets the frequency, for the error's text.
        frequency: in the training's steps, :attr:`rlox.training.progress.Progress.unit`.

    Raises:
        TypeError: ``frequency`` is no integer.
        ValueError: it is not positive.
    """

    def __init__(self, name: str, frequency: int) -> None:
        self._frequency = require_integer(name, frequency, at_least=1)
        self._step = 0
        self._next = self._frequency

    def step_of(self, event: Mapping[str, Any]) -> int:
        """Return the ``step`` of an ``on_step``; without one, one more than the last."""
        self._step = event.get("step", self._step + 1)
        return self._step

    def count_from(self, step: int) -> None:
        """Take the multiples up to env step ``step`` for done."""
        self._step = step
        self._next = (step // self._frequency + 1) * self._frequency

    def reached(self, step: int) -> bool:
        """Return whether ``step`` reaches or passes a multiple that is not done; it is then."""
        if step < self._next:
            return False
        self.count_from(step)
        return True


def require_at_least(bound: float, **values: float) -> None:
    """Raise a ``ValueError`` for any value, given by its name, below ``bound`` or NaN."""
    for name, value in values.items():
        if not value >= bound:
            raise ValueError(f"{name} must be at least {bound:g}, got {value}")
