"""Tests of the command line where nobody reads what it prints, or there is no stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRAIN = ("train", "counting", "--env", "CartPole-v1", "--eval-episodes", "2", "--run-dir", "r")


def status(folder: str) -> str:
    """Return the outcome in ``run.json``."""
    return str(json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))["status"])


def test_training_that_nobody_reads_saves_itself(
    run: Callable[..., Any], start: Callable[..., Any]
) -> None:
    """As SIGTERM does; it can be resumed."""
    process = start(*TRAIN, "--total-timesteps", 800)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 128 + 15, process.stderr.read()
    assert process.stderr.read().endswith("to finish: rlox resume r\n")
    assert status("r") == "interrupted"
    assert Path("r/checkpoints/interrupted.safetensors").is_file()
    assert run("resume", "r", "--quiet").code == 0
    assert status("r") == "finished"


def test_finished_training_that_nobody_reads_is_finished(start: Callable[..., Any]) -> None:
    """What is printed at the end is no part of it."""
    process = start(*TRAIN, "--total-timesteps", 8, "--quiet")
    process.stdout.close()
    assert process.wait(60) == 0, process.stderr.read()
    assert process.stderr.read() == ""
    assert status("r") == "finished"


def test_sweep_that_nobody_reads_can_be_resumed(
    run: Callable[..., Any], start: Callable[..., Any]
) -> None:
    """The runs under way are ended as by SIGTERM, not killed."""
    process = start(*TRAIN, "--total-timesteps", 8, "--seeds", 3, "--jobs", 1)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 128 + 15
    assert process.stderr.read() == "interrupted; to finish: rlox resume r\n"
    assert run("resume", "r", "--quiet").code == 0
    assert {status(f"r/seed-{seed}") for seed in range(3)} == {"finished"}


@pytest.mark.parametrize("arguments", [(*TRAIN, "--total-timesteps", "8"), ("list",)])
def test_closed_stdout(arguments: tuple[str, ...]) -> None:
    """Shells close it for ``>&-``."""
    command = [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *arguments]
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closing, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
