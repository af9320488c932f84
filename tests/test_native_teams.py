"""Rust's simple_spread beside mpe2's and NumPy's, and training on it.

``nox -s parity`` compares 200 seeds instead of 2.
"""

import os
import platform
from itertools import product

import numpy as np
import pytest
import rlox
from rlox.envs.teams import choose_team_backend
from rlox.errors import CheckpointError
from rlox.protocols import MultiAgentVecEnv, StatefulVecEnv
from rlox.testing import check_multi_agent_env
from rlox_marl.envs import PettingZooVecEnv, SimpleSpreadVecEnv
from rlox_native import MultiAgentVecEnv as NativeVecEnv
from rlox_testing.probes import first_difference

ENV_ID = "mpe2/simple_spread_v3"
SEEDS = int(os.environ.get("RLOX_PARITY_SEEDS", "2"))
EPISODES = 4
SAME_C_LIBRARY = platform.libc_ver()[0] == "glibc"
"""Then both take exponentials and logarithms from one place; elsewhere they may round otherwise."""


def random_actions(env, rng):
    """Return actions of all agents, for the one group."""
    (group,) = env.groups
    shape = (env.n_envs, len(group.agents))
    if hasattr(group.action_space, "n"):
        return {group.name: rng.integers(group.action_space.n, size=shape)}
    return {group.name: rng.random((*shape, 5), np.float32)}


def require_equal(ours, theirs, where):
    """Compare nested dicts of arrays: byte for byte, or to 1e-9 with another C library.

    Observations are single precision, where 1e-9 may be the last bit.
    """
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys() - {"final_masks"}  # without masks it is left out
        for key, value in ours.items():
            require_equal(value, theirs[key], f"{where} {key}")
        return
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
    if SAME_C_LIBRARY:
        assert ours.tobytes() == theirs.tobytes(), where
    else:
        rtol = 1e-9 if ours.dtype == np.float64 else np.finfo(np.float32).eps
        np.testing.assert_allclose(ours, theirs, rtol, 1e-9, err_msg=where)


@pytest.mark.timeout(0 if SEEDS > 2 else 300)
@pytest.mark.parametrize(
    ("n_agents", "continuous"),
    product(range(1, 7), (False, True)) if SEEDS > 2 else [(1, False), (3, True), (4, False)],
)
def test_equals_mpe2(n_agents, continuous):
    """Observations, rewards, states and ends of random actions, over four episodes a seed."""
    options = {"N": n_agents, "continuous_actions": continuous}
    if n_agents == 4:
        options |= {"local_ratio": 0.3, "max_cycles": 31}
    ours = NativeVecEnv(SEEDS, seed=0, env_kwargs=options)
    theirs = PettingZooVecEnv(ENV_ID, SEEDS, seed=0, env_kwargs=options)
    assert ours.groups == theirs.groups
    assert ours.possible_agents == theirs.possible_agents
    assert ours.state_space == theirs.state_space
    require_equal(ours.reset_all(), theirs.reset_all(), "the first reset:")
    rng = np.random.default_rng(n_agents)
    ends = step = 0
    while ends < EPISODES * SEEDS:
        actions = random_actions(ours, rng)
        got, step = ours.step_all(actions), step + 1
        require_equal(got, theirs.step_all(actions), f"step {step}:")
        ends += int(got["episode_ended"].sum())
    theirs.close()


@pytest.mark.parametrize("n_agents", [2, 6])
def test_agents_that_push_each_other_equal_numpy(n_agents):
    """Everybody moves to the middle, so that contacts, where exponentials come in, last."""
    options = {"N": n_agents, "max_cycles": 60, "local_ratio": 0.7}
    ours = NativeVecEnv(64, seed=9, env_kwargs=options)
    numpy = SimpleSpreadVecEnv(64, seed=9, **options)
    require_equal(ours.reset_all(), numpy.reset_all(), "the first reset:")
    contacts = 0
    for step in range(130):
        x, y = np.moveaxis(numpy.state()["positions"], -1, 0)
        sideways = np.abs(x) > np.abs(y)
        moves = np.where(sideways, np.where(x > 0, 1, 2), np.where(y > 0, 3, 4))
        got = ours.step_all({"agent": moves})
        require_equal(got, numpy.step_all({"agent": moves}), f"step {step}:")
        contacts += int(np.ptp(got["rewards"]["agent"], axis=1).astype(bool).sum())
    assert contacts > 50 or n_agents == 2  # two that touch are paid the same


