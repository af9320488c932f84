"""``rlox tune`` finds options that learn, and hands them on as a file."""

from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna")


@pytest.mark.slow
def test_search_prefers_the_learning_rate_that_learns(tmp_path, monkeypatch, run):
    """Of a useless and a good one; the best options train by --config."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(
        "tune", "ppo", "--env", "CartPole-v1", "--space", "learning_rate=1e-9,2e-3",
        "--trials", 4, "--seeds", "0..0", "--total-timesteps", 6_144, "--no-prune",
        "--run-dir", "t",
    )  # fmt: skip
    assert code == 0, err
    assert " 1e-9 " in out  # both were tried
    best = yaml.safe_load(Path("t/best.yaml").read_text("utf-8"))
    assert best["learning_rate"] == 2e-3
    train = ("train", "ppo", "--env", "CartPole-v1", "--total-timesteps", 1024, "--quiet")
    assert run(*train, "--config", "t/best.yaml", "--run-dir", "again")[0] == 0
    again = yaml.safe_load(Path("again/config.yaml").read_text("utf-8"))
    assert again["learning_rate"] == 2e-3
