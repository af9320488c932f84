"""How far a training has come; one object per algorithm, advanced by the runner's hooks only."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Clock"]


@dataclass
class Clock:
    """Counters of one training."""

    env_steps: int = 0
    """Env steps: one env stepped once, so N envs stepped together count N."""
    gradient_steps: int = 0
    """Optimiser steps."""
    iterations: int = 0
    """Completed collect-and-learn rounds."""
    target_env_steps: int = 0
    """Env steps at which the current training ends; schedules run until here."""

    @property
    def remaining(self) -> int:
        """Env steps until the current training ends; 0 after its end."""
        return max(self.target_env_steps - self.env_steps, 0)

    def state_dict(self) -> dict[str, int]:
        """Return all counters."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore all counters."""
        for name in asdict(self):
            setattr(self, name, int(state[name]))
