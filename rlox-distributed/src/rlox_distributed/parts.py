"""The rows of one worker's envs in a vector step."""

from __future__ import annotations

from collections.abc import Sequence
from operator import setitem
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rlox.spaces.nested import map_leaves

from rlox_distributed.spaces import Leaves

__all__ = ["Part", "begun", "concatenate", "decode_observations", "decode_outcome", "marks"]

Flags = npt.NDArray[np.bool_]


class Part(NamedTuple):
    """As in :class:`rlox.protocols.VecEnvStep`, with the masks of the next actions."""

    obs: Any
    masks: Flags | None
    rewards: npt.NDArray[np.float64]
    terminated: Flags
    truncated: Flags
    final_obs: Any
    life_lost: Flags | None = None
    lost: Flags | None = None


def begun(given: Any, leaves: Leaves, count: int) -> Part:
    """Return a part with the observations and masks of envs that begin."""
    obs, masks = decode_observations(given, leaves, count)
    none = np.zeros(count, np.bool_)
    return Part(obs, masks, np.zeros(count), none, none, obs)


def decode_observations(given: Any, leaves: Leaves, count: int) -> tuple[Any, Flags | None]:
    """Return observations and masks.

    Args:
        given: an ``Observations``.
        leaves: of the observations of all envs of the worker.
        count: how many these are.

    Raises:
        ValueError: they have not the bytes that the spaces say.
    """
    obs, masks = leaves.from_bytes(given.obs), given.masks
    return obs, _flags(masks, len(masks)).reshape(count, -1) if masks else None


def decode_outcome(outcome: Any, leaves: Leaves, count: int) -> Part:
    """Return a step; arguments and errors as of :func:`decode_observations`.

    Raises:
        IndexError: an env that ended is none of the worker's.
        ValueError: a field has not the bytes that the spaces say.
    """
    obs, masks = decode_observations(outcome.next, leaves, count)
    final_obs = obs
    if outcome.ended:
        ended = np.fromiter(outcome.ended, np.int64)
        final_obs = map_leaves(lambda leaf: leaf.copy(), obs)
        true = leaves.from_bytes(outcome.final_obs, len(ended))
        map_leaves(lambda leaf, new: setitem(leaf, ended, new), final_obs, true)
    return Part(
        obs,
        masks,
        rewards=np.frombuffer(outcome.rewards, "<f8").astype(np.float64).reshape(count),
        terminated=_flags(outcome.terminated, count),
        truncated=_flags(outcome.truncated, count),
        final_obs=final_obs,
        life_lost=_flags(outcome.life_lost, count) if outcome.life_lost else None,
        lost=_flags(outcome.lost, count) if outcome.lost else None,
    )


def _flags(data: bytes, size: int) -> Flags:
    """Return flags; a comparison of arrays would cost more than the check of the bytes."""
    if len(data) != size or data.strip(b"\0\1"):
        raise ValueError(f"expected {size} flags of 0 or 1, got {len(data)} bytes")
    flags: Flags = np.ndarray(size, np.bool_, bytearray(data))
    return flags


def concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts; those of one as they are."""
    if len(parts) == 1:
        return parts[0]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *parts)


def marks(parts: Sequence[Part], name: str) -> Flags | None:
    """Return an optional flag of all envs; ``None`` if no part has it."""
    given = [getattr(part, name) for part in parts]
    if all(flags is None for flags in given):
        return None
    return np.concatenate(
        [
            np.zeros(len(part.rewards), np.bool_) if flags is None else flags
            for part, flags in zip(parts, given, strict=True)
        ]
    )
