"""Teams on the command line: training by env id, checkpoints, evaluation."""

from __future__ import annotations

import json

import pytest

TRAIN = (
    "train", "mappo", "--env", "mpe2/simple_spread_v3", "--n-envs", "2", "--n-steps", "8",
    "--batch-size", "16", "--n-epochs", "1", "--hidden", "4", "--eval-episodes", "2", "--quiet",
)  # fmt: skip


def test_a_team_is_trained_evaluated_and_logged_by_its_id(run) -> None:
    """The run folder has checkpoints and rows; ``rlox eval`` has each agent's return."""
    code, _, err = run(*TRAIN, "--total-timesteps", "64", "--run-dir", "run")
    assert code == 0, err
    code, out, err = run("eval", "run", "--episodes", "2", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["env"] == "mpe2/simple_spread_v3"
    assert found["env_steps"] == 64
    assert set(found["agents"]) == {"agent_0", "agent_1", "agent_2"}
    assert sum(found["agents"].values()) / 3 == pytest.approx(found["mean"])
