"""Sweeps in threads of one process: what Rust does nearly alone, to the same bits as alone."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from rlox.training import checkpoint
from rlox_onpolicy.ppo import PPO
from rlox_tools.analysis import find_runs

TRAIN = ("train", "ppo", "--env", "CartPole-v1", "--n-envs", 4, "--n-steps", 32, "--batch-size", 64,
         "--hidden", 16, "--eval-episodes", 2)  # fmt: skip


@pytest.fixture(autouse=True)
def _workplace(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


def contents(folder):
    """Return what a run left behind: its state with arrays as bytes, and its log without times."""

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value.tobytes() if isinstance(value, np.ndarray) else value

    final = checkpoint.read(Path(folder, "checkpoints/final.safetensors"))
    del final["state"]["callbacks"]  # with --quiet there is one less
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    timed = ("env_steps_per_second", "time")
    return plain(final["state"]), [{k: v for k, v in row.items() if k not in timed} for row in rows]


def record(folder):
    """Return ``run.json``."""
    return json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))


def test_every_seed_equals_its_run_alone(run):
    """Side by side in threads, in processes or alone: the same weights, streams and log."""
    arguments = (*TRAIN, "--total-timesteps", 1_000, "--checkpoint-freq", 500)
    code, out, err = run(*arguments, "--seeds", 3, "--jobs", 2, "--run-dir", "threads")
    assert code == 0, err
    assert out.startswith("3 runs in threads, 2 at once, in threads\n")
    code, out, err = run(*arguments, "--seeds", "2..2", "--run-dir", "processes",
                         "--logger", "jsonl", "--logger", "console")  # fmt: skip
    assert code == 0, err
    assert "in processes: loggers other than csv and jsonl" in out
    for seed in range(3):
        assert run(*arguments, "--seed", seed, "--run-dir", f"alone-{seed}", "--quiet")[0] == 0
        assert contents(f"threads/seed-{seed}") == contents(f"alone-{seed}")
        assert record(f"threads/seed-{seed}")["evaluation"] == record(f"alone-{seed}")["evaluation"]
    assert contents("processes/seed-2") == contents("alone-2")
    assert contents("threads/seed-1") != contents("threads/seed-2")
    log = Path("threads/seed-2.log").read_text(encoding="utf-8")
    assert "evaluation return" in log
    assert "1,024/1,000 env steps" in log


def test_failing_seed_leaves_the_others_and_is_resumed(run, monkeypatch):
    """Its log has the traceback, its record says so, and the exit code is its."""
    iterate = PPO.iterate

    def failing(self, hooks):
        if self.config.seed == 1 and self.clock.iterations == 2:
            raise ArithmeticError("seed 1")
        return iterate(self, hooks)

    monkeypatch.setattr(PPO, "iterate", failing)
    arguments = (*TRAIN, "--total-timesteps", 600, "--checkpoint-freq", 128)
    code, out, _ = run(*arguments, "--seeds", 3, "--run-dir", "sweep")
    assert code == 1
    assert "seed 1: ended with exit code 1; see sweep/seed-1.log" in out
    assert "ArithmeticError: seed 1" in Path("sweep/seed-1.log").read_text(encoding="utf-8")
    assert [record(f"sweep/seed-{s}")["status"] for s in range(3)] == [
        "finished", "failed", "finished",
    ]  # fmt: skip
    monkeypatch.setattr(PPO, "iterate", iterate)
    code, out, err = run("resume", "sweep")
    assert code == 0, err
    assert out.startswith("1 runs in sweep, 1 at once, in threads\n")
    assert run(*arguments, "--seed", 1, "--run-dir", "alone")[0] == 0
    assert contents("sweep/seed-1")[0]["algorithm"] == contents("alone")[0]["algorithm"]


HOLDING = """
import pathlib, time
from rlox_onpolicy.ppo import PPO

iterate = PPO.iterate

def held(self, hooks):
    came = lambda: any(getattr(each, "signal", None) for each in self.callbacks.callbacks)
    while self.clock.iterations >= 5 and pathlib.Path("hold").exists() and not came():
        time.sleep(0.01)
    return iterate(self, hooks)

