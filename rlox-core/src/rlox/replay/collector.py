"""Steps of N envs for replay, and their transitions in a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.envs.running import RunningEnvs
from rlox.errors import SpaceError
from rlox.protocols import MaskingVecEnv, ReplayBuffer, ReplayBufferProtocol, VecEnvStep
from rlox.replay.buffers import pusher
from rlox.replay.codecs import ReplayObservations
from rlox.spaces.rows import require_finite

__all__ = ["ReplayCollector", "ReplaySteps"]


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

        If that fails, all envs begin new episodes.

        Args:
            env_actions: (N, ...) as the envs take them.

        Raises:
            EnvError: an env returned an observation or a reward that is not finite, or a reward
                that is too large for float32.
        """
        try:
            step = self.envs.step(env_actions)
            require_finite(step["final_obs"])
            ended = step["terminated"] | step["truncated"]
            if np.count_nonzero(ended):
                require_finite(step["obs"])
            self.episode_start = ended
            self._rewards.append(step["rewards"])
            life_lost = step.get("life_lost")
            self._ended.append(ended if life_lost is None else ended & ~life_lost)
            self._lost.append(step.get("lost", self.nothing))
            self.envs.obs = step["obs"]
        except BaseException:
            self.begin_again()
            raise
        return step

    def begin_again(self) -> None:
        """Let all envs begin new episodes at the next look at their observations."""
        self.count_episodes()
        self.envs.obs = None
        self.episode_start = np.ones(self.env.n_envs, np.bool_)

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
        self.steps = ReplaySteps(session)
        self.statistics = session.statistics
        self._push = pusher(buffer)
        self._cut = getattr(buffer, "truncate_episodes", None)
        self._session = session
        self._clip_rewards = clip_rewards

    @property
    def episode_start(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the present observation is the first of its episode."""
        return self.steps.episode_start

    @property
    def obs(self) -> Any:
        """A copy of the (N, *shape) observations to act on, of a nested space a dict of them."""
        return self.observations.copy(self._session.obs)

    def step(self, obs: Any, actions: Any, env_actions: Any) -> int:
        """Step every env once.

        If an env was lost, the vector step is not stored, as a buffer takes the steps of all envs
        in turn; a buffer with ``truncate_episodes`` then cuts what was stored before. So it is if
        the step fails, after which all envs begin new episodes.

        Args:
            obs: (N, *shape) what :attr:`obs` returned.
            actions: (N, ...) as they are stored.
            env_actions: (N, ...) as the env takes them.

        Returns:
            How many transitions were stored: N, or 0.

        Raises:
            SpaceError: the env masks actions.
            EnvError: see :meth:`ReplaySteps.step`.
        """
        self.steps.require_no_masks()
        try:
            return self._step(obs, actions, env_actions)
        except BaseException:
            self.steps.begin_again()
            if self._cut is not None:
                self._cut()
            raise

    def _step(self, obs: Any, actions: Any, env_actions: Any) -> int:
        step = self.steps.step(env_actions)
        rewards, lost = step["rewards"], step.get("lost")
        stores = lost is None or not np.count_nonzero(lost)
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
        return self.env.n_envs if stores else 0

    def count_episodes(self) -> None:
        """Add the steps since the last call to the statistics."""
        self.steps.count_episodes()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs and their episodes, without the buffer."""
        return self.steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; see :meth:`ReplaySteps.load_state_dict`."""
        return self.steps.load_state_dict(state)
