"""The arrays of one rollout: filled step by step, then turned into a batch with advantages."""

from __future__ import annotations

from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox import kernels
from rlox.batches.rollout import RolloutBatch
from rlox.errors import EnvError
from rlox.protocols import VecEnvStep
from rlox.rollouts.actors import MemoryActor, RolloutActor
from rlox.spaces.nested import map_leaves
from rlox.spaces.observation_rows import ObservationRows, require_finite

__all__ = ["Rollout"]


class Rollout:
    """T steps of N envs, one call of :meth:`act` and one of :meth:`add` for each.

    Args:
        actor: acts on the device.
        rows: the observations' arrays.
        n_steps: T.
        n_envs: N.
        device: where the policy acts and the batch lives.
    """

    def __init__(
        self,
        actor: RolloutActor,
        rows: ObservationRows,
        n_steps: int,
        n_envs: int,
        device: torch.device,
    ) -> None:
        self._actor = actor
        self._rows = rows
        self._device = device
        self._shape = n_steps, n_envs
        self._obs_arrays = rows.empty(n_steps, n_envs)
        self._obs = map_leaves(torch.from_numpy, self._obs_arrays)
        self._obs_rows = _unbind(self._obs)
        self._rewards = np.empty(self._shape, np.float32)
        self._terminated = np.empty(self._shape, np.bool_)
        self._truncated = np.empty(self._shape, np.bool_)
        self._actions: list[Tensor] = []
        self._log_probs: list[Tensor] = []
        self._masks: list[Tensor] = []
        self._scaled_rewards: list[npt.NDArray[Any]] = []
        self._taken = 0

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """(steps taken, N) rewards."""
        return self._rewards[: self._taken]

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """(steps taken, N) whether an episode ended with the step."""
        return (self._terminated | self._truncated)[: self._taken]

    def act(self, obs: Any, masks: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
        """Let the policy act on the observations of all envs; return its action rows.

        Args:
            obs: (N, *shape), as the env gave them.
            masks: (N, mask_size) of the actions; none: nothing is masked.

        Raises:
            SpaceError: there are masks and the policy takes none.
        """
        t = self._taken
        row = self._obs_rows[t]
        if isinstance(obs, dict):
            map_leaves(lambda array, leaf: setitem(array, t, leaf), self._obs_arrays, obs)
            row = map_leaves(self._to_device, row)
        else:
            self._obs_arrays[t] = obs
            row = row.to(self._device)
        if masks is not None:
            self._masks.append(torch.from_numpy(masks).to(self._device))
        action, log_prob = self._actor.act(row, None if masks is None else self._masks[-1])
        self._actions.append(action)
        self._log_probs.append(log_prob)
        rows: npt.NDArray[Any] = action.cpu().numpy()
        return rows

    def add(self, step: VecEnvStep, scaled_rewards: npt.NDArray[Any] | None = None) -> None:
        """Keep what the envs answered.

        Args:
            step: its observations as the policy sees them.
            scaled_rewards: (N,) to estimate advantages from; none: the rewards.

        Raises:
            EnvError: an observation that a value is bootstrapped from is not finite.
        """
        t = self._taken
        self._rewards[t] = step["rewards"]
        if scaled_rewards is not None:
            self._scaled_rewards.append(scaled_rewards)
        self._terminated[t] = step["terminated"]
        self._truncated[t] = cut = step["truncated"]
        if cut.any():
            require_finite(step["final_obs"])
            final_obs = map_leaves(lambda leaf: leaf[cut], step["final_obs"])
            self._actor.cut(self._tensors(final_obs), cut)
        self._actor.end_episodes(self._terminated[t] | cut)
        self._taken += 1

    def batch(self, next_obs: Any, gamma: float, gae_lambda: float) -> RolloutBatch:
        """Return the rollout with values and advantages.

        Args:
            next_obs: (N, *shape) to act on next.
            gamma: discount in [0, 1].
            gae_lambda: trace decay λ in [0, 1].

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        if not np.isfinite(self._rewards).all():
            t, i = np.argwhere(~np.isfinite(self._rewards))[0]
            raise EnvError(
                f"env {i} returned the reward {self._rewards[t, i]}; rewards must be finite"
            )
        require_finite(self._obs_arrays, env_axis=1)
        require_finite(next_obs)
        obs = map_leaves(lambda leaf: leaf.flatten(0, 1).to(self._device), self._obs)
        values, cut_values, next_values = self._actor.values(obs, self._tensors(next_obs))
        final_values = np.zeros(self._shape, np.float32)
        final_values[self._truncated] = cut_values.cpu().numpy()
        rewards = self._rewards
        if self._scaled_rewards:
            rewards = np.array(self._scaled_rewards, np.float32)
        advantages, returns = kernels.backend().compute_gae_time_major(
            rewards,
            values.cpu().numpy().reshape(self._shape),
            self._terminated,
            self._truncated,
            final_values,
            next_values.cpu().numpy(),
            gamma,
            gae_lambda,
        )
        n_steps, n_envs = self._shape
        return RolloutBatch(
            obs=obs,
            actions=torch.cat(self._actions),
            log_probs=torch.cat(self._log_probs),
            values=values,
            rewards=self._flat(self._rewards),
            terminated=self._flat(self._terminated),
            truncated=self._flat(self._truncated),
            advantages=self._flat(advantages),
            returns=self._flat(returns),
            n_steps=n_steps,
            n_envs=n_envs,
            action_masks=torch.cat(self._masks) if self._masks else None,
            **self._memory(),
        )

    def _memory(self) -> dict[str, Tensor]:
        """Return what replays the policy's memory, where it has one."""
        if not isinstance(self._actor, MemoryActor):
            return {}
        starts = torch.cat(self._actor.starts)
        return {"initial_state": self._actor.initial_state, "episode_starts": starts}

    def _tensors(self, obs: Any) -> Any:
        return map_leaves(lambda a: self._to_device(torch.from_numpy(a)), self._rows.stored(obs))

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device)

    def _flat(self, array: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).flatten().to(self._device)


def _unbind(obs: Any) -> list[Any]:
    """Return the T rows of (T, N, *shape) tensors."""
    if not isinstance(obs, dict):
        return list(obs.unbind())
    leaves = [leaf.unbind() for leaf in obs.values()]
    return [dict(zip(obs, row, strict=True)) for row in zip(*leaves, strict=True)]
