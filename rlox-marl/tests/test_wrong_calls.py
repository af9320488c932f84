"""Wrong envs and wrong calls are errors that name the agent, the step and the field."""

from __future__ import annotations

import re
from functools import partial

import gymnasium
import numpy as np
import pytest
import rlox
from games import Game
from gymnasium import spaces
from pettingzoo import AECEnv
from rlox.errors import EnvError, MissingDependencyError, RloxError, SpaceError
from rlox_marl.envs import PettingZooVecEnv, SimpleSpreadVecEnv
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import MAPPO
from rlox_marl.qmix import QMIX

ZEROS = np.zeros(2, np.float32)
BOX = spaces.Box(-1, 1, (2,), np.float32)


class Team(Game):
    """Two agents for three steps; ``changes`` of the second step's returns break it."""

    def __init__(self, change=None, reset_change=None, action=None, masks=False, state=False):
        super().__init__(["a", "b"], BOX, action or spaces.Discrete(3))
        self._change, self._reset_change, self._masks = change, reset_change, masks
        if state:
            self.state_space = BOX

    def reset(self, seed=None, options=None):
        self._t = 0
        self.agents = ["a", "b"]
        parts = {"obs": {"a": ZEROS, "b": ZEROS}, "infos": self._infos()}
        if self._reset_change:
            self._reset_change(self, parts)
        return tuple(parts.values())

    def step(self, actions):
        self._t += 1
        answer = self.answer(self.all(ZEROS), self.all(1.0), self._t == 3)
        parts = dict(zip(("obs", "rewards", "terminations", "truncations"), answer, strict=False))
        parts["infos"] = self._infos()
        if self._change and self._t == 2:
            self._change(self, parts)
        return tuple(parts.values())

    def _infos(self):
        mask = {"action_mask": np.ones(3, np.int8)} if self._masks else {}
        return {"a": dict(mask), "b": dict(mask)}


def put(field, agent, value):
    """Return a change of one agent's value in one field."""
    return lambda env, parts: parts[field].update({agent: value})


def drop(field, agent):
    """Return a change that leaves an agent out of one field."""
    return lambda env, parts: parts[field].pop(agent)


def whole(field, value):
    """Return a change to a whole field."""
    return lambda env, parts: parts.update({field: value})


def agents(value):
    """Return a change to ``env.agents``."""
    return lambda env, parts: setattr(env, "agents", value)


def change_space(env, parts):
    """Give the agents a different space."""
    env._spaces = spaces.Box(-2, 2, (2,), np.float32), env._spaces[1]


NAN = np.array([0, np.nan], np.float32)

STEPS = [
    (drop("obs", "b"), "the observation of agent 'b' in step 2 of env 0 is missing"),
    (drop("rewards", "a"), "the reward of agent 'a' in step 2 of env 0 is missing"),
    (drop("terminations", "a"), "terminations of agent 'a' in step 2 of env 0 is missing"),
    (put("obs", "c", ZEROS), "the observation of agent 'c' in step 2 of env 0 was given, but"),
    (put("obs", "a", NAN), "the observation of agent 'a' in step 2 of env 0 is not finite"),
    (put("obs", "a", ZEROS + 3), "the observation of agent 'a' in step 2 of env 0 lies outside"),
    (put("obs", "b", np.zeros(3)), r"agent 'b' in step 2 of env 0 has shape (3,), expected (2,)"),
    (put("obs", "b", np.array(["x", "y"])), "agent 'b' in step 2 of env 0 has dtype <U1"),
    (put("rewards", "b", np.nan), "the reward of agent 'b' in step 2 of env 0 must be finite"),
    (put("rewards", "b", None), "the reward of agent 'b' in step 2 of env 0 must be one number"),
    (
        put("terminations", "a", "no"),
        "terminations of agent 'a' in step 2 of env 0 must be True or",
    ),
    (put("terminations", "a", True), "env.agents in step 2 of env 0 still holds 'a'"),
    (agents(["a"]), "env.agents in step 2 of env 0 lost 'b', which neither terminated nor was"),
    (agents(["a", "b", "c"]), "holds 'c', which is not in possible_agents (a, b)"),
    (agents(["a", "b", "b"]), "env.agents in step 2 of env 0 holds 'b' twice"),
    (agents({"a": 1}), "env.agents in step 2 of env 0 must be a list, got dict"),
    (whole("rewards", 1.0), "the reward in step 2 of env 0 must be a dict by agent, got float"),
    (whole("infos", []), "infos in step 2 of env 0 must be a dict by agent, got list"),
    (lambda env, parts: parts.pop("infos"), "env.step returned in step 2 of env 0 must be (obs"),
    (put("infos", "a", {"action_mask": np.ones(3)}), "was given, but not at the first reset"),
    (put("obs", "b", [[1.0], [1.0, 2.0]]), "agent 'b' in step 2 of env 0 is not an array"),
]


