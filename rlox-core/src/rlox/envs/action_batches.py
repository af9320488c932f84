"""Batches of actions in the dtypes of their space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlox.errors import EnvError
from rlox.spaces.nested import is_nested, join, leaf_spaces, map_leaves, split

__all__ = ["batch_of_actions"]


def batch_of_actions(actions: Any, space: gymnasium.Space[Any]) -> Any:
    """Return a batch of actions in the dtypes of the batch's space, nested as that is.

    Raises:
        EnvError: the actions have another shape, or are nested otherwise.
    """
    if not is_nested(space):
        actions = np.asarray(actions, dtype=space.dtype)
        if actions.shape != space.shape:
            raise EnvError(f"actions must have shape {space.shape}, got {actions.shape}")
        return actions
    try:
        leaves = split(space, actions)
    except ValueError as error:
        raise EnvError(f"the actions are not nested as their space: {error}") from None
    return join(space, map_leaves(batch_of_actions, leaves, leaf_spaces(space)))
