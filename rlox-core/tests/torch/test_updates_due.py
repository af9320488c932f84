"""Tests of :mod:`rlox.replay.loop`."""

from __future__ import annotations

from fractions import Fraction

import pytest
from rlox.replay.loop import UpdatesDue


@pytest.mark.parametrize("n_envs", [1, 3, 16])
def test_updates_follow_env_steps_whatever_the_number_of_envs(n_envs: int) -> None:
    """No remainder is lost: 3 updates per 32 env steps are 45 per 480."""
    due = UpdatesDue.of_ratio(Fraction(6, 64))
    for step in range(0, 480, n_envs):
        due.count(step, n_envs)
    assert due.pending == 45
    assert len(list(due.take())) == 45
    assert due.pending == 0


def test_an_interruption_leaves_the_other_updates_due() -> None:
    """Each counts as taken when it begins."""
    due = UpdatesDue(updates=4, every=8)
    due.count(7, 1)
    next(iter(due.take()))
    assert due.pending == 3
