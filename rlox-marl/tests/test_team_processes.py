"""PettingZoo envs in processes equal those in this process, and fail with one error."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import rlox
from rlox.errors import EnvError, WorkerLostError
from rlox_marl.envs import PettingZooProcesses, PettingZooVecEnv
from rlox_testing.probes import first_difference
from scripted_teams import Life, ScriptedParallel, by_turns, random_actions

LIVES = [
    {"scout_0": Life(0, 3, "terminated"), "tank": Life(0, 5, "truncated"),
     "scout_1": Life(2, 4, "both")},
    {"scout_1": Life(0, 4, "terminated"), "scout_0": Life(3, 6, "truncated")},
]  # fmt: skip


class Seeded(ScriptedParallel):
    """The seed selects the first episode, so the first agents differ between envs."""

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._episode = seed % 2 - 1
        return super().reset(seed, options)


def parallel():
    """Return a team whose agents die, join late and have masks."""
    return Seeded(LIVES)


def zeros(env):
    """Return the first action of each agent."""
    return {group.name: np.zeros((env.n_envs, len(group.agents)), np.int64) for group in env.groups}


@pytest.mark.parametrize("source", [parallel, by_turns])
def test_processes_show_what_one_process_shows(source) -> None:
    """30 steps with all observations, masks, rewards, ends and states agree bit for bit."""
    here, there = PettingZooVecEnv(source, 2, seed=0), PettingZooProcesses(source, 2, seed=0)
    try:
        assert there.groups == here.groups
        assert there.possible_agents == here.possible_agents
        assert there.state_space == here.state_space
        assert len(set(there.pids)) == there.n_envs == 2
        rng = np.random.default_rng(0)
        assert first_difference(here.reset_all(), there.reset_all()) is None
        for _ in range(30):
            actions = random_actions(rng, here)
            assert first_difference(here.step_all(actions), there.step_all(actions)) is None
        assert first_difference(here.reset_all([4, 5]), there.reset_all([4, 5])) is None
    finally:
        there.close()
        here.close()


def test_ids_take_the_backend_that_has_processes() -> None:
    """Even though another backend steps the id faster in this process."""
    spread = "mpe2/simple_spread_v3"
    options = {"n_envs": 1, "n_steps": 8, "batch_size": 8, "n_epochs": 1, "hidden": 8}
    with rlox.make("ippo", env=spread, vectorization="async", **options) as algorithm:
        assert isinstance(algorithm.collector.env, PettingZooProcesses)
        assert algorithm.collector.env.state_space is None  # no critic sees it
        algorithm.train(8)


def test_a_killed_process_is_one_error() -> None:
    """The error names the env and its exit, and the other processes are closed."""
    env = PettingZooProcesses(parallel, 2, seed=0)
    env.reset_all()
    env.step_all(zeros(env))
    os.kill(env.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=r"the process of env 1 has died \(signal 9\)"):
        env.step_all(zeros(env))
    pids = env.pids
    env.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_wrong_calls_are_one_clear_error() -> None:
    """Raised before a process starts, or after closing it."""
    with pytest.raises(EnvError, match="the ScriptedParallel itself; pass its id or a callable"):
        PettingZooProcesses(ScriptedParallel(LIVES))
    with pytest.raises(EnvError, match=r"at most .* on this machine, got n_envs = 0"):
        PettingZooProcesses(parallel, 0)
    with pytest.raises(EnvError, match="no PettingZoo env is called 'mpe2/simple_spred_v3'"):
        PettingZooProcesses("mpe2/simple_spred_v3")
    lock = __import__("threading").Lock()
    with pytest.raises(EnvError, match=r"cannot be sent to a process"):
        PettingZooProcesses(lambda: lock and None)
