"""Tests of :class:`rlox.logging.MLflowLogger`, on a local store that its own client reads back."""

import importlib.util

import numpy as np
import pytest
from rlox.errors import LoggerError
from rlox.logging import MLflowLogger
from rlox.testing import check_logger

FRAMES = np.stack([np.full((4, 6, 3), shade, np.uint8) for shade in (0, 100, 200)])
"""Of a video."""

# of the library and of the database's
pytestmark = pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:sqlalchemy")

needs_mlflow = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mlflow", "sqlalchemy", "alembic"))),
    reason="needs mlflow with a local store",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the address of a store; to make one takes seconds."""
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("store")
    address = f"sqlite:///{folder / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # artifacts are kept where the store was made
        MlflowClient(tracking_uri=address).search_experiments()
    return address


def runs(store, experiment):
    """Return the runs of an experiment, the newest first."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def history(store, run):
    """Return env step and value of everything logged."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    return {
        name: [
            (point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)
        ]
        for name in run.data.metrics
    }


@needs_mlflow
@pytest.mark.filterwarnings("ignore:MLflow. no route to host:RuntimeWarning")
def test_rows_are_in_the_store(store, write, monkeypatch):
    """Every finite value under its kind, with its env step, in one finished run, whatever fails."""
    from mlflow import MlflowClient

    log_param, broken = MlflowClient.log_param, [OSError("no route to host")] * 2

    def fails_at_first(*arguments):
        if broken:
            raise broken.pop()
        return log_param(*arguments)

    monkeypatch.setattr(MlflowClient, "log_param", fails_at_first)
    monkeypatch.setattr("rlox.logging.sender.RETRY_SECONDS", 0.01)
    write(MLflowLogger("rows", store, run_name="first", params={"gamma": 0.98}))
    [run] = runs(store, "rows")
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params == {"gamma": "0.98"}
    assert history(store, run) == {
        "train/loss": [(8, 0.5), (16, 0.25)],
        "train/mean_reward": [(16, 3.25)],
        "eval/mean_reward": [(8, 12.0)],
    }


@needs_mlflow
def test_a_run_given_by_its_id_stays_the_callers(store):
    """It gets the metrics, bare if so wanted, keeps its parameters, and is not ended."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    run_id = client.create_run(client.create_experiment("given")).info.run_id
    client.log_param(run_id, "gamma", "0.5")
    params = {"gamma": 0.98, "lr": 0.1}
    logger = MLflowLogger(tracking_uri=store, run_id=run_id, params=params, prefixes=False)
    logger.on_train_step(8, {"returns/mean": 2.0})
    logger.close()
    [run] = runs(store, "given")
    assert run.info.status == "RUNNING"
    assert run.data.params == {"gamma": "0.5", "lr": "0.1"}
    assert history(store, run) == {"returns/mean": [(8, 2.0)]}
    with pytest.raises(LoggerError, match="MLflow has no run 'no-such-run'"):
        MLflowLogger(tracking_uri=store, run_id="no-such-run")


@needs_mlflow
def test_videos_are_artifacts(store, tmp_path):
    """A GIF each, with the frames and their pace."""
    from mlflow import MlflowClient

    image = pytest.importorskip("PIL.Image")
    logger = MLflowLogger("videos", store)
    logger.on_video(8, "world/model", FRAMES, 10.0)
    logger.close()
    client = MlflowClient(tracking_uri=store)
    path = client.download_artifacts(logger.run_id, "videos/world-model-8.gif", str(tmp_path))
    with image.open(path) as video:
        assert (video.n_frames, video.size) == (3, (6, 4))
        assert video.info["duration"] == 100


@needs_mlflow
def test_logger_by_name_keeps_the_contract(monkeypatch):
    """It builds from a folder that does not exist yet, and is closed twice."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    check_logger("mlflow")
