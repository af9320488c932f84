"""Vectorised simple_spread in NumPy, bit-identical to mpe2's.

The dynamics of mpe2 1.1 (``mpe2/_mpe_utils/core.py``), all in float64 with dt = 0.1:

- the force on an agent is its action (±5 along one axis) plus, from each other agent at distance d,
  100 · 0.001 · softplus((0.3 - d) / 0.001) away from it;
- x ← x + dt · v, then v ← 0.75 · v + dt · force, with a mass of 1;
- the reward of an agent is (1 - local_ratio) · global + local_ratio · local: global is minus the
  sum over landmarks of the distance of the nearest agent, local is minus the number of other agents
  nearer than 0.3;
- at a reset agents, then landmarks, are uniform in [-1, 1]², agents at rest.

Source: https://github.com/Farama-Foundation/MPE2; Lowe et al. 2017, https://arxiv.org/abs/1706.02275.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import EnvError
from rlox.kernels.reference.replay.parsing import stream, stream_words
from rlox.protocols import MultiAgentObs, MultiAgentStep
from rlox.seeding import env_seeds

from rlox_marl.envs.groups import check_actions, group_agents

Float = npt.NDArray[np.float64]

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE = 1e2
CONTACT_MARGIN = 1e-3
COLLISION_DISTANCE = 0.15 + 0.15
SENSITIVITY = 5.0
MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float64) * SENSITIVITY
"""(5, 2) force of each discrete action: none, left, right, down, up."""
ARRAYS = ("positions", "velocities", "landmarks", "steps")
"""The parts of an env's state, besides its random stream."""