MASKS = [
    (put("infos", "b", {}), "the action mask of agent 'b' in step 2 of env 0 is missing"),
    (put("infos", "b", {"action_mask": "x"}), "the action mask of agent 'b' in step 2 of env 0"),
]


@pytest.mark.parametrize(
    ("change", "text", "masks"),
    [*((*row, False) for row in STEPS), *((*row, True) for row in MASKS)],
    ids=[text[:60] for _, text in STEPS + MASKS],
)
def test_wrong_step_is_refused(change, text, masks) -> None:
    """The second step of the env's first episode is wrong."""
    env = PettingZooVecEnv(Team(change, masks=masks))
    env.reset_all()
    right = {"group_0": np.zeros((1, 2), np.int64)}
    env.step_all(right)
    with pytest.raises(EnvError, match=re.escape(text)):
        env.step_all(right)


RESETS = [
    (whole("obs", None), "the observation in the reset of env 0 must be a dict by agent"),
    (agents([]), "env.agents in the reset of env 0 is empty"),
    (change_space, "observation_space of agent 'a' in the reset of env 0 changed from Box(-1.0"),
    (
        lambda env, parts: setattr(env, "possible_agents", ["a", "b", "c"]),
        "possible_agents in the reset of env 0 changed",
    ),
]


@pytest.mark.parametrize(("change", "text"), RESETS, ids=[text[:40] for _, text in RESETS])
def test_wrong_reset_is_refused(change, text) -> None:
    """The first observations, agents and spaces are checked."""
    with pytest.raises(EnvError, match=re.escape(text)):
        PettingZooVecEnv(Team(reset_change=change)).reset_all()


def without(name):
    """Return a team that lacks an attribute."""
    env = Team()
    delattr(env, name)
    return env


def with_(**attributes):
    """Return a team with other attributes."""
    env = Team()
    for name, value in attributes.items():
        setattr(env, name, value)
    return env


def always(env):
    """Return a callable that always returns the same env."""
    return lambda: env


def in_turn(*envs):
    """Return a callable that returns one env after the other."""
    waiting = iter(envs)
    return lambda: next(waiting)


class Iterated(Team):
    """Looks like an AEC env, but is not one."""

    def agent_iter(self):
        """Nothing."""


