"""The multi-agent vector env: options and wrong calls."""

import subprocess
import sys

import numpy as np
import pytest
from rlox_native import MultiAgentVecEnv
from rlox_native.envs import make_team_env

ENV_ID = "mpe2/simple_spread_v3"


def test_options_are_numbers_of_python_and_numpy():
    """A NumPy scalar counts as its value."""
    options = {"N": np.int64(2), "local_ratio": np.float32(0.5), "continuous_actions": np.True_}
    envs = MultiAgentVecEnv(1, env_kwargs=options)
    envs.reset_all()
    assert envs.possible_agents == ("agent_0", "agent_1")
    assert envs.step_all({"agent": np.ones((1, 2, 5))})["rewards"]["agent"].shape == (1, 2)
    assert make_team_env(ENV_ID, n_envs=2).n_envs == 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_cycle": 3}, ValueError, "no option 'max_cycle', did you mean 'max_cycles'"),
        ({"n": 3}, ValueError, "its options are N, local_ratio, max_cycles, continuous_actions"),
        ({"N": 0}, ValueError, r"N must be an integer in \[1, 1024\], got 0"),
        ({"N": True}, ValueError, "N must be an integer .* got true"),
        ({"N": "3"}, TypeError, r"env_kwargs\['N'\] must be a number or a bool, got str"),
        ({"local_ratio": 1.5}, ValueError, r"local_ratio must lie in \[0, 1\], got 1.5"),
        ({"continuous_actions": 1}, ValueError, "continuous_actions must be true or false, got 1"),
        ([("N", 3)], TypeError, "env_kwargs must be a dict by name, got list"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    """The error has the option's name, requirement and value."""
    with pytest.raises(error, match=message):
        MultiAgentVecEnv(1, env_kwargs=options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "n must be at least 1, got 0"),
        ((2, [1]), ValueError, "seed must have length 2 like the envs, got 1"),
        ((1, None, "simple_spread_v3"), ValueError, "did you mean 'mpe2/simple_spread_v3'"),
    ],
)
def test_wrong_sizes_seeds_and_ids_are_refused(arguments, error, message):
    """As for envs of one agent."""
    with pytest.raises(error, match=message):
        MultiAgentVecEnv(*arguments)


def test_what_memory_cannot_hold_is_refused():
    """Before it is reserved."""
    with pytest.raises(MemoryError, match="for the result of one step"):
        MultiAgentVecEnv(2**20, env_kwargs={"N": 200})


RESTING = np.zeros((2, 3), np.int64)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (RESTING, TypeError, r"actions must be a dict by group \('agent'\), got ndarray"),
        ({}, ValueError, "must have the group 'agent' and no other"),
        ({"agent": RESTING, "other": RESTING}, ValueError, "and no other"),
        ({"agent": RESTING[:1]}, ValueError, r"actions must have shape \(2, 3\) .*got \(1, 3\)"),
        ({"agent": RESTING + 5}, ValueError, r"of agent 'agent_0' in env 0 must lie in \[0, 4\]"),
        ({"agent": [[0, 0, 0], [0, -1, 0]]}, ValueError, "of agent 'agent_1' in env 1 .* got -1"),
        ({"agent": RESTING * 1.0}, TypeError, "actions must be integers, got dtype float64"),
        ({"agent": [[0, 0, 0], [0]]}, ValueError, "actions must be a rectangular array"),
    ],
)
def test_wrong_actions_are_refused_and_move_nothing(actions, error, message):
    """The error names the agent and the env of a wrong action."""
    envs = MultiAgentVecEnv(2, seed=0)
    envs.reset_all()
    before = envs.state()
    with pytest.raises(error, match=message):
        envs.step_all(actions)
    assert all(np.array_equal(before[key], value) for key, value in envs.state().items())


@pytest.mark.parametrize("wrong", [1.5, -0.01, np.nan, np.inf])
def test_shares_outside_their_space_are_refused(wrong):
    """Continuous actions lie in [0, 1]."""
    envs = MultiAgentVecEnv(2, seed=0, env_kwargs={"continuous_actions": True})
    envs.reset_all()
    actions = np.full((2, 3, 5), 0.5, np.float32)
    actions[1, 2, 4] = wrong
    with pytest.raises(ValueError, match=r"of agent 'agent_2' in env 1 must lie in \[0, 1\]"):
        envs.step_all({"agent": actions})
    with pytest.raises(TypeError, match="real numbers, got dtype bool"):
        envs.step_all({"agent": np.ones((2, 3, 5), np.bool_)})
    with pytest.raises(ValueError, match=r"shape \(2, 3, 5\)"):
        envs.step_all({"agent": actions[..., :4]})


def test_a_step_before_the_reset_is_refused():
    """The error names the call that must come first."""
    with pytest.raises(RuntimeError, match=r"call reset_all\(\) before stepping"):
        MultiAgentVecEnv(1).step_all({"agent": np.zeros((1, 3), np.int64)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"physics": np.zeros((2, 12))}, r"physics must have shape \(2, 18\).*got \(2, 12\)"),
        ({"physics": np.full((2, 18), np.nan)}, "physics must be finite"),
        ({"physics": np.full((2, 18), 1.5)}, r"physics must lie in \[-1, 1\], got 1.5"),
        ({"elapsed": np.full(2, 25, np.uint32)}, "elapsed is not a valid state"),
        ({"rng": np.zeros((2, 4), np.uint64)}, "rng is not a valid state"),
        ({"surplus": np.zeros(1)}, "state must have the keys"),
        ({"env_id": np.frombuffer(b"other", np.uint8)}, "env_id must be 'other' as in the state"),
    ],
)
def test_a_malformed_state_is_refused_whole(change, message):
    """The error names an impossible part, and the envs are unchanged."""
    envs = MultiAgentVecEnv(2, seed=0)
    envs.reset_all()
    before = envs.state()
    with pytest.raises(ValueError, match=message):
        envs.set_state({**envs.state(), **change})
    assert all(np.array_equal(before[key], value) for key, value in envs.state().items())


def test_it_needs_no_core_to_step():
    """Spaces and groups import it; resets and steps do not."""
    code = (
        "import sys, rlox_native as rn\n"
        "envs = rn.MultiAgentVecEnv(1, seed=0)\n"
        "envs.reset_all(); envs.step_all({'agent': [[0, 1, 2]]})\n"
        "print('rlox' in sys.modules, 'gymnasium' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
