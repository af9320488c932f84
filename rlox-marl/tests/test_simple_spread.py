"""simple_spread in NumPy against mpe2's."""

from __future__ import annotations

import numpy as np
import pytest
from rlox.errors import EnvError
from rlox_marl.envs import PettingZooVecEnv, SimpleSpreadVecEnv


def random_actions(rng, env):
    """Return random actions for all rows."""
    (group,) = env.groups
    shape = (env.n_envs, len(group.agents))
    if hasattr(group.action_space, "n"):
        return {group.name: rng.integers(group.action_space.n, size=shape)}
    return {group.name: rng.random((*shape, 5), np.float32)}


def require_equal(ours, theirs):
    """Compare two steps or resets byte for byte."""
    assert ours.keys() == theirs.keys() - {"final_masks"}  # left out without masks
    for key, value in ours.items():
        if isinstance(value, dict):
            assert value.keys() == theirs[key].keys()
            for group in value:
                assert value[group].dtype == theirs[key][group].dtype
                assert value[group].tobytes() == theirs[key][group].tobytes(), key
        else:
            assert value.dtype == theirs[key].dtype
            assert value.tobytes() == theirs[key].tobytes(), key


OPTIONS = [
    {},
    {"N": 1, "local_ratio": 0.0},
    {"N": 4, "local_ratio": 1.0, "max_cycles": 10},
    {"N": 5, "continuous_actions": True, "max_cycles": 7, "local_ratio": 0.3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_mpe2_byte_for_byte(options) -> None:
    """Random actions for 10 seeds: two episodes each, and the reset after them."""
    n_envs = 10
    ours = SimpleSpreadVecEnv(n_envs, seed=100, **options)
    theirs = PettingZooVecEnv("mpe2/simple_spread_v3", n_envs, seed=100, env_kwargs=options)
    assert ours.groups == theirs.groups
    assert ours.possible_agents == theirs.possible_agents
    assert ours.state_space == theirs.state_space
    require_equal(ours.reset_all(), theirs.reset_all())
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(2 * options.get("max_cycles", 25)):
        actions = random_actions(rng, ours)
        step = ours.step_all(actions)
        require_equal(step, theirs.step_all(actions))
        ends += int(step["episode_ended"].sum())
    assert ends == 2 * n_envs
    theirs.close()


def test_agents_that_collide_equal_mpe2() -> None:
    """All agents push towards one corner until they touch, where forces grow large."""
    ours = SimpleSpreadVecEnv(2, seed=3, N=6, max_cycles=60)
    theirs = PettingZooVecEnv(
        "mpe2/simple_spread_v3", 2, seed=3, env_kwargs={"N": 6, "max_cycles": 60}
    )
    ours.reset_all(), theirs.reset_all()
    where = np.zeros((2, 6), np.int64)
    touched = 0
    for _ in range(60):
        # towards the origin, along the axis with the larger distance
        position = ours.state()["positions"]
        across = np.abs(position[..., 0]) > np.abs(position[..., 1])
        where = np.where(
            across, np.where(position[..., 0] > 0, 1, 2), np.where(position[..., 1] > 0, 3, 4)
        )
        step = ours.step_all({"agent": where})
        require_equal(step, theirs.step_all({"agent": where}))
        touched += int(np.ptp(step["rewards"]["agent"], axis=1).astype(bool).sum())
    assert touched > 20
    theirs.close()


def test_wrong_calls_are_refused() -> None:
    """A step before the reset, another state's sizes."""
    with pytest.raises(EnvError, match=r"local_ratio must lie in \[0, 1\], got 1.5"):
        SimpleSpreadVecEnv(local_ratio=1.5)
    env = SimpleSpreadVecEnv(2)
    with pytest.raises(EnvError, match="before reset_all"):
        env.step_all({"agent": np.zeros((2, 3), np.int64)})
    with pytest.raises(EnvError, match="3 envs with 2 agents, expected 2 with 3"):
        env.set_state(SimpleSpreadVecEnv(3, N=2).state())
