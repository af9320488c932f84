"""Progress of a training: its counters, advanced by the runner's hooks only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST = 2**53
"""A count that no training reaches."""

COUNTERS = ("env_steps", "gradient_steps", "iterations")


@dataclass
class Progress:
    """Counters of one training, one object per algorithm.

    Raises:
        ValueError: ``unit`` is no counter, or a further counter has the name of another attribute.
    """

    unit: str = "env_steps"
    """What :attr:`steps` counts: ``"env_steps"``, ``"gradient_steps"`` or a further counter."""
    env_steps: int = 0
    """Env steps: one env stepped once, so N envs stepped together count N."""
    gradient_steps: int = 0
    """Minibatches learnt from, each of them one step of every optimiser that takes part."""
    iterations: int = 0
    """Completed rounds of collecting and learning, or of learning alone."""
    target: int = 0
    """Steps in :attr:`unit` at which the current training ends; schedules run until here."""
    counters: dict[str, int] = field(default_factory=dict)
    """Further cumulative counters by name, such as prompts and tokens; an algorithm declares them
    (:attr:`rlox.Algorithm.counters`) and :meth:`rlox.training.Hooks.count` advances them."""

    def __post_init__(self) -> None:
        for name in self.counters:
            if not name.isidentifier() or name.startswith("target_") or hasattr(self, name):
                raise ValueError(
                    f"a counter must be called by an identifier that Progress does not have, got "
                    f"'{name}'; rename it"
                )
        known = ("env_steps", "gradient_steps", *self.counters)
        if self.unit not in known:
            raise ValueError(
                f"step_unit must be one of {', '.join(known)}, got '{self.unit}'; declare it in "
                "counters"
            )

    @property
    def unit_text(self) -> str:
        """:attr:`unit` as people write it, ``"env steps"``."""
        return self.unit.replace("_", " ")

    @property
    def steps(self) -> int:
        """Steps done in :attr:`unit`: the ``step`` of every callback and log row."""
        found = self.counters if self.unit in self.counters else vars(self)
        return int(found[self.unit])

    def vector_steps_left(self, n_envs: int, steps_per_iteration: int) -> int:
        """Return the vector steps to the iteration's end; some, if the last was interrupted.

        Args:
            n_envs: number of envs that step together.
            steps_per_iteration: env steps of an iteration, rounded up to whole vector steps.
        """
        vector_steps = -(-steps_per_iteration // n_envs)
        return vector_steps - self.env_steps // n_envs % vector_steps

    def progress(self) -> dict[str, int]:
        """Return :attr:`steps` under the name of :attr:`unit`, as records of a run have it."""
        return {self.unit: self.steps}

    @property
    def target_env_steps(self) -> int:
        """The :attr:`target` if env steps are counted, else 0."""
        return self.target if self.unit == "env_steps" else 0

    @property
    def target_gradient_steps(self) -> int:
        """The :attr:`target` if gradient steps are counted, else 0."""
        return self.target if self.unit == "gradient_steps" else 0

    @property
    def remaining(self) -> int:
        """Steps in :attr:`unit` until the current training ends; 0 after its end."""
        return max(self.target - self.steps, 0)

    def extend(self, count: int) -> None:
        """Let the training end after ``count`` more steps."""
        self.target = self.steps + count

    def state_dict(self) -> dict[str, int]:
        """Return the counters and the target."""
        counts = {name: getattr(self, name) for name in COUNTERS}
        return {**counts, **self.counters, f"target_{self.unit}": self.target}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counters and the target; a further counter that is missing begins at 0.

        Raises:
            ValueError: one of them is no count that a training reaches.
        """
        for name in COUNTERS:
            setattr(self, name, _count(name, state[name]))
        self.counters = {name: _count(name, state.get(name, 0)) for name in self.counters}
        target = f"target_{self.unit}"
        self.target = _count(target, state[target])


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name} must be an integer in [0, {MOST}], got {value!r}")
    return value


def unit_of(state: Mapping[str, Any]) -> str:
    """Return the unit of a :meth:`Progress.state_dict`.

    Raises:
        KeyError: there is no target, and so no unit.
    """
    for name in state:
        if name.startswith("target_"):
            return name.removeprefix("target_")
    raise KeyError("target")
