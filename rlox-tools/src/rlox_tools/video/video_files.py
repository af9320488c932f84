"""MP4 and GIF video files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from rlox.errors import import_extra
from rlox.logging.trackers import GifFile

__all__ = [
    "Frame",
    "Mp4File",
    "VideoFile",
    "VideoFormat",
    "open_video",
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


def open_video(path: Path, video_format: VideoFormat, fps: float) -> VideoFile:
    """Return a new file that takes frames.

    Raises:
        MissingDependencyError: what writes the format is not installed.
    """
    return Mp4File(path, fps) if video_format == "mp4" else GifFile(path, fps)
