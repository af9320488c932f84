"""MLflow logger."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.errors import LoggerError, import_extra
from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of

__all__ = ["MLflowLogger"]


class MLflowLogger(LoggerCallback):
    """An MLflow run with the metrics ``train/<metric>`` and ``eval/<metric>`` over steps.

    It goes through a client of its own and leaves MLflow's active run alone, unless it is given
    that run's id. Values that are not finite are left out.

    Args:
        experiment: the run's experiment; made if missing.
        tracking_uri: where runs are kept: a server's address, or ``"sqlite:///mlflow.db"``. None:
            what MLflow itself is set to, as by the environment variable ``MLFLOW_TRACKING_URI``.
        run_name: name of the run; ``None`` lets MLflow choose one.
        params: parameters of the run, such as ``algorithm.config.to_dict()``. Those that a run
            given by its id has already stay as they are.
        run_id: an unfinished run to log into, such as ``mlflow.active_run().info.run_id``. It has
            its experiment and its name, and whoever began it ends it.
        prefixes: whether names begin with ``train/`` and ``eval/``.

    Raises:
        MissingDependencyError: mlflow is not installed.
        LoggerError: there is no run of this id.
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
        if run_id is None:
            run = self._new_run(experiment, run_name)
        else:
            try:
                run = self._client.get_run(run_id)
            except mlflow.exceptions.MlflowException as error:
                raise LoggerError(f"MLflow has no run '{run_id}': {error}") from error
        self.run_id: str = run.info.run_id
        """Identifies the run, for what a logger does not do."""
        for name, value in (params or {}).items():
            if name not in run.data.params:
                self._client.log_param(self.run_id, name, value)

    def _new_run(self, experiment: str, name: str | None) -> Any:
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        return self._client.create_run(experiment_id, run_name=name)

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Log a row of ``train`` metrics."""
        self._log("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Log a row of ``eval`` metrics."""
        self._log("eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Log the table as the artifact ``tables/<name>-<step>.json``, columns by name."""
        rows_of(name, table)
        columns = {column: list(values) for column, values in table.items()}
        self._client.log_dict(self.run_id, columns, f"tables/{name}-{step}.json")

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Log the video as the artifact ``videos/<name>-<step>.gif``, which MLflow plays.

        Raises:
            MissingDependencyError: Pillow is not installed.
        """
        from rlox.logging.gif import write_gif

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{name.replace('/', '-')}-{step}.gif")
            write_gif(path, frames, fps)
            self._client.log_artifact(self.run_id, str(path), "videos")

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        milliseconds = int(time.time() * 1000)
        prefix = f"{kind}/" if self._prefixes else ""
        values = [
            self._metric(f"{prefix}{name}", value, milliseconds, step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        self._client.log_batch(self.run_id, metrics=values)

    def close(self) -> None:
        """Mark the run as finished, if it was begun here."""
        if self._owned:
            self._client.set_terminated(self.run_id)
