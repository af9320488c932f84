"""Tests of ``rlox train --seeds``, with an algorithm that counts instead of learning."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from rlox.cli.places import Job
from rlox.training import checkpoint
from rlox_tools.sweeps import places
from rlox_tools.sweeps.folder import parse_sets

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2")


FAILING = """
import pathlib, rlox
from rlox.callbacks import Callback

class Failing(Callback):
    def on_iteration_end(self, **kwargs):
        if kwargs["algo"].streams.seed == 1 and not pathlib.Path("mended").exists():
            raise ArithmeticError("seed 1")

@rlox.hookimpl
def rlox_callbacks():
    yield rlox.CallbackSpec("fail-on-seed-1", "Fails.", __name__ + ":Failing")
"""


@pytest.fixture(autouse=True)
def _failing(install, monkeypatch):
    """Install a callback that fails for the seed 1 until the file ``mended`` is there."""
    install("rlox-failing", FAILING)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-tools,rlox-counting,rlox-failing")


def record(folder):
    """Return ``run.json``."""
    return json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))


def draws(folder):
    """Return what a finished run drew."""
    final = checkpoint.read(Path(folder, "checkpoints/final.safetensors"))
    return final["state"]["algorithm"]["draws"].tolist()


def lines(text):
    """Return the lines without their layout."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_sweep_is_a_run_per_seed_and_a_table(run):
    """Each run equals that of its seed alone; the table ends with the interquartile mean."""
    result = run(*TRAIN, "--total-timesteps", 40, "--n-steps", 5, "--seeds", "1..2",
                 "--run-dir", "sweep", "--checkpoint-freq", 16, "--logger", "csv")  # fmt: skip
    assert result.code == 0, result.err
    names = sorted(path.name for path in Path("sweep").iterdir())
    runs, logs = [f"seed-{i}" for i in (1, 2)], [f"seed-{i}.log" for i in (1, 2)]
    assert names == sorted(["config.yaml", "curves.csv", "sweep.json", *runs, *logs])
    alone = run(*TRAIN, "--total-timesteps", 40, "--n-steps", 5, "--seed", 2, "--run-dir", "alone",
                "--checkpoint-freq", 16, "--logger", "csv")  # fmt: skip
    assert alone.code == 0, alone.err
    assert draws("sweep/seed-2") == draws("alone")
    assert draws("sweep/seed-1") != draws("alone")
    assert record("sweep/seed-2")["options"] == record("alone")["options"]
    config = [yaml.safe_load(Path(f, "config.yaml").read_text()) for f in ("sweep/seed-2", "alone")]
    assert config[0] == config[1]
    shown = lines(result.out)
    for seed in (1, 2):
        evaluation = record(f"sweep/seed-{seed}")["evaluation"]
        row = f"{seed} finished {evaluation['mean']:.1f} ± {evaluation['std']:.1f} 40 "
        assert any(line.startswith(row) for line in shown), result.out
    means = [record(f"sweep/seed-{seed}")["evaluation"]["mean"] for seed in (1, 2)]
    iqm = f"interquartile mean {sum(means) / 2:.1f} ["
    assert any(line.startswith(iqm) and "over 2 seeds" in line for line in shown)


def test_failed_seed_leaves_the_others_and_is_set_aside(run):
    """The exit code is its own; each resume sets it aside, unless it is under way, and goes on."""
    result = run(*TRAIN, "--total-timesteps", 24, "--seeds", "0,1", "--run-dir", "sweep",
                 "--callback", "fail-on-seed-1")  # fmt: skip
    assert result.code == 1
    shown = lines(result.out)
    assert any(line.startswith("1 failed - ") for line in shown), result.out
    assert any(line.startswith("0 finished ") for line in shown)
    assert any("ended with exit code 1; see sweep/seed-1.log" in line for line in shown)
    assert "ArithmeticError: seed 1" in Path("sweep/seed-1.log").read_text()
    before = record("sweep/seed-0")
    # a run may outlive its sweep, which was killed, and train on in its folder
    locking = "from rlox.cli.runs.folder import *\nwith RunFolder(Path('sweep/seed-1')).lock():\n"
    code = f"from pathlib import Path\n{locking} print(flush=True)\n input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        result = run("resume", "sweep")
        other.kill()
    assert result.code == 2
    assert "another process is training in the run folder 'sweep/seed-1'" in result.err
    assert Path("sweep/seed-1/run.json").exists()
    assert run("resume", "sweep").code == 1
    Path("mended").touch()
    resumed = run("resume", "sweep")
    assert resumed.code == 0, resumed.err + Path("sweep/seed-1.log").read_text()
    aside = sorted(path.name for path in Path("sweep").glob("*.superseded"))
    assert aside == ["seed-1.2.superseded", "seed-1.superseded"]
    assert record("sweep/seed-0") == before
    assert record("sweep/seed-1")["status"] == "finished"
    assert run("resume", "sweep").err == "error: the sweep 'sweep' is finished\n"


def test_ctrl_c_stops_all_runs_and_resume_finishes_them(run, start, hold):
    """No process is left, every begun run has saved its state, and those not begun begin later."""
    arguments = (*TRAIN, "--total-timesteps", 1_200, "--seeds", "0..1", "--jobs", 1, "--eval-freq",
                 100)  # fmt: skip
    hold(400)
    process = start(*arguments, "--run-dir", "sweep")
    deadline = time.monotonic() + 120
    metrics = Path("sweep/seed-0/metrics.jsonl")
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    hold(None)
    assert process.returncode == 130
    assert err == "interrupted; to finish: rlox resume sweep\n"
    assert "1 not begun" in " ".join(lines(out))
    assert record("sweep/seed-0")["status"] == "interrupted"
    assert not Path("sweep/seed-0/.lock").exists()
    resumed = run("resume", "sweep", "--jobs", 2)
    assert resumed.code == 0, resumed.err
    for seed in range(2):
        alone = run(*arguments[:8], "--seed", seed, "--run-dir", f"alone-{seed}")
        assert alone.code == 0, alone.err
        assert draws(f"sweep/seed-{seed}") == draws(f"alone-{seed}")


