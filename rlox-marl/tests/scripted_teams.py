"""Scripted envs of several agents, and slow oracles of N such envs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import torch
from gymnasium import spaces
from hypothesis import strategies as st
from pettingzoo import AECEnv, ParallelEnv

AGENTS = ["scout_0", "scout_1", "tank"]
N_ACTIONS = {"scout_0": 3, "scout_1": 3, "tank": 2}


@dataclass(frozen=True)
class Life:
    """An agent's time in an episode: from step ``joins`` to step ``ends``."""

    joins: int
    ends: int
    how: str


def seen(agent, episode, step, action):
    """Return an agent's observation."""
    return [float(episode), float(step), float(AGENTS.index(agent)), float(action)]


def paid(agent, step, action):
    """Return an agent's reward for its action in a step."""
    return 10.0 * step + AGENTS.index(agent) + 0.25 * action


def mask_of(agent, episode, step):
    """Return the mask of possible actions after a step."""
    return [True] + [(episode + step + i) % 2 == 0 for i in range(N_ACTIONS[agent] - 1)]


def observation_space(agent):
    """Return the space; the tank's mask is in its observations, the scouts' are in infos."""
    numbers = spaces.Box(-1000, 1000, (4,), np.float32)
    if agent != "tank":
        return numbers
    return spaces.Dict({"numbers": numbers, "action_mask": spaces.MultiBinary(2)})


class ScriptedParallel(ParallelEnv):
    """Agents live as their script says, in dicts of changing order.

    Args:
        episodes: one dict of lives by agent per episode, repeated.
    """

    metadata = {"name": "scripted"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, episodes):
        self.possible_agents = list(AGENTS)
        self.state_space = spaces.Box(-1000, 1000, (3,), np.float32)
        self._observation = {agent: observation_space(agent) for agent in AGENTS}
        self._action = {agent: spaces.Discrete(n) for agent, n in N_ACTIONS.items()}
        self._episodes = episodes
        self._episode = -1
        self.seeds = []
        self.closed = 0

    def observation_space(self, agent):
        return self._observation[agent]

    def action_space(self, agent):
        return self._action[agent]

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self._episode += 1
        self._t = 0
        lives = self._episodes[self._episode % len(self._episodes)]
        self._lives = lives
        self.agents = [agent for agent, life in lives.items() if life.joins == 0]
        return self._views(self.agents, {})

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self._t += 1
        flags = {"terminated": {}, "truncated": {}}
        before = list(self.agents)
        for agent in before:
            life = self._lives[agent]
            ends = life.ends == self._t
            flags["terminated"][agent] = ends and life.how in ("terminated", "both")
            flags["truncated"][agent] = ends and life.how in ("truncated", "both")
            if ends:
                self.agents.remove(agent)
        if self.agents:
            self.agents += [a for a, life in self._lives.items() if life.joins == self._t]
        self.agents = self._shuffled(self.agents)
        rewards = {agent: paid(agent, self._t, actions[agent]) for agent in before}
        obs, infos = self._views({*before, *self.agents}, actions)
        return (
            obs,
            {agent: rewards[agent] for agent in self._shuffled(rewards)},
            flags["terminated"],
            {agent: flags["truncated"][agent] for agent in self._shuffled(before)},
            infos,
        )

    def state(self):
        return np.array([self._episode, self._t, len(self.agents)], np.float32)

    def close(self):
        self.closed += 1

    def _shuffled(self, agents):
        agents = sorted(agents)
        random.Random(self._episode * 100 + self._t).shuffle(agents)
        return agents

    def _views(self, agents, actions):
        obs, infos = {}, {}
        for agent in self._shuffled(agents):
            numbers = np.array(
                seen(agent, self._episode, self._t, actions.get(agent, 0)), np.float32
            )
            mask = np.array(mask_of(agent, self._episode, self._t), np.int8)
            if agent == "tank":
                obs[agent], infos[agent] = {"numbers": numbers, "action_mask": mask}, {}
            else:
                obs[agent], infos[agent] = numbers, {"action_mask": mask}
        return obs, infos


@dataclass
class Row:
    """Expected results of one env at one time, by agent; missing agents have zeros."""

    obs: dict = field(default_factory=dict)
    active: set = field(default_factory=set)
    masks: dict = field(default_factory=dict)
    state: list = field(default_factory=list)
    rewards: dict = field(default_factory=dict)
    terminated: set = field(default_factory=set)
    truncated: set = field(default_factory=set)
    final_obs: dict = field(default_factory=dict)
    final_state: list = field(default_factory=list)
    final_masks: dict = field(default_factory=dict)
    ended: bool = False


