"""Tests of ``rlox tune``, with an algorithm that counts instead of learning."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from counting_config import CountingConfig
from rlox.cli.sweeps import processes
from rlox.cli.sweeps.places import Job
from rlox.cli.sweeps.processes import run_in_processes
from rlox.cli.tuning.folder import TuningFolder
from rlox.cli.tuning.space import Dimension, parse_space, with_values
from rlox.cli.tuning.trials import Trial, evaluations, open_study
from rlox.config.model import Config, ScheduleValue, coefficient, discount, flag, schedule
from rlox.config.schedules import Linear
from rlox.errors import ConfigError

pytest.importorskip("optuna")

Run = Callable[..., Any]
TUNE = (
    "tune", "counting", "--env", "CartPole-v1", "--total-timesteps", "16", "--eval-episodes", "1",
    "--seeds", "1", "--jobs", "2", "--run-dir", "t",
)  # fmt: skip


class SearchedConfig(Config):
    """One field of each kind that can be searched."""

    rate: ScheduleValue = schedule("linear(1e-3, 0)", help="step size", source="here")
    gamma: float = discount(0.99, help="discount", source="here")
    bonus: float = coefficient(0.0, help="weight", source="here")
    clip_it: bool = flag(True, help="clips", source="here")

    schedule_bounds = {"rate": (0.0, 1.0)}  # noqa: RUF012  # pydantic keeps class variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate", Dimension("rate", "float", 1e-4, 1e-2, log=True)),
        ("rate=log:1e-5:1e-1", Dimension("rate", "float", 1e-5, 1e-1, log=True)),
        ("gamma", Dimension("gamma", "float", 0.9, 0.999)),
        ("gamma=0.9:1", Dimension("gamma", "float", 0.9, 1.0)),
        ("clip-it", Dimension("clip_it", "choice", choices=("false", "true"))),
        ("bonus=0,0.1", Dimension("bonus", "choice", choices=("0", "0.1"))),
    ],
)
def test_spaces_come_from_texts_and_bounds(text: str, expected: Dimension) -> None:
    """An option alone is searched around its present value."""
    [found] = parse_space([text], SearchedConfig())
    assert (found.name, found.kind, found.log, found.choices) == (
        expected.name, expected.kind, expected.log, expected.choices,
    )  # fmt: skip
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_integers_are_searched_as_integers() -> None:
    """Around their value within their bounds, or in a range of whole numbers."""
    assert parse_space(["n_steps"], CountingConfig()) == (
        Dimension("n_steps", "int", 1, 16, log=True),
    )
    with pytest.raises(ConfigError, match=r"n_steps must be a range of whole numbers"):
        parse_space(["n_steps=1.5:3"], CountingConfig())


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "name what to search"),
        (["gama"], "unknown option 'gama'; did you mean 'gamma'?"),
        (["gamma", "gamma=0:1"], "names 'gamma' twice"),
        (["gamma=0.9:1.1"], "gamma must be a range within [0, 1], got 0.9 to 1.1"),
        (["gamma=a:b"], "gamma must be LOW:HIGH or log:LOW:HIGH, got 'a:b'"),
        (["gamma=log:0:1"], "a logarithm needs a range above 0"),
        (["gamma=0.9"], "must look like learning_rate=log:1e-5:1e-2"),
        (["bonus"], "bonus needs a range or values"),
    ],
)
def test_wrong_spaces_are_refused(texts: list[str], said: str) -> None:
    """One sentence says what is wrong."""
    with pytest.raises(ConfigError) as raised:
        parse_space(texts, SearchedConfig())
    assert said in str(raised.value)


def test_schedules_keep_their_shape() -> None:
    """The start is what is searched; other values are as flags spell them."""
    base = SearchedConfig(rate="linear(0.5, 0.25, 500)")
    found: Any = with_values(base, {"rate": 0.25, "clip_it": "false", "gamma": 0.9})
    assert found.rate == Linear(start=0.25, end=0.125, until=500)
    assert (found.clip_it, found.gamma) == (False, 0.9)


def log(run: Path, values: list[float]) -> None:
    """Write the evaluations of a run, the last line half."""
    run.mkdir(parents=True, exist_ok=True)
    rows = [{"kind": "eval", "step": 10 * i, "mean_reward": v} for i, v in enumerate(values, 1)]
    lines = [json.dumps(row) + "\n" for row in [{"kind": "train", "step": 1}, *rows, rows[-1]]]
    Path(run, "metrics.jsonl").write_text("".join(lines) + '{"kind": "ev', encoding="utf-8")


def make_folder(path: str) -> TuningFolder:
    """Return a folder of a search over one option, without trials."""
    from rlox.cli.runs.options import RunOptions
    from rlox.cli.tuning.folder import Plan

    plan = Plan(("n_steps=2:8",), 9, (0, 1), prune=True)
    options = RunOptions(env="CartPole-v1", total_timesteps=16, eval_freq=8)
    folder = TuningFolder(Path(path), "counting", CountingConfig(), options, plan)
    folder.start()
    return folder


def test_trial_below_the_median_is_pruned_by_its_evaluations() -> None:
    """The mean over the seeds that have begun counts, once all of them have evaluated."""
    folder = make_folder("t")
    study = open_study(folder)
    for value in (5.0, 6.0, 7.0, 8.0):
        asked = study.ask()
        for step in (10, 20):
            asked.report(value, step)
        study.tell(asked, value)
    members = folder.trial(4).members()
    trial = Trial(4, study.ask(), members, begun=set(members))
    log(members[0].folder.path, [6.0, 1.0])
    trial.report()
    assert (trial.reported, trial.pruned) == (0, False)  # the other seed has not evaluated
    log(members[1].folder.path, [8.0])
    trial.report()
    assert (trial.reported, trial.pruned) == (1, False)
    assert evaluations(members[0].folder.path) == [(10, 6.0), (20, 1.0)]
    study.tell(trial.asked, 7.0)
    worse = Trial(5, study.ask(), folder.trial(5).members())
    worse.begun = {worse.members[1]}
    log(worse.members[1].folder.path, [4.0])
    worse.report()
    assert (worse.reported, worse.pruned) == (1, True)
    assert study.trials[5].intermediate_values == {10: 4.0}


def test_unwanted_job_is_ended_and_the_next_one_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool takes jobs as it has room for them, and ends those that nobody wants any more."""

    def start(job: Job, _threads: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", job.arguments[0]])

    monkeypatch.setattr(processes, "_started", start)
    forever = Job("forever", ("import time; time.sleep(600)",), tmp_path / "a")
    short = Job("short", ("pass",), tmp_path / "b")
    asked: list[str] = []
    ended: dict[str, int] = {}

    def jobs() -> Any:
        for job in (forever, short):
            asked.append(job.name)
            yield job

    def on_start(job: Job) -> None:
        assert len(asked) == len(ended) + 1

    signal = run_in_processes(
        jobs(), 1, on_start, lambda job, code: ended.update({job.name: code}),
        lambda job: job is forever,
    )  # fmt: skip
    assert signal is None
    assert ended["forever"] != 0
    assert ended["short"] == 0


def test_search_leaves_the_best_options_and_can_go_on(run: Run) -> None:
    """Best options as a file and a preset; a killed trial goes on, finished ones stay."""
    result = run(*TUNE, "--space", "n_steps=2,4", "--space", "n_updates=1:3", "--trials", 2,
                 "--no-prune")  # fmt: skip
    assert result.code == 0, result.err
    assert "2 finished, 0 pruned, 0 failed" in result.out
    folder = TuningFolder.read(Path("t"))
    study = open_study(folder)
    best = yaml.safe_load(Path("t/best.yaml").read_text("utf-8"))
    chosen = study.best_trial.params
    assert (best["n_steps"], best["n_updates"]) == (int(chosen["n_steps"]), chosen["n_updates"])
    assert "seed" not in best
    preset = yaml.safe_load(Path("t/preset.yaml").read_text("utf-8"))
    found = preset["presets"]["counting"]["CartPole-v1"]["tuned-here"]
    assert (found["steps"], found["score"]) == (16, pytest.approx(study.best_value, abs=1e-3))
    written = Path("t/trials/0000/seed-0/run.json").stat().st_mtime_ns
    # as after kill -9: one trial that was asked for and never ended, and one still to come
    asked = study.ask()
    for each in folder.space:
        each.suggest(asked)
    record = json.loads(Path("t/tune.json").read_text("utf-8"))
    record["plan"]["trials"] = 4
    Path("t/tune.json").write_text(json.dumps(record), encoding="utf-8")
    result = run("resume", "t")
    assert result.code == 0, result.err
    assert [t.state.name for t in open_study(folder).trials] == ["COMPLETE"] * 4
    assert Path("t/trials/0000/seed-0/run.json").stat().st_mtime_ns == written


def test_pruned_search_trains_in_processes_with_evaluations(run: Run) -> None:
    """The runs log evaluations on the way, which Optuna gets to know."""
    result = run(*TUNE, "--space", "n_steps=2:4", "--trials", 1, "--eval-freq", 8)
    assert result.code == 0, result.err
    [trial] = open_study(TuningFolder.read(Path("t"))).trials
    assert trial.state.name == "COMPLETE"
    assert trial.intermediate_values
    assert trial.intermediate_values.keys() <= {8, 12, 16, 18, 24}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--space", "n_step"), "unknown option 'n_step'; did you mean 'n_steps'"),
        ((), "name what to search"),
        (("--space", "n_steps", "--preset", "tuned"), "unknown preset 'tuned' of counting"),
    ],
)
def test_mistakes_leave_no_folder(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """One line with the remedy."""
    result = run(*TUNE, *arguments)
    assert result.code == 2
    assert said in result.err
    assert not Path("t").exists()


def test_search_whose_runs_all_fail_ends_soon_and_names_the_logs(run: Run) -> None:
    """A run that fails costs its trial; after five in a row no other is begun."""
    result = run(*TUNE[:3], "NoSuchEnv-v0", *TUNE[4:], "--space", "n_steps=2:4", "--no-prune")
    assert result.code == 2
    assert result.err.startswith("error: none of the ")
    assert "the logs of their runs are in 't/trials'" in result.err
    assert 5 <= len(list(Path("t/trials").iterdir())) <= 7
    assert "NoSuchEnv" in Path("t/trials/0000/seed-0.log").read_text("utf-8")
