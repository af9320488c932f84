"""Collection of transitions: N envs stepped into a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.envs.running import RunningEnvs
from rlox.protocols import ReplayBuffer, ReplayBufferProtocol
from rlox.replay.buffers import pusher
from rlox.replay.observation_codec import ReplayObservations
from rlox.replay.stepping import ReplaySteps

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
        self.steps.require_no_masks()
        step = self.steps.step(env_actions)
        rewards, lost = step["rewards"], step.get("lost", self.steps.nothing)
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
        return self.env.n_envs if stores else 0

    def count_episodes(self) -> None:
        """Add the steps since the last call to the statistics."""
        self.steps.count_episodes()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs and their episodes, without the buffer."""
        return self.steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; see :meth:`rlox.replay.stepping.ReplaySteps.load_state_dict`."""
        return self.steps.load_state_dict(state)
