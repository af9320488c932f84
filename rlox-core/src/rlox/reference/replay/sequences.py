"""Sequence sampling from a ring of transitions."""

from __future__ import annotations

import numpy as np

from rlox.reference.replay.parsing import Array


def follow(
    fields: dict[str, Array],
    first: Array,
    seq_len: int,
    *,
    stored: int,
    position: int,
    n_envs: int,
    cross_episodes: bool,
) -> dict[str, Array]:
    """Return the sequences that begin with the transitions of some ages, the oldest being 0.

    Args:
        fields: the arrays of the ring.
        first: the ages.
        seq_len: steps of a sequence, T.
        stored: how many transitions are stored.
        position: the slot that is written next.
        n_envs: how many envs are stored in turn.
        cross_episodes: whether a sequence goes on after the end of an episode.
    """
    capacity, shape = len(fields["rewards"]), (len(first), seq_len)
    batch = {
        key: np.zeros((*shape, *field.shape[1:]), field.dtype) for key, field in fields.items()
    }
    batch |= {key: np.zeros(shape, np.bool_) for key in ("is_first", "mask")}
    oldest = position if stored == capacity else 0
    ends = (fields["terminated"] | fields["truncated"])[(oldest + np.arange(stored)) % capacity]
    for row, begin in enumerate(first):
        for step in range(seq_len):
            age = begin + step * n_envs
            before = age - n_envs
            follows = before >= 0 and not ends[before]
            if age >= stored or (step > 0 and not follows and not cross_episodes):
                break
            for key, field in fields.items():
                batch[key][row, step] = field[(oldest + age) % capacity]
            batch["is_first"][row, step] = not follows
            batch["mask"][row, step] = True
    return batch
