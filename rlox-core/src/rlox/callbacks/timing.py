"""Profiling of training time by phase."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from rlox.callbacks.base import Callback, Phase

__all__ = ["PhaseTime", "TimingCallback"]


@dataclass(frozen=True)
class PhaseTime:
    """Wall time of one phase of a training."""

    seconds: float
    percent: float
    """Of all phases together; 0 before the first training."""


class TimingCallback(Callback):
    """Measure the wall time of each :data:`~rlox.callbacks.Phase`, over all trainings so far.

    Args:
        verbose: print the times when a training ends.
    """

    def __init__(self, verbose: bool = True) -> None:
        self.verbose = verbose
        self._seconds: dict[Phase, float] = dict.fromkeys(get_args(Phase), 0.0)
        self._phase: Phase | None = None
        self._since = 0.0

    def summary(self) -> dict[Phase, PhaseTime]:
        """Return the time of each phase up to now."""
        self._enter(self._phase)
        total = sum(self._seconds.values())
        return {
            phase: PhaseTime(seconds, 100 * seconds / total if total else 0.0)
            for phase, seconds in self._seconds.items()
        }

    def on_phase(self, **kwargs: Any) -> None:
        """Close the phase before and open the next."""
        self._enter(kwargs["phase"])

    def on_training_end(self, **kwargs: Any) -> None:
        """Close the last phase."""
        self._enter(None)
        if self.verbose:
            times = ", ".join(
                f"{phase} {spent.seconds:.2f} s ({spent.percent:.0f} %)"
                for phase, spent in self.summary().items()
            )
            print(f"time after {kwargs['step']} {kwargs['algo'].clock.unit_text}: {times}")

    def _enter(self, phase: Phase | None) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds, so that a resumed training adds to them."""
        return {phase: spent.seconds for phase, spent in self.summary().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the seconds."""
        self._seconds = {phase: float(state[phase]) for phase in get_args(Phase)}
