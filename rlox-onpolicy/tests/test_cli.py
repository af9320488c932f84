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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from rlox import cli
from rlox.algorithms import PPO
from rlox.training import checkpoint
from rlox_onpolicy.configs import PPOConfig

pytestmark = pytest.mark.filterwarnings("ignore:rlox-native is not installed:RuntimeWarning")

SMALL = (
    "train", "ppo", "--env", "CartPole-v1", "--n-envs", "2", "--n-steps", "16",
    "--batch-size", "16", "--n-epochs", "1", "--hidden", "4", "--eval-episodes", "2",
)  # fmt: skip


class Result(NamedTuple):
    """What one call of the command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder, on one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Return a function that calls the command line in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return Result(int(exit_.value.code or 0), *capsys.readouterr())

    return run


def command(*arguments: object) -> list[str]:
    """Return the command line for a process of its own."""
    return [sys.executable, "-c", "import rlox.cli; rlox.cli.main()", *map(str, arguments)]


def parameters(path: str) -> dict[str, Any]:
    """Return the policy's parameters in a checkpoint."""
    return checkpoint.read(path)["state"]["algorithm"]["policy"]


def test_help_has_a_flag_for_every_option_of_ppo(run: Callable[..., Result]) -> None:
    """No option of the config is out of reach of the command line."""
    text = run("train", "ppo", "--help").out
    for name in PPOConfig.model_fields:
        assert re.search(rf"^  --{name.replace('_', '-')}\b", text, re.MULTILINE)
    assert "--normalize-advantages / --no-normalize-advantages" in text
    assert "--vectorization [sync|async]" in text
    assert "--learning-rate FLOAT|linear(A, B)" in text


def test_the_learner_is_told_before_the_training_and_kept(run: Callable[..., Result]) -> None:
    """Which one it was decides the speed, also of a run that did not finish."""
    result = run(*SMALL, "--total-timesteps", 32, "--run-dir", "run", "--backend", "torch")
    assert result.code == 0, result.err
    assert result.out.startswith("learner: torch (as configured)\n")
    assert json.loads(Path("run/run.json").read_text())["learner"] == "torch (as configured)"


def test_flags_of_every_kind_reach_the_config(run: Callable[..., Result]) -> None:
    """A schedule, a switch, a choice, a number and none arrive as from Python."""
    result = run(
        *SMALL, "--total-timesteps", 32, "--run-dir", "run", "--learning-rate", "linear(3e-4, 0)",
        "--no-normalize-advantages", "--vectorization", "sync", "--target-kl", "0.02",
        "--torch-threads", "none", "--clip-eps", "0.1",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert PPOConfig.load("run/config.yaml") == PPOConfig(
        n_envs=2, n_steps=16, batch_size=16, n_epochs=1, hidden=4,
        learning_rate="linear(3e-4, 0)", normalize_advantages=False, target_kl=0.02,
        torch_threads=None, clip_eps=0.1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "CartPol-v1"), "env 'CartPol-v1' cannot be built"),
        (("--vectorization", "threads"), "vectorization: expected 'sync' or 'async'"),
        (("--learning-rate", "fast"), "learning_rate: expected"),
        (("--batch-size", "64"), "batch_size 64 exceeds the rollout's n_envs * n_steps"),
    ],
)
def test_wrong_option_is_one_line_before_any_work(
    run: Callable[..., Result], arguments: tuple[str, ...], message: str
) -> None:
    """The config's own checks speak through the command line, and no folder is made."""
    result = run(*SMALL, *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not Path("runs").exists()


def test_config_of_a_run_repeats_it_bit_for_bit(run: Callable[..., Result]) -> None:
    """``--config <run>/config.yaml`` ends with the same parameters and the same evaluation."""
    first = run(*SMALL, "--total-timesteps", 96, "--seed", "none", "--run-dir", "a")
    assert first.code == 0, first.err
    second = run(
        "train", "ppo", "--env", "CartPole-v1", "--eval-episodes", 2, "--total-timesteps", 96,
        "--config", "a/config.yaml", "--run-dir", "b",
    )  # fmt: skip
    assert second.code == 0, second.err
    a, b = (parameters(f"{name}/checkpoints/final.safetensors") for name in "ab")
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)
    records = [json.loads(Path(name, "run.json").read_text()) for name in "ab"]
    assert records[0]["evaluation"] == records[1]["evaluation"]
    assert "torch" in records[0]["versions"]


def test_eval_of_a_run_folder_is_reproducible(run: Callable[..., Result]) -> None:
    """The same seed gives the same numbers; the env can be named."""
    run(*SMALL, "--total-timesteps", 64, "--run-dir", "run")
    first = run("eval", "run", "--episodes", 3, "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["env_steps"] == 64
    assert run("eval", "run", "--episodes", 3, "--json", "--env", "CartPole-v1") == first
    assert run("eval", "run", "--episodes", 2, "--env", "Acrobot-v1").code == 2


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_ctrl_c_leaves_a_checkpoint_that_training_goes_on_from(vectorization: str) -> None:
    """After SIGINT to the process and its env workers the saved state loads and trains on."""
    process = subprocess.Popen(
        command(
            *SMALL,
            "--total-timesteps",
            10**8,
            "--run-dir",
            "run",
            "--quiet",
            "--vectorization",
            vectorization,
            "--env-backend",
            "gymnasium",
        ),
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


def read(terminal: int) -> bytes:
    """Return what has been written to a terminal, nothing once it is closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux reports that the other side has closed
        return b""


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_terminal_shows_a_progress_bar_and_the_summary() -> None:
    """On a terminal the bar has env steps, speed and return, and the summary follows."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*SMALL, "--total-timesteps", 256, "--run-dir", "run"),
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )
    os.close(theirs)
    received = b"".join(iter(lambda: read(ours), b""))
    os.close(ours)
    assert process.wait(120) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received.decode())
    assert "━" in text
    assert "env steps/s" in text
    assert re.search(r"evaluation return +\d+\.\d ± \d+\.\d over 2 episodes", text)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["explain", "ppo"], ["train", "ppo", "--help"]]
)
def test_looking_around_imports_no_torch(arguments: list[str]) -> None:
    """Help, list and explain know PPO without loading torch."""
    code = "import sys, rlox.cli\ntry: rlox.cli.main()\nfinally: assert 'torch' not in sys.modules"
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "ppo" in process.stdout