PPO.iterate = held
"""


def start(*arguments, first=""):
    """Start the command line in a process that runs some code before."""
    # a shell's background job ignores it
    main = "import signal, rlox.cli; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main = first + main + "rlox.cli.main()"
    command = [sys.executable, "-c", main, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process, condition):
    """Wait until something is true of what a process has written."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_saves_every_run_and_resume_finishes_them(run):
    """Those under way end their iteration, those not begun begin later; all as if uninterrupted."""
    arguments = (*TRAIN, "--total-timesteps", 1_600, "--seeds", 3, "--jobs", 2)
    Path("hold").touch()
    process = start(*arguments, "--run-dir", "sweep", first=HOLDING)
    try:
        logs = [Path(f"sweep/seed-{seed}/metrics.jsonl") for seed in (0, 1)]
        wait_for(process, lambda: all(log.exists() and log.stat().st_size for log in logs))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert err == "interrupted; to finish: rlox resume sweep\n"
    assert [record(f"sweep/seed-{seed}")["status"] for seed in (0, 1)] == ["interrupted"] * 2
    assert "not begun" in out
    for call in (("resume", "sweep"), (*arguments, "--run-dir", "whole")):
        code, _, err = run(*call)
        assert code == 0, err
    for seed in range(3):
        resumed, whole = (contents(f"{folder}/seed-{seed}") for folder in ("sweep", "whole"))
        assert resumed[0]["algorithm"] == whole[0]["algorithm"]
        assert resumed[1] == whole[1]


@pytest.mark.slow
def test_second_signal_gives_an_iteration_up():
    """The first lets those under way end their iteration."""
    process = start(*TRAIN[:-1], 10**6, "--n-epochs", 10**6, "--total-timesteps", 128,
                    "--seeds", 3, "--jobs", 2, "--run-dir", "sweep")  # fmt: skip
    try:
        begun = [Path(f"sweep/seed-{seed}/run.json") for seed in (0, 1)]
        wait_for(process, lambda: all(path.exists() for path in begun))
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert err == "interrupted; to finish: rlox resume sweep\n"
    assert out.count("ended with exit code 143") == 2
    assert "not begun" in out
    assert [record(f"sweep/seed-{seed}")["status"] for seed in (0, 1)] == ["interrupted"] * 2


def test_sets_of_options_are_combined_and_distinguished(run):
    """Each set has a folder, a config, an interval and a label of its own."""
    code, out, err = run(*TRAIN, "--total-timesteps", 512, "--seeds", 2, "--run-dir", "sweep",
                         "--sweep", "learning-rate=1e-3,linear(3e-4, 0)",
                         "--sweep", "gamma=0.9,0.99")  # fmt: skip
    assert code == 0, err
    rates, gammas = ("1e-3", "linear(3e-4,_0)"), ("0.9", "0.99")
    sets = [f"learning_rate={rate},gamma={gamma}" for rate in rates for gamma in gammas]
    assert sorted(path.name for path in Path("sweep").iterdir() if path.is_dir()) == sorted(sets)
    for name in sets:
        config = yaml.safe_load(Path("sweep", name, "config.yaml").read_text(encoding="utf-8"))
        assert (config["gamma"] == 0.9) == name.endswith("gamma=0.9")
        assert (config["learning_rate"] == 1e-3) == name.startswith("learning_rate=1e-3")
        assert f"interquartile mean {name}  " in out
    assert len(find_runs(Path("sweep"))) == 8
    with Path("sweep/curves.csv").open(encoding="utf-8", newline="") as file:
        assert {row["label"] for row in csv.DictReader(file)} == set(sets)
    alone = run(*TRAIN, "--total-timesteps", 512, "--seed", 1, "--gamma", 0.9, "--learning-rate",
                "1e-3", "--run-dir", "alone")  # fmt: skip
    assert alone[0] == 0
    assert contents(f"sweep/{sets[0]}/seed-1")[0]["algorithm"] == contents("alone")[0]["algorithm"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--backend", "torch"), "the interpreter has a part in every step"),
        (("--eval-freq", "64"), "evaluations on the way are the interpreter's work"),
        (("--callback", "timing"), "there are callbacks"),
        (("--sweep", "backend=native,torch"), "the interpreter has a part in every step"),
    ],
)
def test_what_is_not_rusts_work_has_processes(run, monkeypatch, arguments, reason):
    """And the output says why."""
    monkeypatch.setattr("rlox_tools.sweeps.sweeping.run_jobs", lambda *_, **__: None)
    code, out, err = run(*TRAIN, "--total-timesteps", 128, "--seeds", 1, "--run-dir", "sweep",
                         *arguments)  # fmt: skip
    assert code == 0, err
    assert f"in processes: {reason}\n" in out
