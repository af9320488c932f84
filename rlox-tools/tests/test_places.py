"""Places where a plugin runs the jobs of sweeps."""

import json
from pathlib import Path

import pytest

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "1")

FAR = """
import os, pathlib, signal, subprocess, sys
import rlox

def note(*words):
    with open("calls", "a") as calls:
        print(*words, file=calls)

class Lost:
    '''A process that is lost once, and goes on with what the job says then.'''

    def __init__(self, job):
        self.job, self.losses = job, 0
        self.process = self.start(job.arguments)

    def start(self, arguments):
        with open(self.job.output, "ab") as output:
            note("far", *arguments)
            command = [sys.executable, "-m", "rlox", *arguments]
            return subprocess.Popen(command, stdout=output, stderr=output)

    def poll(self):
        code = self.process.poll()
        if code is None or self.losses or not pathlib.Path("loses").exists():
            return code
        self.losses += 1
        record = pathlib.Path(self.job.arguments[-1], "run.json")
        record.write_text(record.read_text().replace('"finished"', '"running"'))
        self.process = self.start(self.job.again())
        return None

    def send_signal(self, sig):
        self.process.send_signal(sig)

    def kill(self):
        self.process.kill()

    def wait(self):
        return self.process.wait()

class Far:
    def __init__(self, address):
        self.description, self.slots = f"far away, at {address}", 1

    def start(self, job, threads):
        return Lost(job)

    def close(self):
        note("closed")

@rlox.hookimpl
def rlox_places():
    yield rlox.PlaceSpec("far", "Another machine.", __name__ + ":Far")
"""


@pytest.fixture(autouse=True)
def _far(install, monkeypatch):
    """Install a place that is this machine by another name."""
    install("rlox-far", FAR)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-tools,rlox-counting,rlox-far")


def calls():
    """Return what the place was asked for."""
    return Path("calls").read_text(encoding="utf-8").splitlines()


def test_a_sweep_runs_at_a_place(run):
    """Each run by its command line; as many at once as there is room for."""
    result = run(*TRAIN, "--total-timesteps", 60, "--seeds", 2, "--on", "far:1.2.3.4:5",
                 "--run-dir", "s")  # fmt: skip
    assert result.code == 0, result.err
    assert "2 runs in s, 1 at once, far away, at 1.2.3.4:5" in result.out
    assert [line.split()[0] for line in calls()] == ["far"] * 2 + ["closed"]
    assert all("--run-dir s/seed-" in line for line in calls()[:2])
    for seed in range(2):
        record = json.loads(Path("s", f"seed-{seed}", "run.json").read_text(encoding="utf-8"))
        assert record["status"] == "finished"
        assert "on" not in record["options"]
    assert run("resume", "s", "--on", "far").code == 2  # it is finished


@pytest.mark.slow
def test_a_lost_job_goes_on_from_what_it_saved(run):
    """By the command line that it has then."""
    Path("loses").touch()
    result = run(*TRAIN, "--total-timesteps", 60, "--seeds", 1, "--on", "far", "--run-dir", "s")
    assert result.code == 0, result.err
    first, second, closed = calls()
    assert first.startswith("far train counting")
    assert second == "far resume s/seed-0"
    assert closed == "closed"


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--on", "far"), "--on is for a sweep; pass --seeds too"),
        (("--seeds", 2, "--on", "fra"), "unknown place 'fra'; did you mean 'far'?"),
        (("--ray",), "--ray is for algorithms that step envs"),
    ],
)
def test_misuse_is_one_line(run, flags, text):
    """Nothing was started."""
    result = run(*TRAIN, "--total-timesteps", 60, "--run-dir", "s", *flags)
    assert result.code == 2
    assert text in result.err
    assert not list(Path().glob("s/seed-*"))
