"""Tests of :mod:`rlox_tools.analysis`."""

import json
from pathlib import Path

import numpy as np
import pytest
from rlox.errors import RunError
from rlox.logging import CsvLogger, JsonlLogger
from rlox_tools.analysis import Curve, aggregate, default_metric, find_runs, group_runs, read_curve


def make_run(folder, logger=JsonlLogger, **record):
    """Write a run folder with three rows of training and one evaluation."""
    folder.mkdir(parents=True)
    values = {"algorithm": "counting", "env": "CartPole-v1", "status": "running", **record}
    (folder / "run.json").write_text(json.dumps(values), encoding="utf-8")
    log = logger(folder)
    log.on_train_step(10, {"mean_reward": float("nan"), "loss": 4.0, "env_steps_per_second": 10.0})
    log.on_train_step(20, {"mean_reward": 5.0, "loss": 3.0, "env_steps_per_second": 20.0})
    log.on_eval(20, {"mean_reward": 7.0, "std_reward": 0.5})
    log.on_train_step(40, {"mean_reward": 9.0, "loss": 2.0, "env_steps_per_second": 5.0})
    log.close()
    return folder


@pytest.mark.parametrize("logger", [JsonlLogger, CsvLogger])
def test_curve_is_the_finite_values_over_env_steps(tmp_path, logger):
    """From either log, of training or evaluations; NaN is no point."""
    run = make_run(tmp_path / "run", logger)
    curve = read_curve(run)
    assert (curve.x.tolist(), curve.y.tolist()) == ([20.0, 40.0], [5.0, 9.0])
    assert read_curve(run, "loss").y.tolist() == [4.0, 3.0, 2.0]
    evaluations = read_curve(run, "eval/mean_reward")
    assert (evaluations.x.tolist(), evaluations.y.tolist()) == ([20.0], [7.0])


def test_seconds_are_summed_from_the_speed_of_each_iteration(tmp_path):
    """10 steps at 10 a second, 10 at 20, 20 at 5."""
    run = make_run(tmp_path / "run")
    assert read_curve(run, "loss", "seconds").x.tolist() == [1.0, 1.5, 5.5]
    assert read_curve(run, "eval/mean_reward", "seconds").x.tolist() == [1.5]


@pytest.mark.parametrize(
    ("change", "metric", "message"),
    [
        (None, "los", "run '{run}' has no metric 'los'; did you mean 'loss'? (it has "
         "env_steps_per_second, loss, mean_reward, eval/mean_reward, eval/std_reward)"),
        (None, "std_reward", "run '{run}' has no metric 'std_reward'; did you mean "
         "'eval/std_reward' or 'mean_reward'? (it has env_steps_per_second, loss, mean_reward, "
         "eval/mean_reward, eval/std_reward)"),
        ("", "loss", "run '{run}' has logged no train row"),
        ("", "eval/x", "run '{run}' has logged no eval row; --eval-freq makes evaluations"),
        ("no file", "loss", "run '{run}' has no metrics.jsonl and no metrics.csv; train with "
         "--logger jsonl or csv"),
        ('{"kind": "train", "step": 1, "loss": null}\n', "loss",
         "the metric 'loss' of run '{run}' has no value yet"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_reported(tmp_path, change, metric, message):
    """The error names the run, and what it has instead."""
    run = make_run(tmp_path / "run")
    if change == "no file":
        (run / "metrics.jsonl").unlink()
    elif change is not None:
        (run / "metrics.jsonl").write_text(change)
    with pytest.raises(RunError) as caught:
        read_curve(run, metric)
    assert str(caught.value) == message.format(run=run)


def test_returns_of_training_are_drawn_unless_there_are_none(tmp_path):
    """What learns from a dataset finishes no episodes but those of its evaluations."""
    online, offline = make_run(tmp_path / "online"), make_run(tmp_path / "offline")
    row = '{"kind": "train", "step": 1, "loss": 1.0}\n'
    (offline / "metrics.jsonl").write_text(row)
    assert default_metric([offline]) == "eval/mean_reward"
    assert default_metric([offline, online]) == "mean_reward"


@pytest.mark.parametrize("text", ["{\n", "[]\n", "3\n", '{"step": 1}\n'])
def test_damaged_log_is_reported(tmp_path, text):
    """A log of another form is an error of the run."""
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text(text)
    with pytest.raises(RunError, match=r"^the log of run '.*' is damaged: "):
        read_curve(run)


def test_runs_are_found_below_a_folder(tmp_path):
    """Those of sweeps too, but not what a resumed sweep has set aside."""
    runs = [make_run(tmp_path / name) for name in ("a", "sweep/seed-0", "sweep/seed-1")]
    make_run(tmp_path / "sweep/seed-2.superseded")
    assert find_runs(tmp_path) == runs
    assert find_runs(runs[0]) == [runs[0]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"holds no run: there is no run\.json in it"):
        find_runs(tmp_path / "empty")
    with pytest.raises(RunError, match="is not a folder"):
        find_runs(tmp_path / "none")


def test_runs_are_grouped_by_env_algorithm_and_label(tmp_path):
    """Seeds go together; a label separates what algorithm and env, or model, do not."""
    a, b, c = (make_run(tmp_path / name) for name in "abc")
    other = make_run(tmp_path / "d", env="Acrobot-v1")
    groups = group_runs([(None, a), (None, b), ("tuned", c), (None, other)])
    assert [(g.label, g.env, [curve.run for curve in g.curves]) for g in groups] == [
        ("counting", "CartPole-v1", [a, b]),
        ("tuned", "CartPole-v1", [c]),
        ("counting", "Acrobot-v1", [other]),
    ]
    of_models = {"parts": {"model": "models/small", "prompts": "prompts.jsonl"}}
    model = make_run(tmp_path / "e", env=None, options=of_models, algorithm="grpo")
    groups = group_runs([("tuned", a), ("tuned", model)])
    assert [(g.label, g.env) for g in groups] == [
        ("counting, tuned", "CartPole-v1"), ("grpo, tuned", "small"),
    ]  # fmt: skip


def curve(x, y):
    """Return a curve of no particular run."""
    return Curve(Path("run"), np.array(x), np.array(y))


def test_aggregate_is_the_interquartile_mean_on_the_common_span():
    """Every point is of all runs; the outer ones of four are left out."""
    curves = [
        curve([0, 10, 20], [0, 10, 20]), curve([0, 20], [2, 22]), curve([0, 30], [-900, -900]),
        curve([10, 20], [900, 900]),
    ]  # fmt: skip
    grid, found = aggregate(curves)
    assert grid.tolist() == [10.0, 15.0, 20.0]
    assert found.value.tolist() == [11.0, 16.0, 21.0]
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_runs_without_a_common_span_are_reported():
    """An interrupted run may end before another has its first value."""
    with pytest.raises(
        RunError, match=r"^run 'run' ends at 5, before all others have begun at 10$"
    ):
        aggregate([curve([0, 5], [0, 0]), curve([10, 20], [0, 0])])


def test_a_training_without_env_runs_over_gradient_steps(tmp_path):
    """The unit is the one that its speed was logged in, for seconds too."""
    log = JsonlLogger(tmp_path)
    log.on_train_step(50, {"loss": 2.0, "gradient_steps_per_second": 10.0})
    log.on_train_step(100, {"loss": 1.0, "gradient_steps_per_second": 50.0})
    log.close()
    curve = read_curve(tmp_path, "loss")
    assert (curve.unit, curve.x.tolist()) == ("gradient_steps", [50, 100])
    assert read_curve(tmp_path, "loss", "seconds").x.tolist() == [5, 6]
