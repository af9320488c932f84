"""Exported policies of teams act as the algorithms that they come from, without torch."""

import json
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest
import rlox
from rlox.deployment import LoadedPolicy, LoadedTeam
from rlox.errors import CheckpointError, EnvError, ExportError

pytest.importorskip("rlox_marl")
pytest.importorskip("pettingzoo")
from errand_team import BOTH, NESTED, Errand
from exportables import changed, require_same
from rlox.envs import make_team_env

STEPS, N_ENVS = 200, 10
POLICIES = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1, "hidden": 16}
VALUES = {
    "n_envs": 2, "learning_starts": 8, "train_freq": 8, "batch_size": 4, "hidden": 16,
    "buffer_size": 200, "steps_per_iteration": 32,
}  # fmt: skip
GRU = {"recurrent": "gru", "memory_size": 8}
SEEN = {"normalize_observations": True, "frame_stack": 3}
NESTED_TEAM = {"observed": NESTED}
MASKED = {"masks": True}
CASES = {
    "mappo": ("mappo", MASKED, POLICIES),
    "mappo-gru-frames": ("mappo", NESTED_TEAM | MASKED, POLICIES | SEEN | GRU),
    "mappo-lstm": (
        "mappo", MASKED,
        POLICIES | GRU | {"recurrent": "lstm", "normalize_values": "popart", "critic": "local"},
    ),
    "mappo-agents": ("mappo", NESTED_TEAM, POLICIES | {"share_parameters": "agent"}),
    "ippo-both": ("ippo", {"acted": BOTH}, POLICIES | GRU),
    "qmix-gru": ("qmix", MASKED, VALUES | GRU),
    "vdn-gru": ("vdn", NESTED_TEAM, VALUES | GRU),
    "independent_q": ("independent_q", NESTED_TEAM, VALUES | {"share_parameters": "agent"}),
}  # fmt: skip


def make(case):
    """Return a trained algorithm, whose policies prefer something, and what makes its env."""
    name, env, options = CASES[case]

    def make_env():
        return Errand(**env)

    algorithm = rlox.make(name, env=make_env, seed=1, **options)
    algorithm.train(64)
    rng = np.random.default_rng(7)
    networks = algorithm.network.agents if name in REPLAYED else algorithm.policies.values()
    for network in networks:
        for parameter in network.parameters():
            parameter.data.add_(parameter.data.new_tensor(rng.normal(0, 0.1, parameter.shape)))
    return algorithm, make_env


REPLAYED = ("qmix", "vdn", "independent_q")


def exported(algorithm, folder):
    """Return the policies after a way through a file."""
    path = folder / "team.rlox"
    rlox.export(algorithm, path)
    team = rlox.load_policy(path)
    assert isinstance(team, LoadedTeam)
    return team


def of_rows(value, rows):
    """Return rows of a batch that is nested in dicts."""
    if isinstance(value, Mapping):
        return {key: of_rows(leaf, rows) for key, leaf in value.items()}
    return value[rows]


