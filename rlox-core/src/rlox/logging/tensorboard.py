"""TensorBoard logger."""

from __future__ import annotations

import math
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.errors import import_extra, missing_extra
from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of

__all__ = ["TensorBoardLogger"]


class TensorBoardLogger(LoggerCallback):
    """TensorBoard event files with the tags ``train/<metric>`` and ``eval/<metric>``.

    Args:
        log_dir: folder of the event file.

    Raises:
        MissingDependencyError: torch or tensorboard is not installed.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_extra("TensorBoardLogger", "tensorboard") from None
        self._open = partial(SummaryWriter, str(log_dir))
        self._writer = self._open()

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write one scalar per metric."""
        self._write("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write one scalar per metric."""
        self._write("eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Write the table as Markdown under the tag ``tables/<name>``."""
        rows = [tuple(table), ("---",) * len(table), *rows_of(name, table)]
        lines = (" | ".join(str(value).replace("|", "\\|") for value in row) for row in rows)
        self._writer.add_text(f"tables/{name}", "\n".join(f"| {line} |" for line in lines), step)

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Write the video as a GIF, which TensorBoard plays, under the tag ``videos/<name>``.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        from rlox.logging.gif import write_gif

        module = "tensorboard.compat.proto.summary_pb2"
        summary = import_extra(module, "TensorBoardLogger", "tensorboard").Summary
        content = BytesIO()
        write_gif(content, frames, fps)
        height, width = frames.shape[1:3]
        image = summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=content.getvalue()
        )
        value = summary.Value(tag=f"videos/{name}", image=image)
        writer: Any = self._writer.file_writer
        writer.add_summary(summary(value=[value]), step)

    def _write(self, kind: str, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def rewind(self, step: int) -> None:
        """Begin an event file that makes readers ignore what is later than ``step``."""
        self._writer.close()
        self._writer = self._open(purge_step=step + 1)

    def close(self) -> None:
        """Write out the event file."""
        self._writer.close()
