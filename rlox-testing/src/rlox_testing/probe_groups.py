"""Probes of algorithms with actors: one env for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rlox.protocols import StatefulVecEnv

from rlox_testing.probes import ProbeVecEnv

__all__ = ["ProbeGroup"]


class ProbeGroup:
    """The probes of an algorithm with actors, one for each; together they count as one.

    Args:
        probes: of equal size.
    """

    def __init__(self, probes: Sequence[ProbeVecEnv]) -> None:
        self.probes = list(probes)
        first = self.probes[0]
        self.n_envs = first.n_envs
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.reset_all = first.reset_all

    @property
    def is_stateful(self) -> bool:
        """Whether the envs expose their state."""
        return all(isinstance(each, StatefulVecEnv) for each in self.probes)

    @property
    def vector_steps(self) -> int:
        """Calls of ``step_all`` of all probes."""
        return sum(each.vector_steps for each in self.probes)

    @property
    def env_steps(self) -> int:
        """Env steps of all probes."""
        return sum(each.env_steps for each in self.probes)

    @property
    def returns(self) -> list[float]:
        """Undiscounted returns of all finished episodes, in no order."""
        return [value for each in self.probes for value in each.returns]

    @property
    def mean_return(self) -> float:
        """Mean return of all finished episodes; NaN before the first."""
        return float(np.mean(self.returns)) if self.returns else float("nan")
