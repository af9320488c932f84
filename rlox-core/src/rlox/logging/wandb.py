"""Weights & Biases logger."""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.errors import LoggerError, import_extra
from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of

__all__ = ["WandbLogger"]


class WandbLogger(LoggerCallback):
    """A Weights & Biases run with the metrics ``train/<metric>`` and ``eval/<metric>``.

    Their x axis is the metric ``global_step``, so that a resumed run, whose steps go back to the
    checkpoint's, loses no rows. Values that are not finite are left out.

    Args:
        project: the run's project.
        init: other arguments of ``wandb.init``, such as ``name``, ``config``, ``dir``, ``mode``
            and ``id``. Unless they say otherwise, the run is a new one of its own, also if
            another one is active in the process.

    Raises:
        MissingDependencyError: wandb is not installed.
        LoggerError: wandb begins no run, as if nobody is logged in.
    """

    def __init__(self, project: str = "rlox", **init: Any) -> None:
        wandb = import_extra("wandb", "WandbLogger", "wandb")
        try:
            run = wandb.init(project=project, **{"reinit": "create_new", **init})
        except wandb.errors.Error as error:
            raise LoggerError(f"wandb begins no run: {error}") from error
        self.run: Any = run
        """The run, for what a logger does not do: ``logger.run.log_artifact(...)``."""
        self._table: Any = wandb.Table
        self._video: Any = wandb.Video
        self.run.define_metric("global_step")
        self.run.define_metric("*", step_metric="global_step")

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Log a row of ``train`` metrics."""
        self._log("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Log a row of ``eval`` metrics."""
        self._log("eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Log the table under ``tables/<name>``."""
        made = self._table(columns=list(table), data=[list(row) for row in rows_of(name, table)])
        self.run.log({"global_step": step, f"tables/{name}": made})

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Log the video as a GIF under ``videos/<name>``.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        from rlox.logging.gif import write_gif

        content = BytesIO()
        write_gif(content, frames, fps)
        content.seek(0)
        self.run.log({"global_step": step, f"videos/{name}": self._video(content, format="gif")})

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        values = {f"{kind}/{name}": v for name, v in metrics.items() if math.isfinite(v)}
        self.run.log({"global_step": step, **values})

    def close(self) -> None:
        """Finish the run: upload what is pending."""
        self.run.finish()
