"""Minibatches of whole sequences, for policies with a memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlox.spaces.nested import map_leaves

__all__ = ["sequence_fields", "split_sequences"]


def split_sequences(batch: Any, order: Tensor, size: int) -> list[Tensor]:
    """Return the sequences of each minibatch; a minibatch of a single row is joined to another.

    Args:
        batch: a :class:`~rlox.batches.rollout.RolloutBatch`.
        order: (N,) its sequences, in the order in which they are taken.
        size: sequences per minibatch; the last has the remainder.
    """
    parts = list(torch.split(order, size))
    if batch.active is None:
        return parts
    lengths = batch.active.view(batch.n_steps, batch.n_envs).sum(0).cpu()
    enough = [int(lengths[part].sum()) > 1 for part in parts]
    if not any(enough):
        return [order]
    kept = [part for part, is_enough in zip(parts, enough, strict=True) if is_enough]
    short = [part for part, is_enough in zip(parts, enough, strict=True) if not is_enough]
    kept[-1] = torch.cat([kept[-1], *short])
    return kept


def sequence_fields(batch: Any, some: Tensor) -> dict[str, Any]:
    """Return the fields of a minibatch of whole sequences.

    Args:
        batch: a :class:`~rlox.batches.rollout.RolloutBatch` with a memory.
        some: (n,) numbers of its sequences.
    """
    rows = torch.arange(batch.n_steps * batch.n_envs).view(batch.n_steps, batch.n_envs)
    chosen = rows[:, some].flatten().to(batch.returns.device)
    learnt, active = chosen, None
    if batch.active is not None:
        active = batch.active[chosen]
        learnt = (batch.active.cumsum(0) - 1)[chosen[active]]
    fields: dict[str, Any] = {
        name: _take(getattr(batch, name), chosen)
        for name in ("obs", "actions", "action_masks", "episode_starts")
    }
    for name in ("log_probs", "values", "advantages", "returns"):
        fields[name] = getattr(batch, name)[learnt]
    state = _take(batch.initial_state, some.to(chosen.device))
    return {**fields, "initial_state": state, "active": active}


def _take(field: Any, rows: Tensor) -> Any:
    return None if field is None else map_leaves(lambda leaf: leaf[rows], field)