BUILDS = [
    (lambda: PettingZooVecEnv(without("possible_agents")), "has no list possible_agents"),
    (lambda: PettingZooVecEnv(with_(possible_agents=[])), "possible_agents is empty"),
    (lambda: PettingZooVecEnv(with_(possible_agents=["a", "a"])), "holds 'a' twice"),
    (lambda: PettingZooVecEnv(with_(possible_agents=[1, 2])), "must hold names, got 1"),
    (lambda: PettingZooVecEnv(with_(_spaces=(None, BOX))),
     "observation_space('a') must be a gymnasium.Space"),
    (lambda: PettingZooVecEnv(with_(state_space=3)),
     "state_space must be a space of arrays, got 3"),
    (lambda: PettingZooVecEnv(gymnasium.Env()), "is a gymnasium env of one agent"),
    (lambda: PettingZooVecEnv(lambda: None), "must be a PettingZoo parallel or AEC env, got None"),
    (lambda: PettingZooVecEnv(Iterated()), "has agent_iter but is not a pettingzoo.AECEnv"),
    (lambda: PettingZooVecEnv(3), "env must be an id, a callable that makes"),
    (lambda: PettingZooVecEnv(Team(), 2), "one env cannot serve as n_envs = 2 copies"),
    (lambda: PettingZooVecEnv(Team(), env_kwargs={"x": 1}), "cannot reach an env that is built"),
    (lambda: PettingZooVecEnv(Team, 0), "n_envs must be an integer of at least 1, got 0"),
    (lambda: PettingZooVecEnv(always(Team()), 2), "returned the same Team more than once"),
    (lambda: PettingZooVecEnv(in_turn(Team(), Team(action=spaces.Discrete(4))), 2),
     "env 1 has other agents or spaces than env 0"),
    (lambda: PettingZooVecEnv("sisl/multiwalker_v8"), "there is sisl/multiwalker-v9"),
    (lambda: PettingZooVecEnv("mpe2/simple_spred_v3"), "did you mean 'mpe2/simple_spread_v3'"),
    (lambda: PettingZooVecEnv("nowhere:x-v0"), "No module named 'nowhere'"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "text"), BUILDS, ids=[text[:40] for _, text in BUILDS])
def test_env_that_cannot_be_built_is_refused(build, text) -> None:
    """The message has the reason and the remedy."""
    with pytest.raises(EnvError, match=re.escape(text)):
        build()


def test_spaces_without_arrays_are_refused() -> None:
    """As for one agent."""
    with pytest.raises(SpaceError, match="Box, Discrete"):
        PettingZooVecEnv(with_(_spaces=(spaces.Text(3), BOX)))
    with pytest.raises(SpaceError, match="actions must be Discrete"):
        PettingZooVecEnv(Team(action=spaces.Text(3)))


ACTIONS = [
    (None, {}, "actions has no group 'group_0'"),
    (None, np.zeros((1, 2)), "actions must be a dict by group (group_0), got ndarray"),
    (None, {"group_1": 0, "group_0": 0}, "actions has the group 'group_1'"),
    (None, {"group_0": np.zeros(2, int)}, "must have shape (1, 2), got (2,)"),
    (None, {"group_0": np.zeros((1, 2))}, "must have dtype int64, got float64"),
    (None, {"group_0": np.array([[0, 3]])}, "the action of agent 'b' in env 0 lies outside"),
    (BOX, {"group_0": np.full((1, 2, 2), np.nan)}, "the action of agent 'a' in env 0 lies outside"),
    (spaces.Dict(x=BOX), {"group_0": {"y": 0}}, "are not nested as their space"),
]


@pytest.mark.parametrize(("space", "given", "text"), ACTIONS, ids=[row[2][:50] for row in ACTIONS])
def test_wrong_actions_are_refused(space, given, text) -> None:
    """The error comes before any env is stepped."""
    env = PettingZooVecEnv(Team(action=space))
    env.reset_all()
    with pytest.raises(EnvError, match=re.escape(text)):
        env.step_all(given)


def test_step_before_reset_and_wrong_seeds_are_refused() -> None:
    """In every kind of vector env."""
    env = PettingZooVecEnv(Team, 2)
    with pytest.raises(EnvError, match="step_all was called before reset_all"):
        env.step_all({"group_0": np.zeros((2, 2), np.int64)})
    with pytest.raises(EnvError, match="1 seeds for 2 envs"):
        env.reset_all([1])
    with pytest.raises(EnvError, match=r"integers from 0 to .*, got -1"):
        env.reset_all([0, -1])


