"""One table of wrong envs, options and calls: each error names the agent, the step or the field."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import partial

import numpy as np
import pytest
import rlox
import torch
from gymnasium import spaces
from rlox.errors import RloxError
from rlox_marl.envs import PettingZooProcesses, PettingZooVecEnv, SimpleSpreadVecEnv
from rlox_marl.independent_q import IndependentQ
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import MAPPO
from rlox_marl.matches import play_match
from rlox_marl.qmix import QMIX
from rlox_marl.vdn import VDN
from test_wrong_calls import Iterated, Team, agents, change_space, drop, put, whole, with_, without

SPREAD = "mpe2/simple_spread_v3"
SMALL = {"n_envs": 2, "n_steps": 8, "batch_size": 24, "hidden": 8}
REPLAY = {"n_envs": 2, "hidden": 8, "buffer_size": 100, "learning_starts": 8}
BOX = spaces.Box(-1, 1, (2,), np.float32)
SEEN = np.zeros(18, np.float32)
NAN = np.array([0, np.nan], np.float32)


class Learned:
    """Algorithms that are built once, with their checkpoints."""

    def __init__(self, folder):
        self.mappo = MAPPO(SPREAD, seed=0, **SMALL)
        self.gru = MAPPO(SPREAD, seed=0, recurrent="gru", memory_size=8, **SMALL)
        self.qmix = QMIX(SPREAD, seed=0, **REPLAY)
        self.pair = IPPO(partial(Team, masks=True), seed=0, **SMALL)
        self.mappo_file, self.qmix_file = str(folder / "mappo.rlox"), str(folder / "qmix.rlox")
        self.pair_file = str(folder / "pair.rlox")
        self.mappo.save(self.mappo_file)
        self.qmix.save(self.qmix_file)
        self.pair.save(self.pair_file)
        self.shown = SimpleSpreadVecEnv(2).reset_all(0)
        self.more = self.gru.predict_team(SimpleSpreadVecEnv(3).reset_all(0), state=None)[1]

    def with_(self, **fields):
        """Return what two envs show, with other fields."""
        return {**self.shown, **fields}


@pytest.fixture(name="learned", scope="module")
def fixture_learned(tmp_path_factory):
    """Return the algorithms, which are closed at the end."""
    learned = Learned(tmp_path_factory.mktemp("learned"))
    yield learned
    for one in (learned.mappo, learned.gru, learned.qmix, learned.pair):
        one.close()


def trained(change=None, **team):
    """Train on a team whose second step is wrong."""
    with IPPO(partial(Team, change, **team), seed=0, **SMALL) as algorithm:
        algorithm.train(16)


def begun(change):
    """Reset a team whose first reset is wrong."""
    PettingZooVecEnv(Team(reset_change=change)).reset_all()


def in_processes(act):
    """Step two teams in processes of their own, after something was done with them."""
    env = PettingZooProcesses(Sleeping, 2, seed=0, step_timeout=2.0)
    try:
        env.reset_all()
        act(env)
        env.step_all({"group_0": np.zeros((2, 2), np.int64)})
    finally:
        env.close()


class Sleeping(Team):
    """A step with the choice 2 of agent a takes a minute."""

    def step(self, actions):
        if actions["a"] == 2:
            time.sleep(60)
        return super().step(actions)


def stepped(actions, space=None):
    """Step a team with actions."""
    env = PettingZooVecEnv(Team(action=space))
    env.reset_all()
    env.step_all({"group_0": actions} if not isinstance(actions, dict) else actions)


STEP_2 = "of agent 'b' in step 2 of env 0"

ENVS = {
    "agent missing in observations": (lambda _: trained(drop("obs", "b")), STEP_2 + " is missing"),
    "agent missing in rewards": (lambda _: trained(drop("rewards", "b")), "the reward " + STEP_2),
    "agent missing in terminations": (
        lambda _: trained(drop("terminations", "b")),
        "terminations " + STEP_2,
    ),
    "agent missing in truncations": (
        lambda _: trained(drop("truncations", "b")),
        "truncations " + STEP_2,
    ),
    "agent that nobody announced": (
        lambda _: trained(agents(["a", "b", "c"])),
        "env.agents in step 2 of env 0 holds 'c', which is not in possible_agents (a, b)",
    ),
    "agent that vanishes": (
        lambda _: trained(agents(["a"])),
        "env.agents in step 2 of env 0 lost 'b'",
    ),
    "numbers for names of agents": (lambda _: trained(agents([0, 1])), "step 2 of env 0 holds '0'"),
    "keys that are numbers": (
        lambda _: trained(whole("obs", {0: NAN, 1: NAN})),
        "the observation of agent '0' in step 2 of env 0 was given",
    ),
    "observation outside its space": (
        lambda _: trained(put("obs", "b", np.full(2, 3.0))),
        "the observation " + STEP_2 + " lies outside its space",
    ),
    "observation that is NaN": (lambda _: trained(put("obs", "b", NAN)), STEP_2 + " is not finite"),
    "observation of another shape": (
        lambda _: trained(put("obs", "b", np.zeros(3))),
        STEP_2 + " has shape (3,), expected (2,)",
    ),
    "observation that is ragged": (
        lambda _: trained(put("obs", "b", [[1.0], [1.0, 2.0]])),
        STEP_2 + " is no array",
    ),
    "observation that is None": (
        lambda _: trained(put("obs", "b", None)),
        STEP_2 + " has shape ()",
    ),
    "reward that is NaN": (
        lambda _: trained(put("rewards", "b", np.nan)),
        STEP_2 + " must be fini",
    ),
    "reward that is text": (
        lambda _: trained(put("rewards", "b", "1")),
        STEP_2 + " must be one number, got str",
    ),
    "reward that is complex": (
        lambda _: trained(put("rewards", "b", 1j)),
        STEP_2 + " must be one number, got complex",
    ),
    "flag that is text": (
        lambda _: trained(put("truncations", "b", "no")),
        "truncations " + STEP_2 + " must be True or False",
    ),
    "mask that is all false": (
        lambda _: trained(put("infos", "b", {"action_mask": np.zeros(3)}), masks=True),
        "the action mask " + STEP_2,
    ),
    "mask of another length": (
        lambda _: trained(put("infos", "b", {"action_mask": np.ones(4)}), masks=True),
        "the action mask " + STEP_2,
    ),
    "mask that is text": (
        lambda _: trained(put("infos", "b", {"action_mask": "x"}), masks=True),
        "the action mask " + STEP_2,
    ),
    "mask that is left out": (
        lambda _: trained(put("infos", "b", {}), masks=True),
        "the action mask " + STEP_2 + " is missing",
    ),
    "four values of step": (
        lambda _: trained(lambda env, parts: parts.pop("infos")),
        "what env.step returned in step 2 of env 0",
    ),
    "spaces that change": (
        lambda _: begun(change_space),
        "observation_space of agent 'a' in the reset of env 0 changed",
    ),
    "agents that change": (
        lambda _: begun(lambda env, parts: setattr(env, "possible_agents", ["a", "c"])),
        "possible_agents in the reset of env 0 changed",
    ),
    "reset without infos": (
        lambda _: begun(lambda env, parts: parts.pop("infos")),
        "what env.reset returned in the reset of env 0",
    ),
    "no agent at the beginning": (lambda _: begun(agents([])), "env.agents in the reset of env 0"),
    "worker that is killed": (
        lambda _: in_processes(lambda env: os.kill(env.pids[1], signal.SIGKILL)),
        "the process of env 1 has died",
    ),
    "worker that hangs": (
        lambda _: in_processes(lambda env: env.step_all({"group_0": np.array([[0, 0], [2, 0]])})),
        "the process of env 1 has not answered in",
    ),
    "no possible_agents": (
        lambda _: MAPPO(lambda: without("possible_agents")),
        "has no list possible_agents",
    ),
    "possible_agents twice": (
        lambda _: MAPPO(with_(possible_agents=["a", "a"])),
        "possible_agents holds 'a' twice",
    ),
    "AEC passed as parallel": (
        lambda _: MAPPO(Iterated()),
        "has agent_iter but is no pettingzoo.AE",
    ),
    "no space of an agent": (
        lambda _: MAPPO(with_(_box=None)),
        "observation_space('a') must be a gymnasium.Space",
    ),
    "state space without a state": (
        lambda _: PettingZooVecEnv(Team(state=True)).reset_all(),
        "the state in the reset of env 0 is missing",
    ),
}

OPTIONS = {
    "no env": (lambda _: MAPPO(), "there is no env; pass its id"),
    "env_fn that returns nothing": (
        lambda _: MAPPO(env_fn=lambda: None),
        "None",
    ),
    "n_agents that contradicts": (
        lambda _: MAPPO(SPREAD, n_agents=2),
        "n_agents is 2, but the env has 3 agents (agent_0, agent_1, agent_2)",
    ),
    "n_agents of none": (lambda _: MAPPO(SPREAD, n_agents=0), "n_agents: expected"),
    "critic without a state": (
        lambda _: MAPPO(Team, critic="state"),
        "critic='state' needs an env with a state",
    ),
    "agent left out of the shares": (
        lambda _: MAPPO(SPREAD, share_parameters="agent_0,agent_1"),
        "the agents are agent_0, agent_1, agent_2",
    ),
    "option with a typo": (lambda _: MAPPO(SPREAD, critics="state"), "did you mean 'critic'?"),
    "kwarg that the env does not take": (
        lambda _: MAPPO(SPREAD, env_kwargs={"agents": 3}),
        f"env '{SPREAD}' cannot be built",
    ),
    "one module for a team": (
        lambda _: MAPPO(SPREAD, policy=torch.nn.Linear(3, 3)),
        "policy must be a callable (observation_space, action_space) -> module",
    ),
    "values of one agent": (lambda _: QMIX("CartPole-v1"), "learns in envs of several agents"),
    "values of real-valued actions": (
        lambda _: VDN(partial(Team, action=BOX)),
        "actions must be Discrete, and those of a, b are Box",
    ),
    "pool of three": (
        lambda _: MAPPO(SPREAD, opponents="even"),
        "two agents with equal spaces",
    ),
    "schedule of nothing": (lambda _: MAPPO(SPREAD, schedules={"rate": float}), "named 'rate'"),
    "checkpoint of another algorithm": (
        lambda x: IndependentQ.from_checkpoint(x.qmix_file),
        "holds the algorithm 'qmix', not 'independent_q'",
    ),
    "checkpoint of another number of agents": (
        lambda x: MAPPO.from_checkpoint(x.mappo_file, env_id=Team),
        "n_agents is 3, but the env has 2 agents (a, b)",
    ),
    "checkpoint of another team": (
        lambda x: IPPO.from_checkpoint(x.pair_file, env_id="mpe2/simple_crypto_v3", n_agents=None),
        "it holds the policies group_0, and the env's team has eve, group_1",
    ),
}

CALLS = {
    "agent by name": (lambda x: x.mappo.predict(SEEN, agent_idx="agent_0"), "got 'agent_0'"),
    "agent that is not there": (
        lambda x: x.mappo.predict(SEEN, agent_idx=3),
        "agent_idx must lie in [0, 2], got 3; the agents are agent_0, agent_1, agent_2",
    ),
    "agents of another number": (
        lambda x: x.qmix.predict(np.zeros((2, 18)), agent_idx=[0, 1, 2]),
        "one row for each of the 3 numbers in agent_idx",
    ),
    "observation of another size": (lambda x: x.mappo.predict(np.zeros(3)), "obs must have shape"),
    "dict for an array": (lambda x: x.qmix.predict({"a": SEEN}), "got a dict of ['a']"),
    "mask of another size": (
        lambda x: x.mappo.predict(SEEN, action_masks=np.ones(4)),
        "action masks must have shape (1, 5)",
    ),
    "mask that forbids all": (
        lambda x: x.mappo.predict(SEEN, action_masks=np.zeros(5)),
        "forbids every choice",
    ),
    "state that is no state": (
        lambda x: x.gru.predict(SEEN, state=3),
        "state must be None or what predict returned with the last actions, got int",
    ),
    "state of nobody": (lambda x: x.gru.predict(SEEN, state={"x": 1}), "got ['x']"),
    "state of another size": (
        lambda x: x.gru.predict(SEEN, state={"memory": np.zeros(3)}),
        "state must have shape (1, 16), got (3,)",
    ),
    "state of several agents": (
        lambda x: x.gru.predict(np.zeros((2, 18)), agent_idx=[0, 1], state=None),
        "call predict once for each agent_idx",
    ),
    "starts of another number": (
        lambda x: x.gru.predict(SEEN, state=None, episode_start=[True, False]),
        "episode_start must be one bool or 1",
    ),
    "team of a list": (
        lambda x: x.mappo.predict_team([1]),
        "a dict with obs, active, masks, state",
    ),
    "team without a field": (
        lambda x: x.mappo.predict_team({"obs": x.shown["obs"]}),
        "obs must be what envs show, a dict with obs, active, masks, state, got ['obs']",
    ),
    "team without a group": (
        lambda x: x.qmix.predict_team(x.with_(obs={})),
        "obs['obs'] must be a dict by group, 'agent' of agent_0, agent_1, agent_2, got []",
    ),
    "team without the active": (
        lambda x: x.mappo.predict_team(x.with_(active={})),
        "obs['active'] must be a dict by group",
    ),
    "team of two": (
        lambda x: x.mappo.predict_team(x.with_(obs={"agent": np.zeros((2, 2, 18))})),
        "must have shape (2, 3, 18) for the agents agent_0, agent_1, agent_2, got (2, 2, 18)",
    ),
    "team without its state": (
        lambda x: x.mappo.predict_team(x.with_(state=None)),
        "obs['state'] must have shape (2, 54)",
    ),
    "value without a state": (
        lambda x: x.qmix.value(x.with_(state=None)),
        "obs['state'] must have shape (2, 54)",
    ),
    "memory of other envs": (
        lambda x: x.gru.predict_team(x.shown, state=x.more),
        "the memory of policy 'agent' must have shape (6, 16), got (9, 16)",
    ),
    "memory of nobody": (
        lambda x: x.gru.predict_team(x.shown, state={"memory": {}}),
        "the memory of policy 'agent' must have shape (6, 16), got None",
    ),
    "starts of other envs": (
        lambda x: x.gru.predict_team(x.shown, state=None, episode_start=[True]),
        "episode_start must have shape (2,), got (1,)",
    ),
    "evaluation in another team": (
        lambda x: rlox.evaluate(x.mappo, Team, n_episodes=1),
        "must be a dict by group, 'agent' of agent_0, agent_1, agent_2, got ['group_0']",
    ),
    "evaluation in an env of one": (
        lambda x: rlox.evaluate(x.mappo, "CartPole-v1", n_episodes=1),
        "obs must have shape (18,)",
    ),
    "match of three": (
        lambda x: play_match(x.mappo, x.mappo, SPREAD, n_games=2),
        "a match needs an env of two agents, got agent_0, agent_1, agent_2",
    ),
    "no env steps": (lambda x: x.mappo.train(0), "total_timesteps must be at least 1, got 0"),
    "actions of no group": (lambda _: stepped({}), "actions has no group 'group_0'"),
    "actions of another shape": (lambda _: stepped(np.zeros(2, int)), "must have shape (1, 2)"),
    "actions of another dtype": (lambda _: stepped(np.zeros((1, 2))), "must have dtype int64"),
    "action outside its space": (
        lambda _: stepped(np.array([[0, 3]])),
        "the action of agent 'b' in env 0 lies outside its space",
    ),
    "action that is NaN": (
        lambda _: stepped(np.array([[[0, 0], [0, np.nan]]], np.float32), BOX),
        "the action of agent 'b' in env 0 lies outside its space",
    ),
}

TABLE = ENVS | OPTIONS | CALLS


@pytest.mark.parametrize("wrong", TABLE)
def test_a_wrong_call_is_an_error_that_says_what(wrong, learned) -> None:
    """It is of rlox, or a ValueError or TypeError, with these words."""
    call, words = TABLE[wrong]
    with pytest.raises((RloxError, ValueError, TypeError), match=re.escape(words)):
        call(learned)


def test_the_table_is_long() -> None:
    """No case was lost to another of its name."""
    assert len(TABLE) == len(ENVS) + len(OPTIONS) + len(CALLS) >= 60