def begin(lives, episode):
    """Return the row for an episode's first observations."""
    alive = [agent for agent, life in lives.items() if life.joins == 0]
    return Row(
        obs={a: seen(a, episode, 0, 0) for a in alive},
        active=set(alive),
        masks={a: mask_of(a, episode, 0) for a in alive},
        state=[episode, 0, len(alive)],
    )


def parallel_oracle(episodes, actions):
    """Return the rows of one env for a list of actions by agent, the reset's first."""
    episode, t = 0, 0
    lives = episodes[0]
    now = begin(lives, 0)
    rows = [now]
    for action in actions:
        t += 1
        row = Row()
        going = set()
        for agent in now.active:
            life = lives[agent]
            row.rewards[agent] = paid(agent, t, action[agent])
            row.final_obs[agent] = seen(agent, episode, t, action[agent])
            if life.ends == t:
                if life.how in ("terminated", "both"):
                    row.terminated.add(agent)
                if life.how in ("truncated", "both"):
                    row.truncated.add(agent)
            else:
                going.add(agent)
        if going:
            for agent, life in lives.items():
                if life.joins == t:
                    going.add(agent)
                    row.final_obs[agent] = seen(agent, episode, t, 0)
        row.final_state = [episode, t, len(going)]
        row.final_masks = {a: mask_of(a, episode, t) for a in going | row.truncated}
        if going:
            row.obs = {agent: row.final_obs[agent] for agent in going}
            row.active = going
            row.masks = {agent: mask_of(agent, episode, t) for agent in going}
            row.state = row.final_state
        else:
            row.ended = True
            episode, t = episode + 1, 0
            lives = episodes[episode % len(episodes)]
            first = begin(lives, episode)
            row.obs, row.active = first.obs, first.active
            row.masks, row.state = first.masks, first.state
        rows.append(row)
        now = row
    return rows


@dataclass(frozen=True)
class Turn:
    """One turn: the acting agent, all rewards, and the agents that end, and how."""

    agent: str
    pays: dict
    ends: dict


class ScriptedTurns(AECEnv):
    """Agents act in scripted order; the script's end truncates the remaining ones.

    Args:
        episodes: one list of turns per episode, repeated.
    """

    metadata = {"name": "turns", "is_parallelizable": False}  # noqa: RUF012  # as PettingZoo has it
    render_mode = None

    def __init__(self, episodes):
        super().__init__()
        self.possible_agents = list(AGENTS)
        self._observation = {agent: spaces.Box(-1000, 1000, (4,), np.float32) for agent in AGENTS}
        self._action = {agent: spaces.Discrete(n) for agent, n in N_ACTIONS.items()}
        self._episodes, self._episode = episodes, -1
        self._shared = np.zeros(4, np.float32)

    def observation_space(self, agent):
        return self._observation[agent]

    def action_space(self, agent):
        return self._action[agent]

    def reset(self, seed=None, options=None):
        self._episode += 1
        self._turns = list(self._episodes[self._episode % len(self._episodes)])
        self._t = self._last = 0
        self.agents = list(AGENTS)
        self.rewards = dict.fromkeys(AGENTS, 0)
        self._cumulative_rewards = dict.fromkeys(AGENTS, 0)
        self.terminations = dict.fromkeys(AGENTS, False)
        self.truncations = dict.fromkeys(AGENTS, False)
        self.infos = {agent: {} for agent in AGENTS}
        self._skip_agent_selection = None
        self.agent_selection = self._turns[0].agent
        self._ask()

    def observe(self, agent):
        self._shared[:] = seen(agent, self._episode, self._t, self._last)  # one array for all
        return self._shared

    def step(self, action):
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            return
        actor = self.agent_selection
        turn = self._turns.pop(0)
        self._t, self._last = self._t + 1, action
        self._cumulative_rewards[actor] = 0
        self._clear_rewards()
        for agent in self.agents:
            self.rewards[agent] = turn.pays[agent]
        self.rewards[actor] += paid(actor, self._t, action)
        for agent, how in turn.ends.items():
            if agent in self.agents:
                self.terminations[agent] = how in ("terminated", "both")
                self.truncations[agent] = how in ("truncated", "both")
        while self._turns and not self._alive(self._turns[0].agent):
            self._turns.pop(0)
        if self._turns:
            self.agent_selection = self._turns[0].agent
        else:
            for agent in self.agents:
                if self._alive(agent):
                    self.truncations[agent] = True
        self._accumulate_rewards()
        self._ask()
        self._deads_step_first()

    def _alive(self, agent):
        return agent in self.agents and not (self.terminations[agent] or self.truncations[agent])

    def _ask(self):
        """Give a mask to the agent on turn."""
        self.infos = {agent: {} for agent in self.agents}
        for agent in self.agents:
            mask = mask_of(agent, self._episode, self._t)
            if agent != self.agent_selection:
                mask = [False] * len(mask)
            self.infos[agent]["action_mask"] = np.array(mask)


