"""Parameters shared by names: assignment of agents to policies, and wrong names."""

from __future__ import annotations

import numpy as np
import pytest
import rlox
from rlox.errors import ConfigError
from scripted_teams import Life, ScriptedParallel

SPREAD = "mpe2/simple_spread_v3"
SMALL = {
    "mappo": {"n_envs": 2, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "hidden": 8},
    "vdn": {"n_envs": 2, "hidden": 8, "learning_starts": 8, "steps_per_iteration": 40},
}


@pytest.mark.parametrize("name", ["mappo", "vdn"])
def test_agents_share_as_they_are_named(name) -> None:
    """Each agent acts with the policy that names it, in its own column, before and after saving."""
    share = "agent_2, agent_0; agent_1"
    with rlox.make(name, env=SPREAD, share_parameters=share, **SMALL[name]) as algorithm:
        algorithm.train(32)
        env = algorithm.collector.env
        assert [view.name for view in algorithm.collector.views] == ["agent_0+agent_2", "agent_1"]
        shown = env.reset_all(3)
        together = set()
        for _ in range(5):
            actions = algorithm.predict_team(shown)
            for agent in range(3):
                alone = algorithm.predict(shown["obs"]["agent"][:, agent], agent_idx=agent)
                np.testing.assert_array_equal(actions["agent"][:, agent], alone)
            together |= {tuple(row) for row in actions["agent"]}
            shown = env.step_all(actions)
        assert any(len(set(row)) > 1 for row in together), "agents that all act alike show nothing"


EPISODES = [{agent: Life(0, 3, "terminated") for agent in ("scout_0", "scout_1", "tank")}]


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ("agents", "must be 'group', 'agent', or name each agent once"),
        ("scout_0,scout_1", "the agents are scout_0, scout_1, tank"),
        ("scout_0;scout_1;tank;tank", "name each agent once, as in 'scout_0,scout_1;tank'"),
        ("scout_0;scout_1,tank", "agents of different spaces, scout_1, tank"),
    ],
)
def test_wrong_names_are_one_clear_error(share, message) -> None:
    """The message states the given value and the remedy."""
    with pytest.raises(ConfigError, match=message):
        rlox.make("mappo", env=lambda: ScriptedParallel(EPISODES), share_parameters=share)
