"""Running envs stepped for replay: steps that are finite, and their episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError, SpaceError
from rlox.protocols import MaskingVecEnv, VecEnvStep
from rlox.spaces.rows import require_finite

__all__ = ["ReplaySteps"]


class ReplaySteps:
    """Steps N running envs, whose episodes it counts many steps at a time.

    Args:
        envs: the running envs.
    """

    def __init__(self, envs: RunningEnvs) -> None:
        self.envs, self.env = envs, envs.env
        self.statistics = envs.statistics
        self.episode_start = np.ones(self.env.n_envs, np.bool_)
        """(N,) whether the present observation is the first of its episode."""
        self.nothing = np.zeros(self.env.n_envs, np.bool_)
        """(N,) False."""
        self._masking = self.env if isinstance(self.env, MaskingVecEnv) else None
        self._forget()

    def _forget(self) -> None:
        self._rewards: list[npt.NDArray[np.float64]] = []
        self._ended: list[npt.NDArray[np.bool_]] = []
        self._lost: list[npt.NDArray[np.bool_]] = []

    def require_no_masks(self) -> None:
        """Refuse an env that masks actions.

        Raises:
            SpaceError: it does.
        """
        if self._masking is not None and self._masking.action_masks() is not None:
            raise SpaceError(
                "the env masks actions, which replay buffers do not keep; take PPO, or an env "
                "where impossible actions do nothing"
            )

    def step(self, env_actions: Any) -> VecEnvStep:
        """Step every env once; the next observations are then those to act on.

        Args:
            env_actions: (N, ...) as the envs take them.

        Raises:
            EnvError: an env returned an observation or a reward that is not finite.
        """
        step = self.envs.step(env_actions)
        rewards = step["rewards"]
        if not np.isfinite(rewards).all():
            i = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise EnvError(f"env {i} returned the reward {rewards[i]}; rewards must be finite")
        require_finite(step["final_obs"])
        ended = step["terminated"] | step["truncated"]
        if ended.any():
            require_finite(step["obs"])
        self.episode_start = ended
        self._rewards.append(rewards)
        self._ended.append(ended & ~step.get("life_lost", self.nothing))
        self._lost.append(step.get("lost", self.nothing))
        self.envs.obs = step["obs"]
        return step

    def count_episodes(self) -> None:
        """Add the steps since the last call to the statistics; many at once cost little more."""
        if self._rewards:
            lost = np.stack(self._lost)
            self.statistics.add(np.stack(self._rewards), np.stack(self._ended), lost=lost)
            self._forget()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs and their episodes."""
        self.count_episodes()
        return {**self.envs.state_dict(), "episode_start": self.episode_start.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; an env without one starts new episodes at the next step.

        Returns:
            Whether the envs go on exactly where they were.
        """
        exact = self.envs.load_state_dict(state)
        self.episode_start = np.ones(self.env.n_envs, np.bool_)
        if exact:
            self.episode_start[:] = state["episode_start"]
        self._forget()
        return exact
