"""Scripted teams behind the adapter give exactly the rows of slow oracles."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rlox_marl.envs import PettingZooVecEnv
from scripted_teams import (
    EPISODES,
    N_ACTIONS,
    TURNS,
    ScriptedParallel,
    ScriptedTurns,
    lives,
    parallel_oracle,
    turns,
    turns_oracle,
)

STEPS = 25


def actions_of(n_envs, seed):
    """Return random actions: for each step, one dict by agent per env."""
    rng = np.random.default_rng(seed)
    return [
        [{agent: int(rng.integers(n)) for agent, n in N_ACTIONS.items()} for _ in range(n_envs)]
        for _ in range(STEPS)
    ]


def check(env, arrays, i, row, *, begins):
    """Compare the rows of one env with an oracle's."""
    for group in env.groups:
        for column, agent in enumerate(group.agents):

            def of(key, group=group, column=column):
                value = arrays[key][group.name]
                value = value["numbers"] if isinstance(value, dict) else value
                return value[i, column].tolist()

            size = N_ACTIONS[agent]
            assert of("obs") == row.obs.get(agent, [0.0] * 4)
            assert of("active") is (agent in row.active)
            assert of("masks") == row.masks.get(agent, [True] * size)
            if begins:
                continue
            assert of("rewards") == row.rewards.get(agent, 0.0)
            assert of("terminated") is (agent in row.terminated)
            assert of("truncated") is (agent in row.truncated)
            assert of("final_obs") == row.final_obs.get(agent, [0.0] * 4)
            assert of("final_masks") == row.final_masks.get(agent, [True] * size)
    if env.state_space is None:
        assert arrays["state"] is None
    else:
        assert arrays["state"][i].tolist() == row.state
    if not begins:
        assert bool(arrays["episode_ended"][i]) is row.ended
        if env.state_space is not None:
            assert arrays["final_state"][i].tolist() == row.final_state


def run(make, oracle, scripts, seed):
    """Step N envs, each with its own script, and compare them with N oracles."""
    n_envs = len(scripts)
    waiting = iter(scripts)
    env = PettingZooVecEnv(lambda: make(next(waiting)), n_envs)
    actions = actions_of(n_envs, seed)
    rows = [oracle(script, [one[i] for one in actions]) for i, script in enumerate(scripts)]
    returned = [env.reset_all()]
    for step in actions:
        arrays = {
            group.name: np.array([[one[agent] for agent in group.agents] for one in step])
            for group in env.groups
        }
        returned.append(env.step_all(arrays))
    for t, arrays in enumerate(returned):  # afterwards, to detect overwritten results
        for i in range(n_envs):
            check(env, arrays, i, rows[i][t], begins=t == 0)
    env.close()


@settings(derandomize=True)
@example([EPISODES, EPISODES[1:]], 0)
@given(st.lists(st.lists(lives(), min_size=1, max_size=3), min_size=1, max_size=3), st.integers(0))
def test_any_parallel_team_equals_the_oracle(scripts, seed) -> None:
    """At N = 1, 2 and 3, with another script in each env."""
    run(ScriptedParallel, parallel_oracle, scripts, seed)


@settings(derandomize=True)
@example([TURNS, TURNS[::-1]], 0)
@given(st.lists(st.lists(turns(), min_size=1, max_size=3), min_size=1, max_size=3), st.integers(0))
def test_any_turns_equal_the_oracle(scripts, seed) -> None:
    """At N = 1, 2 and 3, with another script in each env."""
    run(ScriptedTurns, turns_oracle, scripts, seed)


def test_groups_are_agents_of_equal_spaces() -> None:
    """Groups take the common part of their agents' names; observations exclude the mask."""
    env = PettingZooVecEnv(ScriptedParallel(EPISODES))
    assert [(group.name, group.agents) for group in env.groups] == [
        ("scout", ("scout_0", "scout_1")), ("tank", ("tank",)),
    ]  # fmt: skip
    assert list(env.groups[1].observation_space.spaces) == ["numbers"]


def test_seeds_are_one_per_env_and_only_for_the_first_episode() -> None:
    """Counted as in gymnasium; later episodes continue each env's stream."""
    made = [ScriptedParallel(EPISODES) for _ in range(3)]
    waiting = iter(made)
    env = PettingZooVecEnv(lambda: next(waiting), 3, seed=7)
    env.reset_all()
    env.reset_all()
    env.reset_all([5, 3, 1])
    env.reset_all(np.int64(2))
    assert [one.seeds for one in made] == [[7, None, 5, 2], [8, None, 3, 3], [9, None, 1, 4]]


def test_close_closes_each_env_once():
    """Repeated calls do nothing."""
    made = ScriptedParallel(EPISODES)
    env = PettingZooVecEnv(made)
    env.close()
    env.close()
    assert made.closed == 1
