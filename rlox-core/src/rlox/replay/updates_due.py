"""Replay ratio: updates due after each env step, in integers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

__all__ = ["UpdatesDue"]


class UpdatesDue:
    """Counts the updates that are due: some whenever the env steps pass a multiple.

    Their ratio is the updates per env step, whatever the number of envs. As multiples of the count
    of all env steps matter, no remainder is lost between iterations or in a checkpoint.

    Args:
        updates: how many are due each time.
        every: env steps from one time to the next.
    """

    def __init__(self, updates: int, every: int) -> None:
        self.updates = updates
        self.every = every
        self.pending = 0
        """Updates that are due and not yet taken; checkpoints hold them."""

    @staticmethod
    def of_ratio(ratio: Fraction) -> UpdatesDue:
        """Return a count with so many updates per env step, as evenly as whole updates can be."""
        return UpdatesDue(ratio.numerator, ratio.denominator)

    def count(self, env_steps: int, new: int) -> None:
        """Count env steps.

        Args:
            env_steps: done before.
            new: done since.
        """
        times = (env_steps + new) // self.every - env_steps // self.every
        self.pending += times * self.updates

    def take(self) -> Iterator[int]:
        """Yield for every update that is due; it counts as taken from then on."""
        while self.pending:
            self.pending -= 1
            yield self.pending
