"""Exploration: noise on the actions that fill a replay buffer.

Any object with the methods of :class:`rlox.protocols.ExplorationStrategy` works. Actions have the
form that replay buffers store (:mod:`rlox.replay`): counted from 0, or in [-1, 1], to which noisy
actions are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@final
class EpsilonGreedy:
    """With probability ε, independently for each env, a uniform action replaces the chosen one.

    Args:
        epsilon: maps env steps to ε.
        n_actions: number of actions.
        rng: source of the draws.

    Source:
        Mnih et al. 2015, algorithm 1.
    """

    def __init__(
        self, epsilon: Callable[[int], float], n_actions: int, rng: np.random.Generator
    ) -> None:
        self._epsilon = epsilon
        self._n_actions = n_actions
        self._rng = rng

    def explore(self, actions: Array, episode_start: npt.NDArray[np.bool_], step: int) -> Array:
        """Return the actions to take; see :class:`rlox.protocols.ExplorationStrategy`."""
        rng, n, epsilon = self._rng, len(actions), self._epsilon(step)
        if n == 1:  # the same numbers as from arrays of length 1, in a third of the time
            return np.array([rng.integers(self._n_actions)]) if rng.random() < epsilon else actions
        # Python numbers: for a few envs, comparing arrays takes several times as long
        draws = rng.random(n).tolist()
        if min(draws) >= epsilon:
            return actions
        return np.where(np.array(draws) < epsilon, rng.integers(self._n_actions, size=n), actions)

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: only the stream changes."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the state is empty."""


@final
class GaussianNoise:
    """Independent N(0, σ²) added to every dimension at every step.

    Args:
        std: σ, in units of half an action's range.
        rng: source of the draws.

    Source:
        Fujimoto et al. 2018, section 6.1.
    """

    def __init__(self, std: float, rng: np.random.Generator) -> None:
        self._std = std
        self._rng = rng

    def explore(self, actions: Array, episode_start: npt.NDArray[np.bool_], step: int) -> Array:
        """Return the actions to take; see :class:`rlox.protocols.ExplorationStrategy`."""
        noise = self._rng.standard_normal(actions.shape, np.float32) * np.float32(self._std)
        noisy: Array = actions + noise
        return noisy

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: only the stream changes."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the state is empty."""


@final
class OrnsteinUhlenbeckNoise:
    """Correlated noise, x ← x - θ x dt + σ √dt N(0, 1), for envs with inertia.

    Every env has its own noise, which starts at 0 with each episode.

    Args:
        std: σ, in units of half an action's range.
        rng: source of the draws.
        theta: θ, the pull towards 0.
        dt: time of one step.

    Source:
        Lillicrap et al. 2016, section 3 and supplement 7; dt: openai/baselines.
    """

    def __init__(
        self, std: float, rng: np.random.Generator, *, theta: float = 0.15, dt: float = 1e-2
    ) -> None:
        self._decay = np.float32(1 - theta * dt)
        self._kick = np.float32(std * dt**0.5)
        self._rng = rng
        self._noise: Array | None = None

    def explore(self, actions: Array, episode_start: npt.NDArray[np.bool_], step: int) -> Array:
        """Return the actions to take; see :class:`rlox.protocols.ExplorationStrategy`."""
        before = self._noise
        if before is None or len(before) != len(actions):
            before = np.zeros(actions.shape, np.float32)
        before[episode_start] = 0
        self._noise = self._decay * before + self._kick * self._rng.standard_normal(
            actions.shape, np.float32
        )
        noisy: Array = actions + self._noise
        return noisy

    def state_dict(self) -> dict[str, Any]:
        """Return the noise (N, act_dim) of all envs, or an empty state before the first step."""
        return {"noise": None if self._noise is None else self._noise.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the noise; from another kind of noise or number of envs, it starts at 0."""
        noise = state.get("noise")
        self._noise = None if noise is None else np.array(noise, np.float32)


def make_noise(
    kind: str, std: float, rng: np.random.Generator
) -> GaussianNoise | OrnsteinUhlenbeckNoise | None:
    """Return noise by its name in configs; ``None`` for ``"none"``.

    Args:
        kind: ``"none"``, ``"gaussian"`` or ``"ornstein-uhlenbeck"``.
        std: its standard deviation.
        rng: source of the draws.
    """
    kinds = {"gaussian": GaussianNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckNoise}
    return None if kind == "none" else kinds[kind](std, rng)
