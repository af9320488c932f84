"""Prediction requests: observations and masks of a user as batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.spaces.masks import MASK_KEY
from rlox.spaces.rows import ActionRows, ObservationRows

__all__ = ["Request", "memory_of", "read_request", "remembered"]


@dataclass(frozen=True)
class Request:
    """What a user asks a policy to act on."""

    obs: Any
    """(B, *shape) arrays, of a nested space a dict of them by leaf name."""
    masks: npt.NDArray[np.bool_] | None
    """(B, mask_size)"""
    size: int
    """B"""
    single: bool
    """Whether it was one observation, which is a batch of one here."""
    rows: ActionRows

    def actions(self, chosen: npt.NDArray[Any]) -> Any:
        """Return what the user gets for action rows (B, ...)."""
        actions = self.rows.to_env(chosen)
        return self.rows.take(actions, 0) if self.single else actions


def read_request(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    action_masks: npt.ArrayLike | None,
) -> Request:
    """Return what a user passed as a batch.

    Args:
        observation_space: of one env; its shape distinguishes one observation from a batch.
        action_space: of one env.
        obs: one observation or a batch (B, *shape), nested as the space is. The key
            ``"action_mask"`` of a dict is taken for the masks.
        action_masks: (mask_size,) or (B, mask_size); ``None`` masks nothing.

    Raises:
        SpaceError: the actions take no masks.
        ValueError: ``obs`` or ``action_masks`` has another shape, or a mask allows nothing.
    """
    if isinstance(obs, Mapping) and MASK_KEY in obs and action_masks is None:
        action_masks = obs[MASK_KEY]
        obs = {key: value for key, value in obs.items() if key != MASK_KEY}
    batch, single = ObservationRows(observation_space).batch(obs)
    size = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
    rows = ActionRows(action_space)
    masks = None
    if action_masks is not None:
        given = np.asarray(action_masks)[None] if single else np.asarray(action_masks)
        masks = rows.check_masks(given, size)
    return Request(batch, masks, size, single, rows)


def remembered(state: Any) -> Mapping[str, Any]:
    """Return what a user passed as ``state``: by name what is remembered, nothing for ``None``.

    Raises:
        ValueError: it is not what a prediction returned.
    """
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not state.keys() <= {"frames", "memory"}:
        got = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(
            f"state must be None or what predict returned with the last actions, got {got}"
        )
    return state


def memory_of(
    state: npt.ArrayLike | None, shape: tuple[int, int], episode_start: npt.ArrayLike | None
) -> npt.NDArray[np.float32]:
    """Return the memory (B, state_size) to act with, emptied where an episode begins.

    Args:
        state: what was remembered; ``None`` is an empty memory.
        shape: (B, state_size).
        episode_start: bool or (B,) bools; ``None`` if none begins.

    Raises:
        ValueError: ``state`` or ``episode_start`` has another shape.
    """
    memory = np.zeros(shape, np.float32) if state is None else np.array(state, np.float32)
    if memory.shape != shape:
        raise ValueError(f"state must have shape {shape}, got {memory.shape}")
    if episode_start is not None:
        if np.shape(episode_start) not in ((), shape[:1]):
            raise ValueError(
                f"episode_start must be one bool or {shape[0]}, got shape {np.shape(episode_start)}"
            )
        memory[np.broadcast_to(np.asarray(episode_start, np.bool_), shape[:1])] = 0.0
    return memory
