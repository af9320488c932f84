"""Loggers of tracking services: TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rlox.errors import LoggerError, import_extra, missing_extra
from rlox.files import write_atomically
from rlox.logging.base import Metrics, MetricsLogger, Table, rows_of
from rlox.logging.sender import PATIENCE, Sender

UPLOAD_SECONDS = 60.0
"""Time limit for wandb's pending uploads at the end of a run."""


class TensorBoardLogger(MetricsLogger):
    """TensorBoard event files with the tags ``train/<metric>`` and ``eval/<metric>``.

    They are written on a thread. While the disk is full, rows wait but the training continues.

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
        self._writer: Any = None
        self._sender = Sender("TensorBoard", lambda error: isinstance(error, OSError))

    def _push(self, call: Callable[[Any], Any], **new_file: int) -> None:
        def write() -> None:
            try:
                if new_file and self._writer is not None:
                    self._writer.close()
                if new_file or self._writer is None:
                    self._writer = self._open(**new_file)
                call(self._writer)
                self._writer.flush()
            except OSError:
                self._writer = None  # its thread has ended
                raise

        self._sender.push(write)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Write the table as Markdown under the tag ``tables/<name>``."""
        rows = [tuple(table), ("---",) * len(table), *rows_of(name, table)]
        lines = (" | ".join(str(value).replace("|", "\\|") for value in row) for row in rows)
        text = "\n".join(f"| {line} |" for line in lines)
        self._push(lambda writer: writer.add_text(f"tables/{name}", text, step))

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Write the video as a GIF, which TensorBoard plays, under the tag ``videos/<name>``.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        module = "tensorboard.compat.proto.summary_pb2"
        summary = import_extra(module, "TensorBoardLogger", "tensorboard").Summary
        height, width = frames.shape[1:3]
        content = gif_of(frames, fps)
        image = summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=content
        )
        value = summary.Value(tag=f"videos/{name}", image=image)
        made = summary(value=[value])
        self._push(lambda writer: writer.file_writer.add_summary(made, step))

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        values = {f"{kind}/{name}": v for name, v in metrics.items() if math.isfinite(v)}

        def add(writer: Any) -> None:
            for tag, value in values.items():
                writer.add_scalar(tag, value, step)

        self._push(add)

    def rewind(self, step: int) -> None:
        """Begin an event file that makes readers ignore rows after ``step``."""
        self._push(lambda writer: None, purge_step=step + 1)

    def close(self) -> None:
        """Write out the event file."""
        self._sender.close(lambda: self._writer is not None and self._writer.close())


