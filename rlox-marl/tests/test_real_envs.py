"""PettingZoo's and mpe2's own envs, three episodes each, without a display."""

from __future__ import annotations

import numpy as np
import pytest
from rlox.protocols import MultiAgentVecEnv
from rlox_marl.envs import PettingZooVecEnv


def possible_actions(rng, env, shown):
    """Return random allowed actions."""
    actions = {}
    for group in env.groups:
        space = group.action_space
        shape = (env.n_envs, len(group.agents))
        if hasattr(space, "n"):
            chances = rng.random((*shape, space.n))
            if group.name in shown["masks"]:
                chances = np.where(shown["masks"][group.name], chances, -1)
            actions[group.name] = chances.argmax(-1)
        else:
            actions[group.name] = rng.uniform(space.low, space.high, (*shape, *space.shape))
    return actions


ENVS = [
    ("mpe2/simple_spread_v3", {}, [3], (54,)),
    ("mpe2/simple_speaker_listener_v4", {"continuous_actions": True}, [1, 1], (14,)),
    ("sisl/multiwalker-v9", {"max_cycles": 60}, [3], (75,)),
    ("classic/connect_four-v3", {}, [2], None),
    ("classic/rps_v2", {"max_cycles": 5}, [2], None),
]


@pytest.mark.parametrize(("env_id", "kwargs", "sizes", "state"), ENVS, ids=[row[0] for row in ENVS])
def test_episodes_of_random_actions_end(env_id, kwargs, sizes, state, monkeypatch) -> None:
    """With the groups and the state that the env documents."""
    monkeypatch.delenv("DISPLAY", raising=False)
    env = PettingZooVecEnv(env_id, 2, seed=0, env_kwargs=kwargs)
    assert isinstance(env, MultiAgentVecEnv)
    assert [len(group.agents) for group in env.groups] == sizes
    rng = np.random.default_rng(0)
    shown = env.reset_all()
    episodes = steps = 0
    while episodes < 3:
        shown = env.step_all(possible_actions(rng, env, shown))
        episodes += int(shown["episode_ended"].sum())
        steps += 1
        assert steps < 1000
        assert sum(active.sum(1) for active in shown["active"].values()).all()
        assert (shown["state"] is None) == (state is None)
        if state is not None:
            assert shown["state"].shape == shown["final_state"].shape == (2, *state)
    env.close()


def test_the_loser_is_paid_for_its_last_move() -> None:
    """It waits while the winner moves, and both get their reward in that step."""
    env = PettingZooVecEnv("classic/tictactoe-v3")
    shown = env.reset_all()
    for move in (0, 3, 1, 4, 2):  # three in a column for player_1
        turn = shown["active"]["player"][0].tolist()
        shown = env.step_all({"player": np.array([[move, move]])})
    assert turn == [True, False]
    assert shown["rewards"]["player"].tolist() == [[1.0, -1.0]]
    assert shown["terminated"]["player"].all()
    assert shown["episode_ended"].tolist() == [True]
    assert shown["active"]["player"].tolist() == [[True, False]]
    assert shown["final_obs"]["player"]["observation"][0, 1, :, :, 1].sum() == 3
    assert not shown["obs"]["player"]["observation"].any()
