"""Frame stacking of observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.spaces.nested import channels_first

__all__ = ["FrameStack"]

Array = npt.NDArray[Any]

SMALLEST_IMAGE = 3
"""Pixels; what has fewer is seen as numbers, whose order does not matter."""


class FrameStack:
    """Joins the last k frames of one leaf, the oldest first.

    Frames of an image are joined along its channels, those of other arrays along the last
    dimension; a box with two dimensions gets a third one. A ``Discrete`` becomes a
    ``MultiDiscrete``.

    Args:
        space: of one frame.
        size: number of frames k.

    Raises:
        SpaceError: there would be more channels than pixels.
    """

    def __init__(self, space: gymnasium.Space[Any], size: int) -> None:
        shape = space.shape or ()
        self._size = size
        self._dims = 3 if len(shape) == 2 and isinstance(space, spaces.Box) else max(len(shape), 1)
        self._axis = 1 if channels_first(shape) else -1
        self.space = self._stacked(space)
        """Space of k frames."""
        flipped = channels_first(self.space.shape or ()) != channels_first(shape)
        pixels = shape[1:] if channels_first(shape) else shape[:2]
        if flipped and min(pixels) >= SMALLEST_IMAGE:
            raise SpaceError(
                f"{size} frames of {space} have more channels than pixels, so that "
                "the two cannot be distinguished; stack fewer"
            )

    def fill(self, frames: Array) -> Array:
        """Return k copies of each of B frames (B, *shape) joined."""
        return np.concatenate([self._with_axis(frames)] * self._size, self._axis)

    def push(self, stacks: Array, frames: Array) -> Array:
        """Return the stacks without their oldest frames and with new ones (B, *shape)."""
        frames = self._with_axis(frames)
        _, kept = np.split(stacks, [frames.shape[self._axis]], self._axis)
        return np.concatenate([kept, frames], self._axis)

    def _with_axis(self, frames: Array) -> Array:
        return frames if frames.ndim > self._dims else frames[..., None]

    def _stacked(self, space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
        def fill(bounds: Any) -> Array:
            filled: Array = self.fill(np.asarray(bounds)[None])[0]
            return filled

        if isinstance(space, spaces.Box):
            low, high = fill(space.low), fill(space.high)
            return spaces.Box(low, high, low.shape, space.dtype)
        if isinstance(space, spaces.MultiBinary):
            return spaces.MultiBinary(fill(np.zeros(space.shape)).shape)
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
        return spaces.MultiDiscrete(fill(count), start=fill(space.start))  # type: ignore[attr-defined]
