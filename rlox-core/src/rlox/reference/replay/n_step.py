"""N-step transitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlox.reference.arrays import size as parse_size
from rlox.reference.replay.parsing import Array


@dataclass(frozen=True)
class NStep:
    """How the steps of an env follow each other, and how many a drawn transition spans.

    R = Σ γ^i r_i over k steps: ``n_step``, or fewer if the episode ends or nothing newer is
    stored. What follows is worth γ^k of its value, and nothing after a termination.

    Source:
        Hessel et al., "Rainbow", 2018, section "Multi-step learning".
    """

    n_envs: int
    n_step: int
    gamma: float

    def check(self, capacity: int) -> None:
        """Raise what is out of range."""
        parse_size("n_step", self.n_step)
        if not 1 <= self.n_envs <= capacity:
            raise ValueError(f"n_envs must lie in [1, {capacity}], got {self.n_envs}")
        if not 0.0 <= self.gamma <= 1.0:
            raise ValueError(f"gamma must lie in [0, 1], got {self.gamma}")

    def check_push(self, n: int) -> None:
        """Refuse the steps of some envs without those of the others."""
        if n % self.n_envs:
            raise ValueError(
                f"a buffer of n_envs = {self.n_envs} stores one step of every env after the other, "
                f"so transitions come in multiples of {self.n_envs}, got {n}; push the steps of "
                "all envs with one push_batch"
            )

    def gather(self, fields: dict[str, Array], slots: Array, position: int) -> dict[str, Array]:
        """Return the transitions that begin in ``slots`` of a ring written next at ``position``."""
        batch = {name: field[slots] for name, field in fields.items()}
        if self.n_step == 1:
            return batch
        capacity = len(fields["rewards"])
        batch["discounts"] = np.zeros(len(slots), np.float32)
        for row, first in enumerate(slots):
            newer = (position - 1 - first) % capacity
            rewards = []
            for steps in range(self.n_step):
                last = (first + steps * self.n_envs) % capacity
                rewards.append(float(fields["rewards"][last]))
                if fields["terminated"][last] or fields["truncated"][last]:
                    break
                if newer < (steps + 1) * self.n_envs:
                    break
            total, weight = 0.0, 1.0
            for reward in rewards:
                total += weight * reward
                weight *= self.gamma
            for name in ("next_obs", "terminated", "truncated"):
                batch[name][row] = fields[name][last]
            batch["rewards"][row] = total
            batch["discounts"][row] = 0.0 if fields["terminated"][last] else weight
        return batch