def test_one_or_many_copies_give_the_same():
    """Env i of seed s equals the one env of seed s + i, over resets."""
    many, ones = NativeVecEnv(5, seed=3), [NativeVecEnv(1, seed=3 + i) for i in range(5)]
    rng = np.random.default_rng(0)
    many.reset_all()
    for one in ones:
        one.reset_all()
    for _ in range(60):
        moves = rng.integers(5, size=(5, 3))
        step = many.step_all({"agent": moves})
        for i, one in enumerate(ones):
            single = one.step_all({"agent": moves[i : i + 1]})
            assert single["obs"]["agent"].tobytes() == step["obs"]["agent"][i].tobytes()
            assert single["rewards"]["agent"].tobytes() == step["rewards"]["agent"][i].tobytes()


def test_the_backend_passes_the_conformance_suite():
    """Protocols, rows, seeds, autoreset and states."""
    assert isinstance(NativeVecEnv(1), MultiAgentVecEnv)
    assert isinstance(NativeVecEnv(1), StatefulVecEnv)
    check_multi_agent_env("native_teams", ENV_ID)


def test_it_is_preferred_and_explained(run):
    """``auto`` takes it unless an argument is another backend's, and says so."""
    chosen, reason = choose_team_backend(ENV_ID)
    assert (chosen.spec.name, reason) == ("native_teams", "it is the fastest that has the id")
    other, reason = choose_team_backend(ENV_ID, env_kwargs={"curriculum": True})
    assert other.spec.name == "pettingzoo"
    assert "'native_teams' takes no env_kwargs ['curriculum']" in reason
    code, out, _ = run("explain", "mappo", "--env", ENV_ID)
    assert code == 0
    assert "native_teams: it is the fastest" in " ".join(out.split())
    kinds = {"native_teams": NativeVecEnv, "vectorized": SimpleSpreadVecEnv,
             "pettingzoo": PettingZooVecEnv, "auto": NativeVecEnv}  # fmt: skip
    for name, kind in kinds.items():
        with rlox.make("mappo", ENV_ID, env_backend=name, n_envs=2) as algorithm:
            assert type(algorithm.collector.env) is kind


def test_the_backend_changes_nothing_that_is_learnt():
    """Parameters, optimisers and what is logged are those of NumPy's and of mpe2's envs."""
    small = {"n_envs": 4, "n_steps": 25, "batch_size": 100, "n_epochs": 2, "hidden": 16}

    def trained(backend):
        options = {**small, "env_backend": backend, "normalize_values": "value_norm"}
        with rlox.make("mappo", ENV_ID, seed=0, **options) as algorithm:
            metrics = algorithm.train(300)
            state = algorithm.state_dict()
        return {key: state[key] for key in ("policies", "optimizers")}, metrics

    state, metrics = trained("native_teams")
    for backend in ("vectorized", "pettingzoo"):
        other, logged = trained(backend)
        if SAME_C_LIBRARY:
            assert first_difference(state, other) is None
            assert logged["mean_reward"] == metrics["mean_reward"]
        else:
            assert logged["mean_reward"] == pytest.approx(metrics["mean_reward"], rel=1e-3)


def test_the_checkpoint_of_another_backend_is_refused():
    """Its envs' states are of another kind; the error names the remedy."""
    small = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "hidden": 8}
    with rlox.make("mappo", ENV_ID, env_backend="vectorized", **small) as algorithm:
        algorithm.train(16)
        state = algorithm.state_dict()
    with (
        rlox.make("mappo", ENV_ID, env_backend="native_teams", **small) as other,
        pytest.raises(CheckpointError, match="env_backend"),
    ):
        other.load_state_dict(state)
