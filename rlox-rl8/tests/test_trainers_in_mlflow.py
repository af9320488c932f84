"""Trainers log into their caller's active MLflow run."""

import pytest
from agents import small
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.trainers import RecurrentTrainer, Trainer


@pytest.mark.slow
# MLflow and its database library warn
@pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:sqlalchemy")
def test_trainers_log_into_the_callers_mlflow_run(tmp_path):
    """Under rl8's keys, over env steps; the caller keeps the run, also with two trainers."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    try:
        with mlflow.start_run() as run:
            trainer = Trainer(small(AlgorithmConfig))
            found = [trainer.step(), trainer.step(), trainer.eval()]
            recurrent = RecurrentTrainer(small(RecurrentAlgorithmConfig))
            recurrent.step()
            for logger in (trainer.logger, recurrent.logger):
                logger.close()
            assert mlflow.active_run().info.run_id == run.info.run_id
        assert Trainer(small(AlgorithmConfig)).logger is None
        client = mlflow.MlflowClient()
        data = client.get_run(run.info.run_id).data
        for key in found[1].keys() - {"profiling/collect_ms", "profiling/step_ms"}:
            points = client.get_metric_history(run.info.run_id, key)
            assert [(p.step, p.value) for p in points][:2] == [
                (128, pytest.approx(found[0][key])), (256, pytest.approx(found[1][key])),
            ], key  # fmt: skip
        assert data.metrics["eval/returns/mean"] == pytest.approx(found[2]["eval/returns/mean"])
        assert data.params["env_cls"] == "DiscreteDummyEnv"
        assert {"num_envs": "16", "gamma": "0.95"}.items() <= data.params.items()
    finally:
        mlflow.set_tracking_uri(before)
