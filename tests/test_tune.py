"""``rlox tune`` finds options that learn, and hands them on as a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from rlox import cli

pytest.importorskip("optuna")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Call the command line in this process, and return the exit code."""
    monkeypatch.setattr(sys, "argv", ["rlox", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_search_prefers_the_learning_rate_that_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a useless and a good one; the best options train by --config."""
    monkeypatch.chdir(tmp_path)
    code = call(
        monkeypatch, "tune", "ppo", "--env", "CartPole-v1", "--space", "learning_rate=1e-9,2e-3",
        "--trials", 4, "--seeds", "0,1", "--total-timesteps", 10_240, "--no-prune",
        "--run-dir", "t",
    )  # fmt: skip
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert " 1e-9 " in printed.out  # both were tried
    best = yaml.safe_load(Path("t/best.yaml").read_text("utf-8"))
    assert best["learning_rate"] == 2e-3
    train = ("train", "ppo", "--env", "CartPole-v1", "--total-timesteps", 1024, "--quiet")
    assert call(monkeypatch, *train, "--config", "t/best.yaml", "--run-dir", "again") == 0
    again = yaml.safe_load(Path("again/config.yaml").read_text("utf-8"))
    assert again["learning_rate"] == 2e-3
