"""GIF files, in which loggers keep videos."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rlox.errors import import_extra

__all__ = ["GifFile", "write_gif"]


class GifFile:
    """A GIF that plays in a loop; frames are kept in 256 colours until it is closed.

    Args:
        path: of the file, or an open binary file.
        fps: frames per second; a GIF stores times in hundredths of a second, and viewers take less
            than two for an error, so at most 50.
    """

    def __init__(self, path: Path | BinaryIO, fps: float) -> None:
        self._image: Any = import_extra("PIL.Image", "a video in GIF", "video")
        self._path = path
        self._milliseconds = max(round(100 / fps), 2) * 10
        self._frames: list[Any] = []

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """Append a frame."""
        self._frames.append(self._image.fromarray(frame).quantize())

    def close(self) -> None:
        """Write the file; consecutive frames that are equal become one that is shown longer."""
        if self._frames:
            first, *others = self._frames
            first.save(
                self._path,
                format="GIF",
                save_all=True,
                append_images=others,
                duration=self._milliseconds,
                loop=0,
            )


def write_gif(path: Path | BinaryIO, frames: Iterable[npt.NDArray[np.uint8]], fps: float) -> None:
    """Write a whole video as a GIF; see :class:`GifFile`.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    gif = GifFile(path, fps)
    for frame in frames:
        gif.add(frame)
    gif.close()