class SimpleSpreadVecEnv:
    """Agents cover landmarks without collisions; see :class:`rlox.protocols.MultiAgentVecEnv`.

    The options are those of ``mpe2.simple_spread_v3``.

    Args:
        n_envs: number of envs.
        seed: seed of the first :meth:`reset_all`; env i gets seed + i.
        N: number of agents, and of landmarks.
        local_ratio: weight of an agent's own collisions in its reward, in [0, 1].
        max_cycles: length of an episode in env steps; all agents are truncated then.
        continuous_actions: actions are a ``Box`` of five values in [0, 1] (none, left, right,
            down, up) instead of a ``Discrete(5)``.

    Raises:
        EnvError: an option is out of range.
    """

    def __init__(
        self,
        n_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        N: int = 3,  # noqa: N803  # mpe2's name
        local_ratio: float = 0.5,
        max_cycles: int = 25,
        continuous_actions: bool = False,
    ) -> None:
        for name, value in (("n_envs", n_envs), ("N", N), ("max_cycles", max_cycles)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise EnvError(f"{name} must be an integer of at least 1, got {value!r}")
        if not 0 <= local_ratio <= 1:
            raise EnvError(f"local_ratio must lie in [0, 1], got {local_ratio}")
        self._seed = seed
        self._local_ratio, self._max_cycles = float(local_ratio), int(max_cycles)
        self._continuous = bool(continuous_actions)
        self.n_envs = n_envs
        """Number of envs."""
        self.possible_agents = tuple(f"agent_{i}" for i in range(N))
        """Names of all agents, ``agent_0`` and so on."""
        size = 2 * (2 + N + 2 * (N - 1))
        observation = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        action: gymnasium.Space[Any] = (
            spaces.Box(0, 1, (5,), np.float32) if continuous_actions else spaces.Discrete(5)
        )
        agents = self.possible_agents
        self.groups = group_agents(
            agents, dict.fromkeys(agents, observation), dict.fromkeys(agents, action)
        )
        """All agents in one group, ``agent``."""
        self.state_space: gymnasium.Space[Any] = spaces.Box(-np.inf, np.inf, (N * size,))
        """Space of one env's state: the agents' concatenated observations."""
        self._positions = np.zeros((n_envs, N, 2))
        self._velocities = np.zeros((n_envs, N, 2))
        self._landmarks = np.zeros((n_envs, N, 2))
        self._steps = np.zeros(n_envs, np.int64)
        self._generators = [np.random.default_rng() for _ in range(n_envs)]
        self._active = {self.groups[0].name: np.ones((n_envs, N), np.bool_)}
        self._first, self._second = np.triu_indices(N, 1)
        self._pairs = list(zip(self._first.tolist(), self._second.tolist(), strict=True))
        others = [[j for j in range(N) if j != i] for i in range(N)]
        self._others = np.array(others, np.int64).reshape(N, N - 1)
        self._begun = False

    def reset_all(self, seed: int | Sequence[int] | None = None) -> MultiAgentObs:
        """Reset all envs; see :class:`rlox.protocols.MultiAgentVecEnv`."""
        if seed is None:
            seed, self._seed = self._seed, None
        for i, one in enumerate(env_seeds(seed, self.n_envs)):
            if one is not None:
                self._generators[i] = np.random.default_rng(one)
            self._begin(i)
        self._begun = True
        return self._shown(self._observe())

    def step_all(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs; see :class:`rlox.protocols.MultiAgentStep`.

        Raises:
            EnvError: the actions do not fit, or the envs were not reset.
        """
        if not self._begun:
            raise EnvError("step_all was called before reset_all; reset the envs first")
        name = self.groups[0].name
        given = check_actions(self.groups, actions, self._active)[name][""]
        self._move(self._forces(given))
        self._steps += 1
        rewards = self._rewards()
        ended = self._steps >= self._max_cycles
        final = self._observe()
        now = final
        if ended.any():
            for i in np.flatnonzero(ended).tolist():
                self._begin(i)
            now = np.where(ended[:, None, None], self._observe(), final)
        return {
            **self._shown(now),  # type: ignore[typeddict-item]  # nothing is masked
            "rewards": {name: rewards},
            "terminated": {name: np.zeros(rewards.shape, np.bool_)},
            "truncated": {name: np.repeat(ended[:, None], rewards.shape[1], axis=1)},
            "final_obs": {name: final},
            "final_state": final.reshape(self.n_envs, -1).copy(),
            "episode_ended": ended,
        }

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state of all envs; see :class:`rlox.protocols.StatefulVecEnv`."""
        state = {name: getattr(self, f"_{name}").copy() for name in ARRAYS}
        return {**state, "generators": np.stack([stream_words(one) for one in self._generators])}

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore the state of all envs.

        Raises:
            EnvError: the number of envs or agents differs.
        """
        shape = np.shape(state["positions"])
        if shape != self._positions.shape:
            raise EnvError(
                f"the state is of {shape[0]} envs with {shape[1]} agents, expected {self.n_envs} "
                f"with {len(self.possible_agents)}"
            )
        for name in ARRAYS:
            getattr(self, f"_{name}")[:] = state[name]
        self._generators = [stream(words) for words in state["generators"]]
        self._begun = True

    def close(self) -> None:
        """Do nothing; the envs hold memory only."""

    def _begin(self, env: int) -> None:
        """Draw the episode's first positions from the env's own random stream."""
        drawn = self._generators[env].uniform(-1, +1, (2 * len(self.possible_agents), 2))
        self._positions[env], self._landmarks[env] = np.split(drawn, 2)
        self._velocities[env] = 0
        self._steps[env] = 0

    def _forces(self, actions: npt.NDArray[Any]) -> Float:
        """Return the (n_envs, N, 2) forces of actions and collisions.

        Summed in mpe2's order: an agent's action first, then the other agents in order.
        """
        if self._continuous:
            pushes = (actions[..., 2::2] - actions[..., 1::2]).astype(np.float64)
            forces: Float = pushes * SENSITIVITY
        else:
            forces = MOVES[actions]
        apart = self._positions[:, self._first] - self._positions[:, self._second]
        distance = _length(apart)
        depth = np.logaddexp(0, -(distance - COLLISION_DISTANCE) / CONTACT_MARGIN) * CONTACT_MARGIN
        with np.errstate(divide="ignore", invalid="ignore"):  # two agents in one place, as in mpe2
            push = CONTACT_FORCE * apart / distance[..., None] * depth[..., None]
        # pairs are in lexicographic order, so each agent meets the others in agent order
        for pair, (a, b) in enumerate(self._pairs):
            forces[:, a] += push[:, pair]
            forces[:, b] -= push[:, pair]
        return forces

    def _move(self, forces: Float) -> None:
        self._positions += self._velocities * DT
        self._velocities = self._velocities * (1 - DAMPING)
        self._velocities += forces * DT

    def _rewards(self) -> Float:
        """Return the (n_envs, N) rewards."""
        apart = self._positions[:, :, None] - self._landmarks[:, None]
        nearest = _length(apart).min(axis=1)
        shared = np.zeros(self.n_envs)
        for landmark in range(nearest.shape[1]):  # in mpe2's order of sums
            shared -= nearest[:, landmark]
        between = self._positions[:, self._first] - self._positions[:, self._second]
        touching = _length(between) < COLLISION_DISTANCE
        own = np.zeros(self._active[self.groups[0].name].shape)
        for pair, (a, b) in enumerate(self._pairs):
            own[:, a] -= touching[:, pair]
            own[:, b] -= touching[:, pair]
        return shared[:, None] * (1 - self._local_ratio) + own * self._local_ratio

    def _observe(self) -> npt.NDArray[np.float32]:
        """Return the (n_envs, N, size) observations."""
        n_envs, n_agents = self.n_envs, len(self.possible_agents)
        here = self._positions[:, :, None]
        parts = (
            self._velocities,
            self._positions,
            (self._landmarks[:, None] - here).reshape(n_envs, n_agents, -1),
            (self._positions[:, self._others] - here).reshape(n_envs, n_agents, -1),
            np.zeros((n_envs, n_agents, 2 * (n_agents - 1))),  # what silent agents say
        )
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def _shown(self, obs: npt.NDArray[np.float32]) -> MultiAgentObs:
        name = self.groups[0].name
        return {
            "obs": {name: obs.copy()},
            "active": {name: self._active[name].copy()},
            "masks": {},
            "state": obs.reshape(self.n_envs, -1).copy(),
        }


def _length(vectors: Float) -> Float:
    """Return the Euclidean lengths over the last axis, of size 2."""
    return np.asarray(np.sqrt(np.square(vectors[..., 0]) + np.square(vectors[..., 1])))