def test_the_state_may_leave_its_box_but_not_its_shape() -> None:
    """The state's bounds are not enforced; those of observations are."""
    env = Team(state=True)
    env.state = lambda: ZEROS + 1.01
    assert np.allclose(PettingZooVecEnv(env).reset_all()["state"], 1.01)
    env.state = lambda: 1 / 0
    with pytest.raises(EnvError, match=r"the state in .* with_state=False leaves it out"):
        PettingZooVecEnv(env).reset_all()
    assert PettingZooVecEnv(env, with_state=False).reset_all()["state"] is None
    env.state = lambda: np.zeros(3)
    with pytest.raises(EnvError, match=r"the state in the reset of env 0 has shape \(3,\)"):
        PettingZooVecEnv(env).reset_all()


class Turns(AECEnv):
    """Two agents taking turns, broken by ``change`` after the first turn."""

    metadata = {"name": "turns"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, change):
        self.possible_agents = ["a", "b"]
        self._change = change
        self._box, self._action = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._box

    def action_space(self, agent):
        return self._action

    def observe(self, agent):
        return ZEROS

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        for name in ("rewards", "_cumulative_rewards"):
            setattr(self, name, dict.fromkeys(self.agents, 0.0))
        for name in ("terminations", "truncations"):
            setattr(self, name, dict.fromkeys(self.agents, False))
        self.infos = {"a": {}, "b": {}}
        self.agent_selection = "a"

    def step(self, action):
        self.agent_selection = "b"
        self._change(self)


TURNS = [
    (lambda env: env.agents.remove("a"), "env.agents in step 1 of env 0 lost 'a'"),
    (lambda env: setattr(env, "agent_selection", "c"), "env.agent_selection in step 1 of env 0 is"),
    (lambda env: env._cumulative_rewards.pop("b"), "rewards of agent 'b' in step 1 of env 0 is"),
    (lambda env: env._cumulative_rewards.update(b=np.inf), "the reward of agent 'b' in step 1 of"),
    (lambda env: setattr(env, "observe", lambda agent: None), "the observation of agent '"),
]


@pytest.mark.parametrize(("change", "text"), TURNS, ids=[text[:40] for _, text in TURNS])
def test_wrong_turn_is_refused(change, text) -> None:
    """Errors of turn-based envs."""
    env = PettingZooVecEnv(Turns(change))
    env.reset_all()
    with pytest.raises(EnvError, match=re.escape(text)):
        env.step_all({"group_0": np.zeros((1, 2), np.int64)})


def test_without_pettingzoo_the_remedy_is_named(monkeypatch) -> None:
    """The command installs the extra."""
    monkeypatch.setitem(__import__("sys").modules, "pettingzoo", None)
    with pytest.raises(MissingDependencyError, match=r"pip install \"rlox-core\[marl\]\""):
        PettingZooVecEnv("sisl/multiwalker-v9")


@pytest.mark.parametrize(
    "make",
    [lambda: "mpe2/simple_spread_v3", lambda: SimpleSpreadVecEnv(1), Team, lambda: Team],
)
def test_algorithms_of_one_agent_name_all_that_take_teams(make) -> None:
    """The names come from the registry, not from a list in core."""
    names = "'independent_q', 'ippo', 'mappo', 'qmix' or 'vdn'"
    with pytest.raises(EnvError, match=f"several agents, so.*train it with {names}$"):
        rlox.make("ppo", env=make())
    teams = [name for name in rlox.list_algorithms() if rlox.spec(name).trains_teams]
    assert teams == ["independent_q", "ippo", "mappo", "qmix", "vdn"]


SPREAD = "mpe2/simple_spread_v3"
SMALL = {"n_envs": 2, "n_steps": 8, "batch_size": 24, "hidden": 8}
REPLAY = {"n_envs": 2, "hidden": 8, "buffer_size": 100, "learning_starts": 8}
SEEN = np.zeros(18, np.float32)


