"""Tests of the ``rlox`` command with PPO."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from rlox import cli
from rlox.algorithms import PPO
from shared_fixtures import Result

pytestmark = pytest.mark.filterwarnings("ignore:rlox-native is not installed:RuntimeWarning")

SMALL = (
    "train", "ppo", "--env", "CartPole-v1", "--n-envs", "2", "--n-steps", "16",
    "--batch-size", "16", "--n-epochs", "1", "--hidden", "4", "--eval-episodes", "2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder, on one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_learner_is_told_before_the_training_and_kept(run: Callable[..., Result]) -> None:
    """Which one it was decides the speed, also of a run that did not finish."""
    result = run(*SMALL, "--total-timesteps", 32, "--run-dir", "run", "--backend", "torch")
    assert result.code == 0, result.err
    assert result.out.startswith("learner: torch (as configured)\n")
    assert json.loads(Path("run/run.json").read_text())["learner"] == "torch (as configured)"


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_that_training_goes_on_from() -> None:
    """After SIGINT to the process and its env workers the saved state loads and trains on."""
    options = (
        "--total-timesteps", "100000000", "--run-dir", "run", "--quiet",
        "--vectorization", "async", "--env-backend", "gymnasium",
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *SMALL, *options],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    metrics, deadline = Path("run/metrics.jsonl"), time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "saved run/checkpoints/interrupted.safetensors" in err
    restored = PPO.from_checkpoint("run/checkpoints/interrupted.safetensors")
    steps = restored.clock.env_steps
    assert steps == json.loads(Path("run/run.json").read_text())["env_steps"]
    restored.train(32)
    restored.collector.close()
    assert restored.clock.env_steps == steps + 32
    assert yaml.safe_load(Path("run/config.yaml").read_text())["n_envs"] == 2


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_terminal_shows_a_progress_bar_and_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the bar has env steps, speed and return, and the summary follows."""
    import pty

    ours, theirs = pty.openpty()
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        sys, "argv", ["rlox", *SMALL, "--total-timesteps", "256", "--run-dir", "run"]
    )

    def read() -> bytes:
        try:
            return os.read(ours, 4096)
        except OSError:  # how Linux reports that the other side has closed
            return b""

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: b"".join(iter(read, b"")))
        with open(theirs, "w", encoding="utf-8") as terminal:
            monkeypatch.setattr(sys, "stdout", terminal)
            monkeypatch.setattr(sys, "stderr", terminal)
            with pytest.raises(SystemExit) as exit_:
                cli.main()
        received = reading.result()
    os.close(ours)
    assert not exit_.value.code
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received.decode())
    assert "━" in text
    assert "env steps/s" in text
    assert re.search(r"evaluation return +\d+\.\d ± \d+\.\d over 2 episodes", text)
