"""Tests of ``rlox tune``, with an algorithm that counts instead of learning."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import yaml
from rlox.config.model import Config, ScheduleValue, coefficient, discount, flag, schedule
from rlox.config.schedules import Linear
from rlox.errors import ConfigError
from rlox_tools.tuning import values_of, with_values

optuna = pytest.importorskip("optuna")

TUNE = (
    "tune", "counting", "--env", "CartPole-v1", "--total-timesteps", "16", "--eval-episodes", "1",
    "--seeds", "1", "--jobs", "2", "--run-dir", "t",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _path_of_workers(monkeypatch):
    """Let worker processes, which get this process's path, find the counting algorithm."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "rlox-core" / "tests")


def study():
    """Return the study in the folder ``t``."""
    backend = optuna.storages.journal.JournalFileBackend(str(Path("t/study.log").absolute()))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name="tune", storage=storage)


def trials():
    """Return its trials."""
    return study().trials


class SearchedConfig(Config):
    """One field of each kind that can be searched."""

    rate: ScheduleValue = schedule("linear(1e-3, 0)", help="step size", source="here")
    gamma: float = discount(0.99, help="discount", source="here")
    bonus: float = coefficient(0.0, help="weight", source="here")
    clip_it: bool = flag(True, help="clips", source="here")

    schedule_bounds = {"rate": (0.0, 1.0)}  # noqa: RUF012  # pydantic keeps class variables


def test_values_come_from_ranges_and_lists():
    """Optuna knows the range, its scale and its kind."""
    trial = optuna.create_study().ask()
    space = ["rate=log:1e-5:1e-1", "gamma=0.9:1", "clip-it=true,false"]
    found = values_of(trial, space, SearchedConfig())
    assert found == trial.params
    assert trial.distributions == {
        "rate": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "gamma": optuna.distributions.FloatDistribution(0.9, 1.0),
        "clip_it": optuna.distributions.CategoricalDistribution(["true", "false"]),
    }


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["gama=0:1"], "unknown option 'gama' for SearchedConfig; did you mean 'gamma'?"),
        (["gamma=0:1", "gamma=0:1"], "cannot search the option 'gamma', or names it twice"),
        (["seed=0,1"], "cannot search the option 'seed'"),
        (["gamma=0.9:1.1"], "gamma: expected less than or equal to 1"),
        (["gamma=0.9,1.1"], "gamma: expected less than or equal to 1"),
        (["gamma=a:b"], "got 'gamma=a:b': could not convert string to float"),
        (["gamma=0:0.5:1"], "got 'gamma=0:0.5:1'"),
        (["gamma=log:0:1"], "got 'gamma=log:0:1'"),
        (["gamma=0.9"], "must look like learning_rate=log:1e-5:1e-2"),
        (["gamma=0.9,"], "values must be several and differ"),
    ],
)
def test_wrong_spaces_are_refused(texts, said):
    """One sentence says what is wrong."""
    with pytest.raises(ConfigError) as raised:
        values_of(optuna.create_study().ask(), texts, SearchedConfig())
    assert said in str(raised.value)


def test_schedules_keep_their_shape():
    """The start is what is searched; other values are as flags spell them."""
    base = SearchedConfig(rate="linear(0.5, 0.25, 500)")
    found = with_values(base, {"rate": 0.25, "clip_it": "false", "gamma": 0.9})
    assert found.rate == Linear(start=0.25, end=0.125, until=500)
    assert (found.clip_it, found.gamma) == (False, 0.9)


def test_search_leaves_the_best_options_and_goes_on(run):
    """The same command adds what is missing to the trials that are there."""
    space = ("--space", "n_steps=2:4", "--space", "n_updates=1,3")
    result = run(*TUNE, *space, "--trials", 2, "--no-prune")
    assert result.code == 0, result.err
    first = trials()
    assert [trial.state.name for trial in first] == ["COMPLETE"] * 2
    assert not any(trial.intermediate_values for trial in first)
    result = run(*TUNE, *space, "--trials", 3, "--no-prune")
    assert result.code == 0, result.err
    found = trials()
    assert len(found) == 3
    assert found[:2] == first
    best = yaml.safe_load(Path("t/best.yaml").read_text("utf-8"))
    chosen = max(found, key=lambda trial: trial.value).params
    assert (best["n_steps"], best["n_updates"]) == (chosen["n_steps"], int(chosen["n_updates"]))
    assert "seed" not in best
    assert "best options" in result.out


def test_trial_below_the_median_is_pruned_by_its_evaluations(run):
    """Optuna knows the evaluations of every seed, and ends a trial that is worse than others."""
    assert run(*TUNE, "--space", "n_steps=2,4", "--trials", 1, "--eval-freq", 8).code == 0
    known = study()
    [first] = known.trials
    assert first.intermediate_values.keys() <= {8, 12, 16, 18, 24}
    assert first.intermediate_values
    for _ in range(5):
        better = known.ask()
        for step in range(1, 25):
            better.report(1e6, step)
        known.tell(better, 1e6)
    result = run(*TUNE, "--space", "n_steps=2,4", "--trials", 7, "--eval-freq", 8)
    assert result.code == 0, result.err
    assert trials()[-1].state.name == "PRUNED"


@pytest.mark.slow
def test_ctrl_c_ends_the_search_and_its_processes(run, start, hold):
    """What was under way is tried again by the same command."""
    hold(8)
    process = start(*TUNE, "--space", "n_steps=2,4", "--trials", 2, "--no-prune")
    deadline = time.monotonic() + 120
    log = Path("t/study.log")  # not read by Optuna, whose lock would be in the way
    while not log.exists() or log.read_text("utf-8").count('"param_name"') < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)  # as soon as no process holds its output any more
    assert process.returncode == 130, err
    hold(None)
    assert run(*TUNE, "--space", "n_steps=2,4", "--trials", 2, "--no-prune").code == 0
    states = [trial.state.name for trial in trials()]
    assert states.count("COMPLETE") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--space", "n_step=2:4"),
         "unknown option 'n_step' for CountingConfig; did you mean 'n_steps'"),
        (("--space", "n_steps=1.5:3"), "got 'n_steps=1.5:3': invalid literal for int()"),
        ((), "missing option '--space'"),
        (("--space", "n_steps=2:4", "--preset", "tuned"), "unknown preset 'tuned' of counting"),
    ],
)  # fmt: skip
def test_mistakes_leave_no_folder(run, arguments, said):
    """One line with the remedy."""
    result = run(*TUNE, *arguments)
    assert result.code == 2
    assert said in result.err
    assert not Path("t").exists()


def test_search_whose_trials_all_fail_says_so(run):
    """The other trials are made all the same, and Optuna's lines have the reason."""
    result = run(*TUNE[:3], "NoSuchEnv-v0", *TUNE[4:], "--space", "n_steps=2:4", "--trials", 1)
    assert result.code == 2
    assert result.err == "error: no trial came to its end; the lines above say why\n"
    assert [trial.state.name for trial in trials()] == ["FAIL"]