class Learned:
    """Algorithms that are built once, with their checkpoints."""

    def __init__(self, folder):
        self.mappo = MAPPO(SPREAD, seed=0, **SMALL)
        self.gru = MAPPO(SPREAD, seed=0, recurrent="gru", memory_size=8, **SMALL)
        self.qmix = QMIX(SPREAD, seed=0, **REPLAY)
        self.pair = IPPO(partial(Team, masks=True), seed=0, **SMALL)
        self.pair_file = str(folder / "pair.rlox")
        self.pair.save(self.pair_file)
        self.shown = SimpleSpreadVecEnv(2).reset_all(0)
        self.more = self.gru.predict_team(SimpleSpreadVecEnv(3).reset_all(0), state=None)[1]

    def with_(self, **fields):
        """Return the observations of two envs, with other fields."""
        return {**self.shown, **fields}


@pytest.fixture(name="learned", scope="module")
def fixture_learned(tmp_path_factory):
    """Yield the algorithms, and close them at the end."""
    learned = Learned(tmp_path_factory.mktemp("learned"))
    yield learned
    for one in (learned.mappo, learned.gru, learned.qmix, learned.pair):
        one.close()


CALLS = {
    "env_fn that returns nothing": (lambda _: MAPPO(env_fn=lambda: None), "None"),
    "schedule of nothing": (lambda _: MAPPO(SPREAD, schedules={"rate": float}), "named 'rate'"),
    "checkpoint of another team": (
     lambda x: IPPO.from_checkpoint(x.pair_file, env_id="mpe2/simple_crypto_v3", n_agents=None),
     "it holds the policies group_0, and the env's team has eve, group_1"),
    "state that is no state": (lambda x: x.gru.predict(SEEN, state=3),
     "state must be None or what predict returned with the last actions, got int"),
    "state of nobody": (lambda x: x.gru.predict(SEEN, state={"x": 1}), "got ['x']"),
    "state of another size": (lambda x: x.gru.predict(SEEN, state={"memory": np.zeros(3)}),
     "state must have shape (1, 16), got (3,)"),
    "state of several agents": (
     lambda x: x.gru.predict(np.zeros((2, 18)), agent_idx=[0, 1], state=None),
     "call predict once for each agent_idx"),
    "starts of another number": (
     lambda x: x.gru.predict(SEEN, state=None, episode_start=[True, False]),
     "episode_start must be one bool or 1"),
    "team without agents": (lambda x: x.mappo.predict({}), "obs must hold at least one agent of a"),
    "team without a field": (lambda x: x.mappo.predict_team({"obs": x.shown["obs"]}),
     "must return a dict with obs, active, masks, state; it has no active"),
    "team without a group": (lambda x: x.qmix.predict_team(x.with_(obs={})),
     "envs of the trained team, 'agent' of agent_0, agent_1, agent_2, show: obs['agent'] of"),
    "team of two": (lambda x: x.mappo.predict_team(x.with_(obs={"agent": np.zeros((2, 2, 18))})),
     "an array of shape (2, 3, 18) of numbers, got ndarray of shape (2, 2, 18)"),
    "team without its state": (lambda x: x.mappo.predict_team(x.with_(state=None)),
     "obs['state'] must have shape (2, 54)"),
    "value without a state": (lambda x: x.qmix.value(x.with_(state=None)),
     "obs['state'] must have shape (2, 54)"),
    "memory of other envs": (lambda x: x.gru.predict_team(x.shown, state=x.more),
     "the memory of policy 'agent' must have shape (6, 16), got (9, 16)"),
    "starts of other envs": (
     lambda x: x.gru.predict_team(x.shown, state=None, episode_start=[True]),
     "episode_start must have shape (2,), got (1,)"),
    "evaluation in another team": (lambda x: rlox.evaluate(x.mappo, Team, n_episodes=1),
     "obs must be what envs of the trained team, 'agent' of agent_0, agent_1, agent_2, show"),
    "evaluation in an env of one": (lambda x: rlox.evaluate(x.mappo, "CartPole-v1", n_episodes=1),
     "obs must have shape (18,)"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", CALLS)
def test_a_wrong_call_is_an_error_that_says_what(wrong, learned) -> None:
    """It is rlox's own, a ValueError or a TypeError, with these words."""
    call, words = CALLS[wrong]
    with pytest.raises((RloxError, ValueError, TypeError), match=re.escape(words)):
        call(learned)
