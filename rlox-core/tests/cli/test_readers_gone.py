"""Tests of the command line with a broken pipe or without stdout."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2", "--run-dir", "r")


@pytest.fixture(autouse=True)
def hang_up():
    """Let processes started within end at SIGHUP, also where the tests run under ``nohup``."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def status(folder):
    """Return the outcome in ``run.json``."""
    return str(json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))["status"])


def test_training_that_nobody_reads_saves_itself(run, start):
    """As SIGHUP does; it can be resumed."""
    readers_end, writers_end = os.pipe()
    os.close(readers_end)
    process = start(*TRAIN, "--total-timesteps", 800, stdout=writers_end)
    os.close(writers_end)
    assert process.wait(120) == 128 + 1, process.stderr.read()
    assert process.stderr.read().endswith("to finish: rlox resume r\n")
    assert status("r") == "interrupted"
    assert Path("r/checkpoints/interrupted.safetensors").is_file()
    assert run("resume", "r", "--quiet").code == 0
    assert status("r") == "finished"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk")
def test_full_disk_is_an_error():
    """What was asked for is not there; a training is finished for all that."""
    arguments = (*TRAIN, "--total-timesteps", "8", "--quiet")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")
    assert status("r") == "finished"


def test_closed_stdout():
    """Shells close it for ``>&-``."""
    command = [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *TRAIN,
               "--total-timesteps", "8"]  # fmt: skip
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closing, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no hang-up")
def test_closed_terminal(start):
    """Its signal, and those that come with it, let what trains save its state."""
    process = start(*TRAIN, "--total-timesteps", 10**9)
    deadline = time.monotonic() + 120
    log = Path("r/metrics.jsonl")
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGHUP):
        process.send_signal(number)
    process.stdout.close()
    assert process.wait(120) == 128 + signal.SIGINT
    assert status("r") == "interrupted"
    assert Path("r/checkpoints/interrupted.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no hang-up")
def test_nohup(start):
    """A training that is to survive its terminal does, and its reader too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # children inherit it
    try:
        process = start(*TRAIN, "--total-timesteps", 80)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.stdout.close()
    assert process.wait(120) == 0, process.stderr.read()
    assert status("r") == "finished"