def turns_oracle(episodes, actions):
    """Return the rows of one turn-based env, the reset's first."""
    rows = []
    episode = -1
    position = t = 0
    alive, turns = set(), []

    def first():
        nonlocal episode, position, t, alive, turns
        episode += 1
        turns, position, t, alive = episodes[episode % len(episodes)], 0, 0, set(AGENTS)
        return shown(Row(), 0)

    def shown(row, last):
        actor = turns[position].agent
        row.obs = {agent: seen(agent, episode, t, last) for agent in alive}
        row.active = {actor}
        row.masks = {actor: mask_of(actor, episode, t)}
        return row

    rows.append(first())
    for action in actions:
        turn = turns[position]
        t += 1
        chosen = action[turn.agent]
        row = Row(rewards={agent: turn.pays[agent] for agent in alive})
        row.rewards[turn.agent] += paid(turn.agent, t, chosen)
        row.final_obs = {agent: seen(agent, episode, t, chosen) for agent in alive}
        for agent in set(turn.ends) & alive:
            if turn.ends[agent] in ("terminated", "both"):
                row.terminated.add(agent)
            if turn.ends[agent] in ("truncated", "both"):
                row.truncated.add(agent)
        alive = alive - row.terminated - row.truncated
        position += 1
        while position < len(turns) and turns[position].agent not in alive:
            position += 1
        if position == len(turns):
            row.truncated |= alive
            alive = set()
        if alive:
            row.final_masks = shown(row, chosen).masks
        else:
            if turn.agent in row.truncated:  # off turn, masks are empty and do not count
                row.final_masks = {turn.agent: mask_of(turn.agent, episode, t)}
            row.ended = True
            after = first()
            row.obs, row.active, row.masks = after.obs, after.active, after.masks
        rows.append(row)
    return rows


EPISODES = [
    {"scout_0": Life(0, 3, "terminated"), "scout_1": Life(1, 5, "truncated"),
     "tank": Life(0, 4, "both")},
    {"scout_0": Life(0, 2, "truncated"), "tank": Life(0, 2, "truncated")},
    {"scout_0": Life(0, 4, "terminated"), "tank": Life(2, 6, "truncated")},
]  # fmt: skip
PAYS = dict.fromkeys(AGENTS, 1.0)
TURNS = [
    [Turn("scout_0", PAYS, {}), Turn("tank", PAYS, {}), Turn("scout_0", PAYS, {}),
     Turn("scout_1", PAYS, {"scout_0": "terminated"}), Turn("tank", PAYS, {"tank": "truncated"})],
    [Turn("tank", PAYS, {}), Turn("scout_1", PAYS, {})],
]  # fmt: skip


def parallel():
    """Return a team whose agents die, join late and have masks."""
    return ScriptedParallel(EPISODES)


def by_turns():
    """Return a team that takes turns."""
    return ScriptedTurns(TURNS)


HOW = st.sampled_from(["terminated", "truncated", "both"])


@st.composite
def lives(draw):
    """Draw one episode, with at least one agent from the beginning."""
    order = draw(st.permutations(AGENTS))
    episode = {}
    for i, agent in enumerate(order):
        joins = 0 if i == 0 else draw(st.sampled_from([0, 0, 1, 2, 4, 99]))
        episode[agent] = Life(joins, joins + draw(st.integers(1, 6)), draw(HOW))
    return episode


@st.composite
def turns(draw):
    """Draw one episode of turns."""
    pays = st.fixed_dictionaries({agent: st.integers(-3, 3).map(float) for agent in AGENTS})
    ends = st.one_of(
        st.just({}), st.just({}), st.dictionaries(st.sampled_from(AGENTS), HOW, max_size=3)
    )
    return draw(
        st.lists(st.builds(Turn, st.sampled_from(AGENTS), pays, ends), min_size=1, max_size=8)
    )


def random_actions(rng, env):
    """Return random actions of all agents, by group; the scripts also accept masked ones."""
    return {
        group.name: rng.integers(group.action_space.n, size=(env.n_envs, len(group.agents)))
        for group in env.groups
    }


class RandomPolicy(torch.nn.Module):
    """Draws possible actions from a stream, and values observations by a fixed formula."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def get_action_and_logprob(self, obs, action_masks=None):
        actions = [self.rng.choice(np.flatnonzero(row)) for row in action_masks.numpy()]
        return torch.tensor(actions), -torch.ones(len(actions))

    def get_value(self, obs):
        return value_of(obs["obs.numbers"] if "obs.numbers" in obs else obs["obs"])


def value_of(numbers):
    """Return V of observations (B, 4)."""
    return numbers @ torch.tensor([0.5, -0.25, 2.0, 1.0])
