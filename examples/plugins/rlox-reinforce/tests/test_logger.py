"""What the Markdown logger writes."""

import math
from pathlib import Path

from rlox_reinforce.logger import MarkdownLogger


def test_writes_a_table_and_continues_it(tmp_path: Path) -> None:
    """One header, one row per round, a dash for NaN; a second logger adds rows below."""
    MarkdownLogger(tmp_path).on_train_step(8, {"mean_reward": math.nan, "loss": 0.25})
    MarkdownLogger(tmp_path).on_train_step(16, {"loss": 1e-9, "mean_reward": 21.0})
    assert (tmp_path / "training.md").read_text(encoding="utf-8").splitlines() == [
        "| step | mean_reward | loss |",
        "| ---: | ---: | ---: |",
        "| 8 | – | 0.25 |",
        "| 16 | 21 | 1e-09 |",
    ]


def test_keeps_evaluations_apart(tmp_path: Path) -> None:
    """Evaluations have other columns and so a table of their own."""
    MarkdownLogger(tmp_path).on_eval(8, {"mean_reward": 9.5})
    assert (tmp_path / "evaluation.md").read_text(encoding="utf-8").endswith("| 8 | 9.5 |\n")
    assert not (tmp_path / "training.md").exists()
