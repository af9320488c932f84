"""Tests of :mod:`rlox.batches.rollout`."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch

SIZE = 12


def batch() -> RolloutBatch:
    """Return a batch whose every field says the row."""
    row = torch.arange(SIZE)
    return RolloutBatch(
        obs=torch.stack([row, row], 1).float(),
        actions=row,
        log_probs=row + 0.1,
        values=row + 0.2,
        rewards=row + 0.3,
        terminated=row == 0,
        truncated=row == 1,
        advantages=row + 0.4,
        returns=row + 0.5,
        n_steps=4,
        n_envs=3,
    )


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4, 5, 12])
def test_every_row_comes_exactly_once(batch_size: int, shuffle: bool) -> None:
    """Minibatches part the rollout; the last has the remainder."""
    parts = list(batch().sample_minibatches(batch_size, shuffle))
    assert [len(p.obs) for p in parts[:-1]] == [batch_size] * (len(parts) - 1)
    rows = torch.cat([p.actions for p in parts])
    assert sorted(rows.tolist()) == list(range(SIZE))
    assert shuffle or rows.tolist() == list(range(SIZE))


def test_fields_of_a_row_stay_together() -> None:
    """The order is the same for every field."""
    for part in batch().sample_minibatches(5):
        row = part.actions
        torch.testing.assert_close(part.obs, torch.stack([row, row], 1).float())
        for name, offset in (
            ("log_probs", 0.1), ("values", 0.2), ("advantages", 0.4), ("returns", 0.5),
        ):  # fmt: skip
            torch.testing.assert_close(getattr(part, name), row + offset)


def test_generator_fixes_the_order() -> None:
    """Same generator, same order; each pass draws another."""
    orders = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(0)
        for _ in range(2):
            parts = batch().sample_minibatches(SIZE, generator=generator)
            orders.append(next(iter(parts)).actions.tolist())
    assert orders[:2] == orders[2:]
    assert orders[0] != orders[1]


@pytest.mark.parametrize("batch_size", [0, -1, SIZE + 1])
def test_wrong_batch_size_is_refused(batch_size: int) -> None:
    """A minibatch has at least one row and at most all."""
    with pytest.raises(ValueError, match=rf"^batch_size must lie in \[1, 12\], got {batch_size}$"):
        list(batch().sample_minibatches(batch_size))


def test_batches_are_frozen() -> None:
    """A learner cannot swap a field."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch().obs = torch.zeros(1)  # type: ignore[misc]
    names = {field.name for field in dataclasses.fields(RolloutMinibatch)}
    assert names < {field.name for field in dataclasses.fields(RolloutBatch)}


@pytest.mark.filterwarnings("error")
def test_one_row_has_no_explained_variance() -> None:
    """It is NaN, without torch's warning about degrees of freedom."""
    one = torch.ones(1)
    single = dataclasses.replace(batch(), returns=one, values=one)
    assert math.isnan(single.explained_variance())
