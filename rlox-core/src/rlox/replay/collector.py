"""Collection of transitions: N envs stepped into a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError, SpaceError
from rlox.protocols import MaskingVecEnv, ReplayBuffer, ReplayBufferProtocol
from rlox.replay.buffers import pusher
from rlox.replay.observation_codec import ReplayObservations
from rlox.spaces.rows import require_finite

__all__ = ["ReplayCollector"]


class ReplayCollector:
    """Steps N envs and pushes every transition, with its true final observation.

    Args:
        session: the envs.
        buffer: where transitions go.
        observations: how it keeps them; ``None`` derives it from the envs' space.
        clip_rewards: bound of the sizes of stored rewards; statistics have the env's.
    """

    def __init__(
        self,
        session: RunningEnvs,
        buffer: ReplayBuffer | ReplayBufferProtocol,
        observations: ReplayObservations | None = None,
        clip_rewards: float | None = None,
    ) -> None:
        self.env = session.env
        self.observations = observations or ReplayObservations(session.env.observation_space)
        self._push = pusher(buffer)
        self._cut = getattr(buffer, "truncate_episodes", None)
        self.statistics = session.statistics
        self.episode_start = np.ones(self.env.n_envs, np.bool_)
        """(N,) whether the present observation is the first of its episode."""
        self._session = session
        self._clip_rewards = clip_rewards
        self._masking = self.env if isinstance(self.env, MaskingVecEnv) else None
        self._rewards: list[npt.NDArray[np.float64]] = []
        self._ended: list[npt.NDArray[np.bool_]] = []
        self._lost: list[npt.NDArray[np.bool_]] = []
        self._none = np.zeros(self.env.n_envs, np.bool_)

    @property
    def obs(self) -> Any:
        """A copy of the (N, *shape) observations to act on, of a nested space a dict of them."""
        return self.observations.copy(self._session.obs)

    def step(self, obs: Any, actions: Any, env_actions: Any) -> int:
        """Step every env once.

        If an env was lost, the vector step is not stored, as a buffer takes the steps of all envs
        in turn; a buffer with ``truncate_episodes`` then cuts what was stored before.

        Args:
            obs: (N, *shape) what :attr:`obs` returned.
            actions: (N, ...) as they are stored.
            env_actions: (N, ...) as the env takes them.

        Returns:
            How many transitions were stored: N, or 0.

        Raises:
            SpaceError: the env masks actions.
            EnvError: an env returned an observation or a reward that is not finite.
        """
        if self._masking is not None and self._masking.action_masks() is not None:
            raise SpaceError(
                "the env masks actions, which replay buffers do not keep; take PPO, or an env "
                "where impossible actions do nothing"
            )
        step = self._session.step(env_actions)
        rewards = step["rewards"]
        if not np.isfinite(rewards).all():
            i = int(np.flatnonzero(~np.isfinite(rewards))[0])
            raise EnvError(f"env {i} returned the reward {rewards[i]}; rewards must be finite")
        require_finite(step["final_obs"])
        ended = step["terminated"] | step["truncated"]
        if ended.any():
            require_finite(step["obs"])
        lost = step.get("lost", self._none)
        stores = not lost.any()
        bound = self._clip_rewards
        if stores:
            pack = self.observations.pack
            self._push(
                pack(obs),
                actions,
                rewards if bound is None else np.clip(rewards, -bound, bound),
                step["terminated"],
                step["truncated"],
                pack(step["final_obs"]),
            )
        elif self._cut is not None:
            self._cut()
        self.episode_start = ended
        self._rewards.append(rewards)
        self._ended.append(ended & ~step.get("life_lost", self._none))
        self._lost.append(lost)
        self._session.obs = step["obs"]
        return self.env.n_envs if stores else 0

    def count_episodes(self) -> None:
        """Add the steps since the last call to the statistics; many at once cost little more."""
        if self._rewards:
            lost = np.stack(self._lost)
            self.statistics.add(np.stack(self._rewards), np.stack(self._ended), lost=lost)
            self._rewards, self._ended, self._lost = [], [], []

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs and their episodes, without the buffer."""
        self.count_episodes()
        return {**self._session.state_dict(), "episode_start": self.episode_start.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; an env without one starts new episodes at the next step.

        Returns:
            Whether the envs go on exactly where they were.
        """
        exact = self._session.load_state_dict(state)
        self.episode_start = np.ones(self.env.n_envs, np.bool_)
        if exact:
            self.episode_start[:] = state["episode_start"]
        self._rewards, self._ended, self._lost = [], [], []
        return exact
