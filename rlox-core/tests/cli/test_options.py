"""Tests of the options of runs: parts of algorithms, and when checkpoints are due."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rlox.cli.runs import callbacks
from rlox.cli.runs.callbacks import LatestCheckpoint, ProgressLines
from rlox.cli.runs.folder import resume_command_of
from rlox.cli.runs.options import RunOptions, load_parts
from rlox.errors import ConfigError
from rlox.training.hooks import Progress


def test_functions_are_imported_and_other_texts_stay(tmp_path, monkeypatch):
    """Modules of the working directory are found."""
    (tmp_path / "my_rewards.py").write_text("def length(x):\n    return len(x)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    loaded = load_parts({"model": "folder", "reward_fn": "my_rewards:length"})
    assert loaded["model"] == "folder"
    assert loaded["reward_fn"]("abc") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length", "--reward must look like module:function, got 'length'"),
        ("no_such_module:f", "--reward no_such_module:f: there is no module 'no_such_module'"),
        ("json:f", "--reward json:f: 'json' has no 'f'"),
        ("math:pi", "--reward math:pi: it cannot be called, it is float"),
    ],
)
def test_a_text_that_names_no_function_is_refused(text, message):
    """The flag is named."""
    with pytest.raises(ConfigError) as caught:
        load_parts({"reward_fn": text})
    assert str(caught.value) == message


def test_no_file_names_code():
    """What is recorded of a run has its data; the command that resumes it has the functions."""
    options = RunOptions(parts={"model": "folder", "reward_fn": "my:reward"})
    assert options.to_dict()["parts"] == {"model": "folder"}
    assert RunOptions.from_dict(json.loads(json.dumps(options.to_dict()))).parts == {
        "model": "folder"
    }
    command = resume_command_of(Path("run"), None, options.parts)
    assert command == "rlox resume run --reward my:reward"
    flags = options.to_flags()
    assert flags[:4] == ["--model", "folder", "--reward", "my:reward"]


class Clock:
    """A time that passes on request, and while something is saved."""

    def __init__(self, saving):
        self.now, self.saving = 100.0, saving
        self.saved = []

    def monotonic(self):
        return self.now

    def save(self, path):
        self.saved.append(self.now)
        self.now += self.saving


@pytest.mark.parametrize(
    ("saving", "expected"), [(0.0, [130.0, 160.0, 190.0]), (10.0, [130.0, 230.0])]
)
def test_it_saves_when_it_is_time(saving, expected, monkeypatch):
    """Every 30 seconds, but a tenth of the time at most."""
    clock = Clock(saving)
    monkeypatch.setattr(callbacks, "time", clock)
    callback = LatestCheckpoint(Path("latest"), 30.0)
    callback.on_training_start()
    for second in range(100, 231):
        clock.now = max(clock.now, float(second))
        if clock.now == second and second <= (200 if not saving else 230):
            callback.on_iteration_end(algo=clock)
    assert clock.saved == expected


def test_within_a_long_iteration(monkeypatch, capsys):
    """It saves once the end is late by as much again; lines come further and further apart."""
    clock = Clock(0.0)
    monkeypatch.setattr(callbacks, "time", clock)
    saving, printing = LatestCheckpoint(Path("latest"), 30.0), ProgressLines()
    algorithm = SimpleNamespace(save=clock.save, clock=Progress(target=100))
    for callback in (saving, printing):
        callback.on_training_start(step=0)
    for second in range(101, 221):
        clock.now = float(second)
        for callback in (saving, printing):
            callback.on_pulse(step=second - 100, algo=algorithm)
    assert clock.saved == [160.0, 220.0]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10/100 env steps, 1 env steps/s, no episode finished yet"
    assert [line.split("/")[0] for line in lines] == ["10", "30", "70"]
    clock.now, algorithm.clock.target = 300.0, 1000
    printing.on_iteration_end(step=800, algo=algorithm, metrics={"mean_reward": 1.0})
    shown = "800/1,000 env steps, 4 env steps/s, return 1.0"  # since the start, as at the end
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize(
    ("text", "steps", "seconds"),
    [("30s", 0, 30.0), ("0.5 s", 0, 0.5), ("5min", 0, 300.0), ("2h", 0, 7200.0), ("0", 0, 0.0),
     ("50000", 50_000, 0.0), ("5e4", 50_000, 0.0), ("0.5M", 500_000, 0.0), ("1k", 1_000, 0.0)],
)  # fmt: skip
def test_times_and_steps(text, steps, seconds):
    """A unit makes it a time."""
    options = RunOptions(checkpoint_freq=text)
    assert (options.checkpoint_steps, options.checkpoint_seconds) == (steps, seconds)
    assert RunOptions.from_dict(options.to_dict()) == options


@pytest.mark.parametrize("text", ["often", "-1", "0s", "3 days", ""])
def test_other_texts_are_refused(text):
    """Before anything is built."""
    with pytest.raises(ConfigError, match="must be a time such as 30s or 5min"):
        RunOptions(checkpoint_freq=text)
