"""Predictions for agents that are given by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.spaces.nested import map_nested

__all__ = ["agent_numbers", "predict_each"]


def agent_numbers(agent_idx: Any, agents: Sequence[str]) -> npt.NDArray[Any]:
    """Return the number of one agent, or (B,) of them, as an array.

    Args:
        agent_idx: what a user passed.
        agents: names of all.

    Raises:
        ValueError: it is no integer, or there is no agent of that number.
    """
    numbers = np.asarray(agent_idx)
    if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
        raise ValueError(f"agent_idx must be integers, one or (B,) of them, got {agent_idx!r}")
    if ((numbers < 0) | (numbers >= len(agents))).any():
        raise ValueError(
            f"agent_idx must lie in [0, {len(agents) - 1}], got {agent_idx!r}; the agents are "
            f"{', '.join(agents)}"
        )
    return numbers


def predict_each(
    numbers: npt.NDArray[Any],
    predict: Callable[[int, Any, Any], Any],
    obs: Any,
    action_masks: npt.ArrayLike | None,
) -> Any:
    """Return B actions, of which each agent chooses its own.

    Args:
        numbers: (B,) of the agents.
        predict: from an agent's number, observations and masks, or ``None``, to its actions.
        obs: (B, *shape), nested as the space is.
        action_masks: (B, mask_size); ``None`` masks nothing.

    Raises:
        ValueError: there are not B observations or masks.
    """
    _require_rows("obs", obs, len(numbers))
    masks = None if action_masks is None else np.asarray(action_masks)
    if masks is not None:
        _require_rows("action_masks", masks, len(numbers))
    chosen: list[Any] = [None] * len(numbers)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        own = map_nested(lambda leaf, rows=rows: np.asarray(leaf)[rows], obs)
        some = predict(number, own, None if masks is None else masks[rows])
        for i, row in enumerate(rows):
            chosen[row] = map_nested(lambda leaf, i=i: leaf[i], some)
    return map_nested(lambda *leaves: np.stack(leaves), *chosen)


def _require_rows(name: str, value: Any, size: int) -> None:
    """Refuse another number of rows than that of the agents."""

    def check(leaf: Any) -> None:
        if np.shape(leaf)[:1] != (size,):
            raise ValueError(
                f"{name} must have one row for each of the {size} numbers in agent_idx, got shape "
                f"{np.shape(leaf)}"
            )

    map_nested(check, value)
