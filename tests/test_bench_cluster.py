"""``rlox bench cluster``: costs that are there, predictions with limits, and wrong calls."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from rlox import cli
from rlox.cli.bench.actor_costs import measure_actor_costs
from rlox_onpolicy.impala_config import IMPALAConfig


def bench(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["rlox", "bench", "cluster", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return int(exit_.value.code or 0)


def test_costs_and_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has all costs, and a row for each number of actors, in turn and at once."""
    monkeypatch.chdir(tmp_path)
    code = bench(monkeypatch, "impala", "--env", "CartPole-v1", "--actors", "1,100", "--rounds",
                 "2", "--link", "1", "--actor-backend", "process")  # fmt: skip
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "hand-over of an unroll" in printed.out
    path = Path("bench-cluster-impala-CartPole-v1.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    costs = found["costs"]
    assert costs["unroll_bytes"] > 2 * 32 * 16  # observations alone
    assert costs["actor_processor"] > 0
    assert costs["update"] + costs["update_unroll"] > 0
    assert found["predicted_for"] == {"link": 1.25e8}
    assert [row["actors"] for row in found["predictions"]] == [1, 100]
    one, many = found["predictions"]
    assert one["in_turn"]["env_steps_per_second"] <= many["in_turn"]["env_steps_per_second"]
    assert many["at_once"]["bottleneck"] == "learner"  # 100 actors of a fast env


class Sleeps(gymnasium.Env[Any, Any]):
    """An env whose step sleeps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Return zeros."""
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        """Sleep."""
        time.sleep(self.seconds)
        return np.zeros(3, np.float32), 0.0, False, False, {}


def test_time_that_an_env_sleeps_is_the_envs() -> None:
    """Not the policy's, nor the processor's."""
    config = IMPALAConfig(n_envs=2, n_steps=4, hidden=8)
    costs = measure_actor_costs("impala", partial(Sleeps, seconds=0.02), config, rounds=2)
    assert costs.env >= 0.02
    assert costs.unroll >= 4 * 2 * 0.02
    assert costs.actor_processor < costs.unroll


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ppo", "--env", "CartPole-v1"), "'ppo' has no actors to measure"),
        (("impala", "--env", "CartPole-v1", "--actors", "1,x"), "--actors must be numbers"),
        (("impala", "--env", "CartPole-v1", "--link", "0"), "--link must be above 0 Gbit/s"),
        (("impala",), "--env"),
    ],
)
def test_wrong_calls_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """Before any work."""
    assert bench(monkeypatch, *arguments) != 0
    assert message in capsys.readouterr().err
