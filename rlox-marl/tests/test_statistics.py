"""Returns of teams end with the env's episode."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from rlox.protocols import AgentGroup
from rlox_marl.collector import TeamStatistics

SPACE = spaces.Discrete(2)
GROUPS = (
    AgentGroup("x", ("x_0", "x_1"), SPACE, SPACE),
    AgentGroup("y", ("y_0",), SPACE, SPACE),
)


def steps(seed, n_steps=60, n_envs=3):
    """Return random rewards by group, and ends."""
    rng = np.random.default_rng(seed)
    rewards = {
        "x": rng.normal(size=(n_steps, n_envs, 2)),
        "y": rng.normal(size=(n_steps, n_envs, 1)),
    }
    return rewards, rng.random((n_steps, n_envs)) < 0.2


def oracle(rewards, ended, window):
    """Return each agent's finished returns, and episode lengths, in the order of their ends."""
    table = np.concatenate([rewards["x"], rewards["y"]], axis=2)
    returns, lengths = [], []
    running, length = np.zeros(table.shape[1:]), np.zeros(table.shape[1])
    for t in range(len(table)):
        for i in range(table.shape[1]):
            running[i] += table[t, i]
            length[i] += 1
            if ended[t, i]:
                returns.append(running[i].copy())
                lengths.append(length[i])
                running[i], length[i] = 0, 0
    return np.array(returns)[-window:], lengths[-window:], len(returns)


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_equals_plain_sums(chunk) -> None:
    """For any number of steps added at once."""
    rewards, ended = steps(0)
    statistics = TeamStatistics(GROUPS, 3, window=10)
    for t in range(0, 60, chunk):
        part = {name: values[t : t + chunk] for name, values in rewards.items()}
        statistics.add(part, ended[t : t + chunk])
    returns, lengths, finished = oracle(rewards, ended, 10)
    found = statistics.metrics()
    expected = dict(zip(("return/x_0", "return/x_1", "return/y_0"), returns.mean(0), strict=True))
    assert found.pop("agents") == pytest.approx(expected)
    wanted = {"mean_reward": returns.mean(), "mean_episode_length": np.mean(lengths)}
    assert found == pytest.approx({**wanted, "episodes": finished})
