"""MP4 and GIF video files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rlox.errors import import_extra

__all__ = [
    "Frame",
    "GifFile",
    "Mp4File",
    "VideoFile",
    "VideoFormat",
    "open_video",
    "write_gif",
]

VideoFormat = Literal["mp4", "gif"]

Frame = npt.NDArray[np.uint8]


class VideoFile(Protocol):
    """A file that takes frames one by one."""

    def add(self, frame: Frame) -> None:
        """Append a frame (height, width, 3)."""

    def close(self) -> None:
        """Finish the file."""


class Mp4File:
    """H.264 in an MP4 container; every frame is encoded as it comes.

    Args:
        path: of the file.
        fps: frames per second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        imageio = import_extra("imageio.v2", "a video in MP4", "video")
        import_extra("imageio_ffmpeg", "a video in MP4", "video")
        self._writer: Any = imageio.get_writer(
            path, format="FFMPEG", mode="I", fps=fps, codec="libx264", macro_block_size=2
        )

    def add(self, frame: Frame) -> None:
        """Append a frame; an odd height or width repeats its last line, for H.264 needs even."""
        height, width, _ = frame.shape
        self._writer.append_data(
            np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        )

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


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

    def add(self, frame: Frame) -> None:
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


def open_video(path: Path, video_format: VideoFormat, fps: float) -> VideoFile:
    """Return a new file that takes frames.

    Raises:
        MissingDependencyError: what writes the format is not installed.
    """
    return Mp4File(path, fps) if video_format == "mp4" else GifFile(path, fps)


def write_gif(path: Path | BinaryIO, frames: Iterable[Frame], fps: float) -> None:
    """Write a whole video as a GIF; see :class:`GifFile`.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    gif = GifFile(path, fps)
    for frame in frames:
        gif.add(frame)
    gif.close()
