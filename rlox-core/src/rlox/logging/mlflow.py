"""MLflow logger."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from rlox.errors import import_extra
from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of

__all__ = ["MLflowLogger"]


class MLflowLogger(LoggerCallback):
    """An MLflow run with the metrics ``train/<metric>`` and ``eval/<metric>`` over steps.

    It goes through a client of its own and leaves MLflow's active run alone. Values that are not
    finite are left out.

    Args:
        experiment: the run's experiment; made if missing.
        tracking_uri: where runs are kept: a server's address, or ``"sqlite:///mlflow.db"``. None:
            what MLflow itself is set to, as by the environment variable ``MLFLOW_TRACKING_URI``.
        run_name: name of the run; ``None`` lets MLflow choose one.
        params: parameters of the run, such as ``algorithm.config.to_dict()``.

    Raises:
        MissingDependencyError: mlflow is not installed.
    """

    def __init__(
        self,
        experiment: str = "rlox",
        tracking_uri: str | None = None,
        *,
        run_name: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        mlflow = import_extra("mlflow", "MLflowLogger", "mlflow")
        self._metric: Any = mlflow.entities.Metric
        self._client: Any = mlflow.MlflowClient(tracking_uri=tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        run = self._client.create_run(experiment_id, run_name=run_name)
        self.run_id: str = run.info.run_id
        """Identifies the run, for what a logger does not do."""
        for name, value in (params or {}).items():
            self._client.log_param(self.run_id, name, value)

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

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        milliseconds = int(time.time() * 1000)
        values = [
            self._metric(f"{kind}/{name}", value, milliseconds, step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        self._client.log_batch(self.run_id, metrics=values)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self.run_id)
