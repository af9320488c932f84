"""A small team of PettingZoo whose observations and actions are of any kind."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

VECTOR = spaces.Box(-3, 3, (4,), np.float32)
NESTED = spaces.Dict([("place", VECTOR), ("kind", spaces.Discrete(3, start=1))])
TORQUES = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
BOTH = spaces.Dict([("torques", TORQUES), ("choice", spaces.Discrete(3))])


class Errand(ParallelEnv):
    """Two scouts and a tank see random things for eight steps; one joins late, one leaves early.

    Args:
        observed: what scouts see; the tank sees a vector.
        acted: what scouts do; the tank has four choices, counted from 2.
        masks: whether choices are masked.
    """

    metadata = {"name": "errand"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self, observed=VECTOR, acted=None, masks=False):
        self.possible_agents = ["scout_0", "tank", "scout_1"]
        choices = spaces.Discrete(4, start=2)
        scout = acted or spaces.Discrete(3)
        self._seen = {name: VECTOR if name == "tank" else observed for name in self.possible_agents}
        self._done = {name: choices if name == "tank" else scout for name in self.possible_agents}
        self.state_space = VECTOR
        self._masks = masks
        self._rng = np.random.default_rng(0)

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._done[agent]

    def state(self):
        return self._rng.uniform(-3, 3, 4).astype(np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            for k, space in enumerate(self._seen.values()):
                space.seed(seed + k)
        self._t, self.agents = 0, ["scout_0", "tank"]
        return self._views(self.agents)

    def step(self, actions):
        self._t += 1
        before = list(self.agents)
        ended = {name: self._t == 8 or (name == "tank" and self._t == 6) for name in before}
        self.agents = [name for name in before if not ended[name]]
        if self._t == 3:
            self.agents.append("scout_1")
        obs, infos = self._views({*before, *self.agents})
        return obs, dict.fromkeys(before, 1.0), ended, dict.fromkeys(before, False), infos

    def _views(self, agents):
        obs = {name: self._seen[name].sample() for name in agents}
        infos = {name: {} for name in agents}
        for name in agents:
            if self._masks:
                mask = self._rng.random(self._done[name].n) < 0.5
                mask[-1] = True
                infos[name]["action_mask"] = mask
        return obs, infos
