"""Two CartPoles side by side as one PettingZoo env."""

import gymnasium
from pettingzoo import ParallelEnv


class TwoCartPoles(ParallelEnv):
    """Each agent balances a pole of its own; it is out once its pole falls, or after 500 steps."""

    metadata = {"name": "two_cartpoles"}  # noqa: RUF012  # as PettingZoo has it

    def __init__(self):
        self.possible_agents = ["left", "right"]
        self._poles = {agent: gymnasium.make("CartPole-v1") for agent in self.possible_agents}

    def observation_space(self, agent):
        """Return the space of CartPole-v1."""
        return self._poles[agent].observation_space

    def action_space(self, agent):
        """Return the space of CartPole-v1."""
        return self._poles[agent].action_space

    def reset(self, seed=None, options=None):
        """Begin an episode of both; the second pole's seed is the next number."""
        self.agents = list(self.possible_agents)
        started = {
            agent: pole.reset(seed=None if seed is None else seed + i)
            for i, (agent, pole) in enumerate(self._poles.items())
        }
        return {agent: obs for agent, (obs, _) in started.items()}, {a: {} for a in started}

    def step(self, actions):
        """Move the carts of the agents whose poles still stand."""
        moved = {agent: self._poles[agent].step(actions[agent]) for agent in self.agents}
        self.agents = [agent for agent, result in moved.items() if not (result[2] or result[3])]
        return tuple({agent: result[i] for agent, result in moved.items()} for i in range(5))

    def close(self):
        """Close both."""
        for pole in self._poles.values():
            pole.close()
