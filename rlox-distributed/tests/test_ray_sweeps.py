"""Sweeps on a Ray cluster: the same runs as locally, and resumed one by one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rlox.training import checkpoint

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("rlox_onpolicy")

TRAIN = ("train", "a2c", "--env", "CartPole-v1", "--n-envs", "2", "--hidden", "8", "--backend",
         "torch", "--eval-episodes", "1")  # fmt: skip
LONG = ("--total-timesteps", "40000", "--checkpoint-freq", "4000")
DEADLINE = 600.0


@pytest.fixture(name="place")
def fixture_place(cluster):
    """Return the cluster's ``--on`` arguments."""
    return f"ray:{ray.get_runtime_context().gcs_address}"


@pytest.fixture(name="folder", autouse=True)
def fixture_folder(tmp_path, monkeypatch):
    """Run every test in its own folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*arguments):
    """Start the command line."""
    return subprocess.Popen(
        [sys.executable, "-m", "rlox", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def run(*arguments, code=0):
    """Return the output of the command line."""
    process = start(*arguments)
    try:
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == code, output
    return output


def learnt(run_folder):
    """Return the learnt arrays of a finished run."""
    state = checkpoint.read(run_folder / "checkpoints" / "final.safetensors")["state"]
    policy = state["algorithm"]["policy"]
    return {name: value for name, value in policy.items() if isinstance(value, np.ndarray)}


def require_same(one, other):
    """Compare the learnt arrays of two runs, bit for bit."""
    found, expected = learnt(one), learnt(other)
    assert found
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name])


def runs_of(folder):
    """Return the processes on this machine that train in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if "rlox_distributed.ray_run" in words and any(str(folder.name) in w for w in words):
            found.append(int(path.parent.name))
    return found


def wait_for(condition, process):
    """Wait until a function returns something, while a process runs."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def test_seeds_and_options_are_those_of_this_machine(place, folder):
    """Bit for bit; each output is in its file, and nothing runs afterwards."""
    sweep = (*TRAIN, "--total-timesteps", "400", "--seeds", "2", "--sweep", "gamma=0.9,0.99")
    output = run(*sweep, "--run-dir", "far", "--on", place)
    assert "4 runs in far" in output
    assert "on Ray, the cluster at" in output
    assert output.count("finished (") == 4
    run(*sweep, "--run-dir", "near")
    for name in ("gamma=0.9", "gamma=0.99"):
        for seed in range(2):
            require_same(Path("far", name, f"seed-{seed}"), Path("near", name, f"seed-{seed}"))
            log = Path("far", name, f"seed-{seed}.log").read_text(encoding="utf-8")
            assert "evaluation return" in log
    assert not runs_of(folder)


def test_a_run_that_is_lost_goes_on_from_its_checkpoint(place):
    """The Ray actor of one run is killed: its process saves and ends, and another continues."""
    process = start(*TRAIN, *LONG, "--seeds", "1", "--run-dir", "lost", "--on", place)
    saved = Path("lost", "seed-0", "checkpoints")
    wait_for(lambda: any(saved.glob("step-*")), process)
    (pid,) = runs_of(Path("lost"))
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    parent = next(int(line.split()[1]) for line in status if line.startswith("PPid:"))
    os.kill(parent, signal.SIGKILL)
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, output
    log = Path("lost", "seed-0.log").read_text(encoding="utf-8")
    assert "the run was lost on Ray and goes on elsewhere" in log
    record = json.loads(Path("lost", "seed-0", "run.json").read_text(encoding="utf-8"))
    assert record["status"] == "finished"
    assert record["env_steps"] == 40_000
    assert len(record["resumed"]) == 1
    run(*TRAIN, *LONG, "--seeds", "1", "--run-dir", "whole")
    require_same(Path("lost", "seed-0"), Path("whole", "seed-0"))


def test_a_cluster_that_is_not_there_is_one_error():
    """The error has the address; nothing was started."""
    output = run(*TRAIN, "--total-timesteps", "400", "--seeds", "2", "--run-dir", "none", "--on",
                 "ray:127.0.0.1:9", code=2)  # fmt: skip
    assert "there is no Ray cluster at '127.0.0.1:9'" in output
    assert not list(Path("none").glob("seed-*"))