@pytest.mark.parametrize("case", CASES)
def test_actions_are_the_algorithms(case, tmp_path):
    """Env steps with deaths, late joiners, masks and memory: all of the team, and each."""
    algorithm, make_env = make(case)
    team = exported(algorithm, tmp_path)
    assert list(team.agents) == ["scout_0", "tank", "scout_1"]
    env = make_team_env(make_env, n_envs=N_ENVS)
    shown, starts = env.reset_all(5), np.ones(N_ENVS, np.bool_)
    state = None
    own = None
    different = set()
    for _ in range(STEPS // N_ENVS):
        expected, state = algorithm.predict_team(shown, state=state, episode_start=starts)
        found, own = team.predict_team(shown, state=own, episode_start=starts)
        active = shown["active"]
        for group, actions in expected.items():
            acting = of_rows(actions, active[group])
            require_same(of_rows(found[group], active[group]), acting)
            different.add(str(acting))
        shown = env.step_all(expected)
        starts = shown["episode_ended"]
    assert len(different) > 2
    env.close()
    algorithm.close()


@pytest.mark.parametrize(
    ("case", "suffix"), [("mappo-gru-frames", "onnx"), ("ippo-both", "rlox"), ("qmix-gru", "onnx")]
)
def test_one_agents_file_acts_as_the_agent(case, suffix, tmp_path):
    """It is a policy like any other, in both formats; so are the agents of a loaded team."""
    if suffix == "onnx":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    algorithm, make_env = make(case)
    team = exported(algorithm, tmp_path)
    for number, agent in enumerate(team.agents):
        path = tmp_path / f"{agent}.{suffix}"
        rlox.export(team if number else algorithm, path, agent=agent)
        alone = rlox.load_policy(path)
        assert isinstance(alone, LoadedPolicy)
        space = make_env().observation_space(agent)
        space.seed(number)
        states = [None] * 4
        rng = np.random.default_rng(number)
        for _ in range(20):
            obs = space.sample()
            begins = bool(rng.random() < 0.1)
            memory = {"episode_start": begins}
            who = {"agent_idx": number}
            expected, states[0] = algorithm.predict(obs, state=states[0], **who, **memory)
            by_number, states[1] = team.predict(obs, state=states[1], **who, **memory)
            by_name, states[2] = team.agents[agent].predict(obs, state=states[2], **memory)
            from_file, states[3] = alone.predict(obs, state=states[3], **memory)
            for found in (by_number, by_name, from_file):
                require_same(found, expected)
    algorithm.close()


@pytest.mark.parametrize("case", ["mappo", "ippo-both"])
def test_a_batch_of_several_agents(case, tmp_path):
    """Each row is answered by its own agent, nested actions too."""
    algorithm, _ = make(case)
    team = exported(algorithm, tmp_path)
    numbers = np.array([0, 2, 2, 0, 2])
    obs = np.random.default_rng(0).uniform(-3, 3, (5, 4)).astype(np.float32)
    require_same(team.predict(obs, agent_idx=numbers), algorithm.predict(obs, agent_idx=numbers))
    named = dict(zip(team.agents, obs, strict=False))
    require_same(team.predict(named), algorithm.predict(named))
    for acting in (team, algorithm):
        with pytest.raises(ValueError, match="one row for each of the 5 numbers in agent_idx"):
            acting.predict(obs[:3], agent_idx=numbers)
        with pytest.raises(ValueError, match=r"agent_idx must lie in \[0, 2\], got 3; the agents"):
            acting.predict(obs[0], agent_idx=3)
    algorithm.close()


BLOCKED = """
import sys, json
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "rlox_onpolicy", "rlox_native"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import numpy as np, rlox
team = rlox.load_policy(sys.argv[1])
rng, states, actions = np.random.default_rng(0), [None] * 3, []
for step in range(20):
    for number in range(3):
        obs = rng.normal(size=18)
        action, states[number] = team.predict(obs, agent_idx=number, state=states[number])
        actions.append(action)
print(json.dumps({"actions": actions, "loaded": "torch" in sys.modules}))
"""


def test_a_team_acts_where_torch_is_not(tmp_path):
    """With a memory; and where it is, an evaluation of the file is that of the algorithm."""
    spread = "mpe2/simple_spread_v3"
    options = POLICIES | GRU | {"normalize_observations": True}
    algorithm = rlox.make("mappo", env=spread, seed=1, **options)
    algorithm.train(64)
    team = exported(algorithm, tmp_path)
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCKED, str(tmp_path / "team.rlox")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    rng, actions = np.random.default_rng(0), []
    states = [None] * 3
    for _ in range(20):
        for number in range(3):
            obs = rng.normal(size=18)
            action, states[number] = algorithm.predict(obs, agent_idx=number, state=states[number])
            actions.append(action)
    assert json.loads(made.stdout) == {"actions": actions, "loaded": False}
    ours = rlox.evaluate(team, spread, n_episodes=4).returns
    np.testing.assert_allclose(
        ours, rlox.evaluate(algorithm, spread, n_episodes=4).returns, atol=1e-5
    )
    with pytest.raises(EnvError, match="'scout': 2, 'tank': 1"):
        rlox.evaluate(team, Errand, n_episodes=1)
    algorithm.close()


def test_mistakes_are_errors(tmp_path):
    """One line each, which names the agents."""
    algorithm, _ = make("mappo")
    team = exported(algorithm, tmp_path)
    assert "mappo" in repr(team)
    names = "scout_0, tank, scout_1"
    with pytest.raises(ExportError, match=f"holds one policy, and the agents are {names}"):
        rlox.export(algorithm, tmp_path / "team.onnx")
    with pytest.raises(ExportError, match=f"no agent 'scout_7'; the agents are {names}"):
        rlox.export(algorithm, tmp_path / "one.rlox", agent="scout_7")
    with pytest.raises(ExportError, match="deterministic"):
        team.predict(np.zeros(4), deterministic=False)
    with pytest.raises(ExportError, match="deterministic=True"):
        team.predict_team({}, deterministic=False)
    single = rlox.make("ppo", env="CartPole-v1", seed=1)
    with pytest.raises(ExportError, match="of one agent, got agent='a'"):
        rlox.export(single, tmp_path / "one.rlox", agent="a")
    remembering, _ = make("mappo-gru-frames")
    with pytest.raises(ValueError, match="state is of one agent"):
        exported(remembering, tmp_path).predict(np.zeros((2, 4)), agent_idx=[0, 2], state=None)
    for one in (algorithm, single, remembering):
        one.close()


HOSTILE = {
    "policy": lambda team: team["agents"].update(tank=["nobody", 0]),
    "number": lambda team: team["agents"].update(scout_0=["scout", 10**12]),
    "groups": lambda team: team["groups"].update(scout=["scout_0"]),
    "agents": lambda team: team["agents"].pop("tank"),
    "space": lambda team: team["policies"]["scout"].update(
        observation_space={"kind": "multi_binary", "shape": [10**12]}
    ),
}


def test_hostile_files_are_refused(tmp_path):
    """Before anything large is made."""
    algorithm, _ = make("mappo")
    exported(algorithm, tmp_path)
    algorithm.close()
    path = tmp_path / "team.rlox"
    content = path.read_bytes()
    for change in HOSTILE.values():
        path.write_bytes(changed(content, lambda header, change=change: change(header["team"])))
        with pytest.raises(CheckpointError, match="is not a policy file or is damaged"):
            rlox.load_policy(path)