def test_sweep_over_options_alone_has_the_seed_of_the_config(run):
    """The same for all sets of options; none draws one, as it does for a single run."""
    result = run(
        *TRAIN, "--seed", "none", "--total-timesteps", 8, "--sweep", "n_steps=2,4", "--run-dir", "s"
    )
    assert result.code == 0, result.err
    used = {record(str(path.parent))["seed"] for path in Path("s").glob("*/seed-*/run.json")}
    assert len(used) == 1
    assert used != {0}
    assert yaml.safe_load(Path("s/n_steps=2/config.yaml").read_text()) == {
        "n_envs": 2, "n_steps": 2, "n_updates": 3, "preset": "none"
    }  # fmt: skip


def test_seed_in_a_file_next_to_seeds_is_refused(run):
    """It would be passed over; a file without one, as a sweep's config.yaml is, can be swept."""
    Path("options.yaml").write_text("seed: 7\n", encoding="utf-8")
    result = run(*TRAIN, "--config", "options.yaml", "--seeds", 2)
    assert result.code == 2
    assert result.err == (
        "error: seed in options.yaml and --seeds contradict each other; give one of them\n"
    )
    Path("options.yaml").write_text("n_envs: 2\n", encoding="utf-8")
    train = (*TRAIN, "--total-timesteps", 8, "--seeds", 1, "--quiet")
    again = run(*train, "--config", "options.yaml")
    assert again.code == 0, again.err
    [folder] = Path("runs").iterdir()  # without --run-dir
    assert re.fullmatch(r"counting-CartPole-v1-sweep-\d{8}-\d{6}", folder.name)
    assert "started" not in again.out
    assert "0 finished" in " ".join(lines(again.out))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "0..4", "--seed", "1"), "--seed and --seeds contradict each other"),
        (("--jobs", "2"), "--jobs is for a sweep; pass --seeds too"),
        (("--seeds", "4..0"), "seeds must look like 5, 0..4 or 0,3,7 (at most 10,000), got '4..0'"),
        (("--seeds", "0..1", "--jobs", "0"), "invalid value for '--jobs'"),
        (("--seeds", "0..1", "--logger", "jsnl"), "unknown logger 'jsnl'; did you mean 'jsonl'"),
        (("--seeds", "0..1", "--callback", "evl"), "unknown callback 'evl'; did you mean 'eval'"),
        (("--seeds", "0..1", "--n-envs", "0"), "n_envs: expected greater than or equal to 1"),
    ],
)
def test_wrong_sweep_is_one_line_before_any_work(run, arguments, message):
    """What is wrong for every seed is reported once, and no folder is made."""
    result = run(*TRAIN, *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert message in result.err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("listed", "values"),
    [
        ("1e-3,3e-4", ["1e-3", "3e-4"]),
        ("1e-3, linear(3e-4, 0),0.1", ["1e-3", "linear(3e-4, 0)", "0.1"]),
        (
            "{kind: piecewise, points: [[0, 1e-3], [500, 0]]},{kind: linear, start: 1, end: 0}",
            ["{kind: piecewise, points: [[0, 1e-3], [500, 0]]}",
             "{kind: linear, start: 1, end: 0}"],
        ),
    ],
)  # fmt: skip
def test_commas_in_brackets_are_part_of_a_value(listed, values):
    """However deep: schedules are values too."""
    assert parse_sets([f"rate={listed}"]) == tuple({"rate": value} for value in values)


def test_damaged_sweep_is_reported(run):
    """A record of another form is an error, not a traceback."""
    Path("sweep").mkdir()
    for text in ("{", "[]", '{"algorithm": "counting"}', '{"seeds": 3}'):
        Path("sweep/sweep.json").write_text(text, encoding="utf-8")
        result = run("resume", "sweep")
        assert result.code == 2
        assert result.err.startswith("error: 'sweep/sweep.json' is damaged")
    assert "--jobs is for a sweep" in run("resume", "nothing", "--jobs", 2).err


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
@pytest.mark.parametrize(("variable", "at_once", "printed"), [(None, 3, "2"), ("5", 3, "5")])
def test_processes_divide_the_cores(variable, at_once, printed, tmp_path, monkeypatch):
    """Each may use its share of seven cores; a variable that the user set wins."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho $RLOX_NUM_THREADS\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(places, "usable_cores", lambda: 7)
    monkeypatch.delenv("RLOX_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RLOX_NUM_THREADS", variable)
    job = Job("run", (), tmp_path / "output.log")
    place = places.Processes("a test")
    assert places.run_jobs([job], place, at_once, lambda _: None, lambda *_: None) is None
    assert job.output.read_text(encoding="utf-8").strip() == printed


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no hang-up")
def test_sweep_that_nobody_reads_can_be_resumed(run, start, hold):
    """The runs under way are ended as by SIGHUP, not killed."""
    hold(0)
    process = start(*TRAIN, "--total-timesteps", 8, "--seeds", 2, "--jobs", 1, "--run-dir", "r")
    process.stdout.readline()
    process.stdout.close()
    hold(None)
    assert process.wait(120) == 128 + 1
    assert process.stderr.read() == "interrupted; to finish: rlox resume r\n"
    assert run("resume", "r", "--quiet").code == 0
    assert {record(f"r/seed-{seed}")["status"] for seed in range(2)} == {"finished"}