class WandbLogger(MetricsLogger):
    """A Weights & Biases run with the metrics ``train/<metric>`` and ``eval/<metric>``.

    Their x axis is the metric ``global_step``, so that a resumed run, whose steps go back to the
    checkpoint's, loses no rows. Values that are not finite are left out. The library sends rows
    from a separate process and keeps rows that it cannot send, for ``wandb sync``; without a
    server the whole run has the mode ``"offline"``.

    Args:
        project: the run's project.
        init: other arguments of ``wandb.init``, such as ``name``, ``config``, ``dir``, ``mode``
            and ``id``. By default the run is a new one, even if another one is active in the
            process, and ``settings`` limits the waits for a server.

    Raises:
        MissingDependencyError: wandb is not installed.
        LoggerError: wandb begins no run, for example because nobody is logged in.
    """

    def __init__(self, project: str = "rlox", **init: Any) -> None:
        wandb = import_extra("wandb", "WandbLogger", "wandb")
        waits = {"init_timeout": PATIENCE, "finish_timeout": UPLOAD_SECONDS}
        known = {name: waits[name] for name in waits.keys() & wandb.Settings.model_fields}
        init = {"project": project, "reinit": "create_new", "settings": known, **init}
        try:
            run = wandb.init(**init)
        except wandb.errors.Error as error:
            if type(error) is not wandb.errors.CommError:  # AuthenticationError is one too
                raise LoggerError(f"wandb begins no run: {error}") from error
            warnings.warn(f"wandb: {error}; the run is offline", RuntimeWarning, stacklevel=2)
            run = wandb.init(**{**init, "mode": "offline"})
        self.run: Any = run
        """The run, for calls that a logger does not make: ``logger.run.log_artifact(...)``."""
        self._table: Any = wandb.Table
        self._video: Any = wandb.Video
        self.run.define_metric("global_step")
        self.run.define_metric("*", step_metric="global_step")

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Log the table under ``tables/<name>``."""
        made = self._table(columns=list(table), data=[list(row) for row in rows_of(name, table)])
        self.run.log({"global_step": step, f"tables/{name}": made})

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Log the video as a GIF under ``videos/<name>``.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        video = self._video(BytesIO(gif_of(frames, fps)), format="gif")
        self.run.log({"global_step": step, f"videos/{name}": video})

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        values = {f"{kind}/{name}": v for name, v in metrics.items() if math.isfinite(v)}
        self.run.log({"global_step": step, **values})

    def close(self) -> None:
        """Upload pending data and finish the run."""
        self.run.finish()


class MLflowLogger(MetricsLogger):
    """An MLflow run with the metrics ``train/<metric>`` and ``eval/<metric>`` over steps.

    It uses a client of its own and leaves MLflow's active run alone, unless given that run's id.
    Values that are not finite are left out. A thread sends everything and retries, so that a
    server that does not answer delays nothing.

    Args:
        experiment: the run's experiment; made if missing.
        tracking_uri: store of the runs: a server's address, or ``"sqlite:///mlflow.db"``. ``None``:
            MLflow's own setting, such as the environment variable ``MLFLOW_TRACKING_URI``.
        run_name: name of the run; ``None`` lets MLflow choose one.
        params: parameters of the run, such as ``algorithm.config.to_dict()``. Parameters that an
            existing run already has do not change.
        run_id: an unfinished run to log into, such as ``mlflow.active_run().info.run_id``. It
            keeps its experiment and name, and is not ended here.
        prefixes: whether names begin with ``train/`` and ``eval/``.

    Raises:
        MissingDependencyError: mlflow is not installed.
        LoggerError: there is no run with this id, or the server refuses to begin one.
    """

    def __init__(
        self,
        experiment: str = "rlox",
        tracking_uri: str | None = None,
        *,
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        prefixes: bool = True,
    ) -> None:
        mlflow = import_extra("mlflow", "MLflowLogger", "mlflow")
        self._metric: Any = mlflow.entities.Metric
        self._client: Any = mlflow.MlflowClient(tracking_uri=tracking_uri)
        self._owned, self._prefixes = run_id is None, prefixes
        error_type = mlflow.exceptions.MlflowException

        def passes(error: Exception) -> bool:
            return not isinstance(error, error_type) or error.get_http_status_code() >= 500

        def begin() -> Any:
            return self._client.get_run(run_id) if run_id else self._new_run(experiment, run_name)

        def add_params() -> None:
            known = self._begun.result().data.params
            for name, value in (params or {}).items():
                if name not in known:
                    self._client.log_param(self.run_id, name, value)

        self._sender = Sender("MLflow", passes)
        self._begun = self._sender.push(begin)
        self._sender.push(add_params)  # separate, so that a retry does not begin a second run
        try:
            self._begun.result(PATIENCE)
        except TimeoutError:
            self._sender.warn()
        except error_type as error:
            self._sender.close()
            what = f"has no run '{run_id}'" if run_id else "begins no run"
            raise LoggerError(f"MLflow {what}: {error}") from error

    @property
    def run_id(self) -> str:
        """Id of the run, for calls of your own; waits for a slow server."""
        return str(self._begun.result(PATIENCE).info.run_id)

    def _new_run(self, experiment: str, name: str | None) -> Any:
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        return self._client.create_run(experiment_id, run_name=name)

    def _push(self, method: str, *arguments: Any, **named: Any) -> None:
        self._sender.push(lambda: getattr(self._client, method)(self.run_id, *arguments, **named))

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Log the table as the artifact ``tables/<name>-<step>.json``, columns by name."""
        rows_of(name, table)
        columns = {column: list(values) for column, values in table.items()}
        self._push("log_dict", columns, f"tables/{name}-{step}.json")

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Log the video as the artifact ``videos/<name>-<step>.gif``, which MLflow plays.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        content = gif_of(frames, fps)

        def send() -> None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"{name.replace('/', '-')}-{step}.gif")
                write_atomically(path, content, sync=False)
                self._client.log_artifact(self.run_id, str(path), "videos")

        self._sender.push(send)

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        milliseconds = int(time.time() * 1000)
        prefix = f"{kind}/" if self._prefixes else ""
        values = [
            self._metric(f"{prefix}{name}", value, milliseconds, step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        self._push("log_batch", metrics=values)

    def close(self) -> None:
        """Send pending data and mark the run as finished, if it was begun here."""
        end = lambda: self._client.set_terminated(self.run_id)  # noqa: E731
        self._sender.close(end if self._owned else None)


def mlflow_logger(log_dir: str | Path) -> MLflowLogger:
    """Return an MLflow logger; runs go into the folder unless MLflow is configured otherwise."""
    if "MLFLOW_TRACKING_URI" in os.environ:
        return MLflowLogger()
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return MLflowLogger(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")


def wandb_logger(log_dir: str | Path) -> WandbLogger:
    """Return a Weights & Biases logger whose files are in the folder."""
    Path(log_dir).mkdir(parents=True, exist_ok=True)
    return WandbLogger(dir=str(log_dir))


class GifFile:
    """A GIF that plays in a loop; frames are kept in 256 colours until it is closed.

    Args:
        path: of the file, or an open binary file.
        fps: frames per second, at most 50: a GIF stores times in hundredths of a second, and
            viewers treat fewer than two as an error.
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
        """Write the file; equal consecutive frames become one that is shown longer."""
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


def gif_of(frames: Iterable[npt.NDArray[np.uint8]], fps: float) -> bytes:
    """Return a whole video as the contents of a GIF; see :class:`GifFile`.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    content = BytesIO()
    gif = GifFile(content, fps)
    for frame in frames:
        gif.add(frame)
    gif.close()
    return content.getvalue()
