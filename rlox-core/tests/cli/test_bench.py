"""Tests of ``rlox bench``, with an algorithm that counts instead of learning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlox.cli.bench.contenders import CONTENDERS, Contender
from rlox.cli.commands import bench as benching

BENCH = ("bench", "counting", "--env", "CartPole-v1", "--rounds", "2", "--env-steps", "20")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know two peers of the counting algorithm, of which none is installed."""
    for name in ("one", "other"):
        peer = Contender(
            name.title(), CONTENDERS["rlox"].build, f"no_{name}", f"pip-{name}", ("counting",)
        )
        monkeypatch.setitem(benching.CONTENDERS, name, peer)


@pytest.mark.usefixtures("peers")
def test_bench_measures_in_turn_and_lists_who_is_missing(run: Callable[..., Any]) -> None:
    """The table has medians and ranges, the file what a reader needs to repeat them."""
    Path("options.yaml").write_text("n_envs: 5\n", encoding="utf-8")
    result = run(*BENCH, "--config", "options.yaml")
    assert result.code == 0, result.err
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "one not installed; run: pip install pip-one" in rows
    assert "other not installed; run: pip install pip-other" in rows
    assert any(row.startswith("rlox ") and " 1.00 1.00 to 1.00 " in row for row in rows)
    found = json.loads(Path("bench-counting-CartPole-v1.json").read_text(encoding="utf-8"))
    assert found["config"]["n_envs"] == 5
    assert (found["rounds"], found["env_steps"], found["ratio_to"]) == (2, 20, "rlox")
    [row] = found["rows"]
    speed = row["env_steps_per_second"]
    assert 0 < speed["min"] <= speed["median"] <= speed["max"]
    assert {"cpu", "cores", "load_before", "python", "versions"} <= set(found["machine"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peers", "on"), "unknown peer 'on'; did you mean 'one'"),
        (("--peers", "one"), "the peer 'one' is not installed; run: pip install pip-one"),
        (("--peers", "sb3"), "the peer 'sb3' does not train 'counting', but a2c, ddpg"),
        (("--rounds", "0"), "invalid value for '--rounds'"),
        (("--env-steps", "many"), "invalid value for '--env-steps'"),
        (("--config", "none.yaml"), "config file 'none.yaml' cannot be read"),
    ],
)
@pytest.mark.usefixtures("peers")
def test_wrong_bench_is_one_line_before_any_work(
    run: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    """No process is started and nothing is written."""
    result = run(*BENCH, *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_contender_that_fails_is_reported(run: Callable[..., Any], tmp_path: Path) -> None:
    """With the last line of what it said, and no process is left behind."""
    broken = tmp_path / "site-packages" / "counting_algorithm.py"
    broken.write_text("raise SystemExit('out of order')\n", encoding="utf-8")
    result = run(*BENCH)
    assert result.code == 2
    assert result.err == "error: the contender 'rlox' failed: out of order\n"
    assert list(Path.cwd().iterdir()) == []
