"""How far a training has come; one object per algorithm, advanced by the runner's hooks only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Clock", "StepUnit"]

StepUnit = Literal["env_steps", "gradient_steps"]
"""What a training is counted in: env steps where it steps an env, else gradient steps."""

COUNTERS = ("env_steps", "gradient_steps", "iterations")


@dataclass
class Clock:
    """Counters of one training."""

    unit: StepUnit = "env_steps"
    """What :attr:`steps` counts; the name of that counter."""
    env_steps: int = 0
    """Env steps: one env stepped once, so N envs stepped together count N."""
    gradient_steps: int = 0
    """Minibatches learnt from, each of them one step of every optimiser that takes part."""
    iterations: int = 0
    """Completed rounds of collecting and learning, or of learning alone."""
    target_env_steps: int = 0
    """Env steps at which the current training ends; schedules run until here."""
    target_gradient_steps: int = 0
    """The same where gradient steps are counted."""

    @property
    def unit_text(self) -> str:
        """:attr:`unit` as people write it, ``"env steps"``."""
        return self.unit.replace("_", " ")

    @property
    def steps(self) -> int:
        """Steps done in :attr:`unit`: the ``step`` of every callback and log row."""
        return int(getattr(self, self.unit))

    def progress(self) -> dict[str, int]:
        """Return :attr:`steps` under the name of :attr:`unit`, as records of a run have it."""
        return {self.unit: self.steps}

    @property
    def target(self) -> int:
        """Steps in :attr:`unit` at which the current training ends."""
        return int(getattr(self, f"target_{self.unit}"))

    @property
    def remaining(self) -> int:
        """Steps in :attr:`unit` until the current training ends; 0 after its end."""
        return max(self.target - self.steps, 0)

    def extend(self, count: int) -> None:
        """Let the training end after ``count`` more steps."""
        setattr(self, f"target_{self.unit}", self.steps + count)

    def state_dict(self) -> dict[str, int]:
        """Return the counters and the target."""
        return {name: getattr(self, name) for name in (*COUNTERS, f"target_{self.unit}")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counters and the target."""
        for name in (*COUNTERS, f"target_{self.unit}"):
            setattr(self, name, int(state[name]))
