"""Small algorithms of every family but language models, on envs and data of no meaning."""

from functools import partial

import gymnasium
import numpy as np
import rlox
from gymnasium import spaces
from pettingzoo import ParallelEnv
from rlox_offline.datasets import Dataset
from rlox_rl8.env import DiscreteDummyEnv


class Walk(gymnasium.Env):
    """Random observations.

    Args:
        discrete: whether actions are one of two, rather than a number.
        length: env steps of an episode; 0: it has no end.
        reward: of each step.
    """

    observation_space = spaces.Box(-1, 1, (3,))

    def __init__(self, discrete, length=7, reward=1.0):
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,))
        self.length, self.reward, self.n_steps = length, reward, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n_steps = 0
        return self.look(), {}

    def step(self, action):
        self.n_steps += 1
        return self.look(), self.reward, self.n_steps == self.length, False, {}

    def look(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class Pair(ParallelEnv):
    """Two walkers of one clock; see :class:`Walk`."""

    metadata = {"name": "pair"}  # noqa: RUF012  # as PettingZoo has it
    possible_agents = ["left", "right"]  # noqa: RUF012

    def __init__(self, walk=Walk, **options):
        self.walks = {agent: walk(True, **options) for agent in self.possible_agents}
        self.agents = list(self.possible_agents)

    def observation_space(self, agent):
        return self.walks[agent].observation_space

    def action_space(self, agent):
        return self.walks[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        found = {agent: walk.reset(seed=seed) for agent, walk in self.walks.items()}
        return {a: f[0] for a, f in found.items()}, {a: f[1] for a, f in found.items()}

    def step(self, actions):
        found = {agent: walk.step(actions[agent]) for agent, walk in self.walks.items()}
        parts = [{agent: step[i] for agent, step in found.items()} for i in range(5)]
        if any(parts[2].values()):
            self.agents = []
        return tuple(parts)


def dataset(reward=1.0):
    """Return transitions at random."""
    rng, n = np.random.default_rng(0), 100
    columns = {
        "obs": rng.normal(size=(n, 3)),
        "next_obs": rng.normal(size=(n, 3)),
        "actions": rng.uniform(-1, 1, (n, 1)),
        "rewards": np.full(n, reward, np.float32),
        "terminated": np.arange(n) % 10 == 9,
    }
    return Dataset(columns, act_low=-1.0, act_high=1.0)


class Middle:
    """A policy of one action."""

    def predict(self, obs, deterministic=True):
        return np.zeros((*np.shape(obs)[:-1], 1), np.float32)


ROLLOUTS = {"n_envs": 2, "n_steps": 8, "hidden": 8}
REPLAY = {
    "hidden": 8, "batch_size": 8, "buffer_size": 500, "learning_starts": 16,
    "steps_per_iteration": 16, "save_replay_buffer": True,
}  # fmt: skip
TEAM = {**REPLAY, "n_envs": 2, "train_freq": 8, "gradient_steps": 1, "batch_size": 2}
OFFLINE = {"hidden": 8, "batch_size": 8, "steps_per_iteration": 8}
RL8 = {"n_envs": 4, "horizon": 8}

ON_ENVS = {
    "ppo": (True, {**ROLLOUTS, "batch_size": 8, "n_epochs": 2}),
    "a2c": (True, ROLLOUTS),
    "impala": (True, ROLLOUTS),
    "appo": (True, ROLLOUTS),
    "dqn": (True, {**REPLAY, "train_freq": 4, "gradient_steps": 1}),
    "discrete_sac": (True, REPLAY),
    "sac": (False, REPLAY),
    "td3": (False, REPLAY),
    "ddpg": (False, REPLAY),
    "crossq": (False, {**REPLAY, "critic_hidden": 8}),
    "mappo": (True, {**ROLLOUTS, "batch_size": 8, "n_epochs": 1}),
    "ippo": (True, {**ROLLOUTS, "batch_size": 8, "n_epochs": 1}),
    "vdn": (True, TEAM),
    "qmix": (True, TEAM),
    "independent_q": (True, TEAM),
    "rl8_ppo": (True, {**RL8, "sgd_minibatch_size": 16}),
    # whose envs must not end
    "rl8_recurrent_ppo": (True, {**RL8, "seq_len": 4, "seqs_per_state_reset": -1,
                                 "sgd_minibatch_size": 4}),
    "dreamer_v3": (
        True,
        {"hidden": 8, "units": 8, "batch_size": 2, "seq_len": 4, "learning_starts": 16,
         "steps_per_iteration": 16, "train_ratio": 2, "save_replay_buffer": True},
    ),
}  # fmt: skip
"""Whether its actions are discrete, and its options."""

ON_DATA = {
    name: {**OFFLINE, **({"policy": Middle()} if name == "fqe" else {})}
    for name in ("bc", "td3_bc", "awac", "iql", "cql", "fqe")
}

ROLLING = ("ppo", "a2c", "impala", "appo", "mappo", "ippo", "rl8_ppo", "rl8_recurrent_ppo")
"""Those that have rollouts, and so call ``on_rollout_end``."""

TEAMS = ("mappo", "ippo", "vdn", "qmix", "independent_q")

ALGORITHMS = [*ON_ENVS, *ON_DATA]

ON_WALKS = [name for name in ALGORITHMS if name != "rl8_recurrent_ppo"]
"""Those that learn in the envs here, or from a dataset."""

STEPS = 64
"""Env steps of a training, or gradient steps."""


def build(name, **more):
    """Return a small algorithm; ``length`` and ``reward`` are those of :class:`Walk`."""
    walk = {key: more.pop(key) for key in ("length", "reward") if key in more}
    if name in ON_DATA:
        walk.pop("length", None)
        return rlox.make(name, dataset=dataset(**walk), seed=0, **{**ON_DATA[name], **more})
    options = ON_ENVS[name][1]
    return rlox.make(name, env=env_of(name, **walk), seed=0, **{**options, **more})


def env_of(name, kind=Walk, **walk):
    """Return what makes an env for an algorithm."""
    if name in TEAMS:
        return partial(Pair, kind, **walk)
    if name == "rl8_recurrent_ppo":
        return DiscreteDummyEnv
    return partial(kind, ON_ENVS[name][0] if name in ON_ENVS else False, **walk)
