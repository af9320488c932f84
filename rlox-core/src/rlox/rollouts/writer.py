"""The arrays of an unroll, filled step by step, and the memory of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.rollout import Unroll
from rlox.errors import EnvError
from rlox.files import require_memory_for
from rlox.protocols import RecurrentActor, VecEnvStep
from rlox.spaces.rows import ObservationRows, map_leaves, require_finite


class UnrollWriter:
    """T steps of N envs: for each :meth:`observe`, :meth:`act` and :meth:`add`.

    Args:
        rows: the observations' arrays.
        n_steps: T.
        n_envs: N.
        device: device of the policy.

    Raises:
        MemoryLimitError: the observations take more memory than there is.
    """

    def __init__(
        self, rows: ObservationRows, n_steps: int, n_envs: int, device: torch.device
    ) -> None:
        self._rows = rows
        self._device = device
        size = (n_steps + 1) * rows.size_of(n_envs)
        require_memory_for("n_steps", n_steps, size, "take fewer steps or envs")
        self._obs_arrays = rows.empty(n_steps + 1, n_envs)
        self._obs = map_leaves(torch.from_numpy, self._obs_arrays)
        self._obs_rows = _unbind(self._obs)
        self._rewards = np.empty((n_steps, n_envs), np.float32)
        self._terminated = np.empty((n_steps, n_envs), np.bool_)
        self._truncated = np.empty((n_steps, n_envs), np.bool_)
        self._actions: list[Tensor] = []
        self._log_probs: list[Tensor] = []
        self._masks: list[Tensor] = []
        self._scaled_rewards: list[npt.NDArray[Any]] = []
        self._final_obs: list[Any] = []
        self._taken = 0
        self._lost = np.zeros((n_steps, n_envs), np.bool_)
        self._life_lost = np.zeros((n_steps, n_envs), np.bool_)

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """(steps taken, N) rewards."""
        return self._rewards[: self._taken]

    @property
    def episode_ended(self) -> npt.NDArray[np.bool_]:
        """(steps taken, N) whether an episode, not only a life, ended with the step."""
        ended = (self._terminated | self._truncated) & ~self._life_lost
        return ended[: self._taken]

    @property
    def masked(self) -> bool:
        """Whether there were action masks so far."""
        return bool(self._masks)

    def observe(self, obs: Any) -> Any:
        """Keep the observations of all envs and return them as tensors on the device.

        Args:
            obs: (N, *shape) to act on.
        """
        t = self._taken
        row = self._obs_rows[t]
        if isinstance(obs, dict):
            map_leaves(lambda array, leaf: setitem(array, t, leaf), self._obs_arrays, obs)
            return map_leaves(self._to_device, row)
        self._obs_arrays[t] = obs
        return row.to(self._device)

    def mask(self, masks: npt.NDArray[np.bool_]) -> Tensor:
        """Keep the action masks (N, mask_size) and return them on the device."""
        self._masks.append(torch.from_numpy(masks).to(self._device))
        return self._masks[-1]

    def act(self, actions: Tensor, log_probs: Tensor) -> npt.NDArray[Any]:
        """Keep what the policy did and return its action rows as an array.

        Args:
            actions: (N,) or (N, columns).
            log_probs: (N,)
        """
        self._actions.append(actions)
        self._log_probs.append(log_probs)
        rows: npt.NDArray[Any] = actions.cpu().numpy()
        return rows

    def add(self, step: VecEnvStep, scaled_rewards: npt.NDArray[Any] | None = None) -> Any:
        """Keep what the envs answered.

        Args:
            step: its observations as the policy sees them.
            scaled_rewards: (N,) to estimate advantages from; ``None``: the rewards.

        Returns:
            The true final observations of the envs whose episode was truncated, as tensors on the
            device; ``None`` if there are none.

        Raises:
            EnvError: an observation that a value is bootstrapped from is not finite.
        """
        t = self._taken
        self._taken += 1
        self._rewards[t] = step["rewards"]
        if scaled_rewards is not None:
            self._scaled_rewards.append(scaled_rewards)
        self._terminated[t] = step["terminated"]
        self._truncated[t] = cut = step["truncated"]
        if "lost" in step:
            self._lost[t] = step["lost"]
        if "life_lost" in step:
            self._life_lost[t] = step["life_lost"]
        if not cut.any():
            return None
        require_finite(step["final_obs"])
        final_obs = map_leaves(lambda leaf: leaf[cut], step["final_obs"])
        self._final_obs.append(
            map_leaves(lambda a: self._to_device(torch.from_numpy(a)), self._rows.stored(final_obs))
        )
        return self._final_obs[-1]

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """(steps taken, N) whether the env was lost in the step."""
        return self._lost[: self._taken]

    def unroll(self, next_obs: Any) -> Unroll:
        """Return all steps.

        Args:
            next_obs: (N, *shape) to act on next.

        Raises:
            EnvError: a reward or an observation is not finite.
        """
        if not np.isfinite(self._rewards).all():
            t, i = np.argwhere(~np.isfinite(self._rewards))[0]
            raise EnvError(
                f"env {i} returned the reward {self._rewards[t, i]}; rewards must be finite"
            )
        self.observe(next_obs)
        require_finite(self._obs_arrays, env_axis=1)
        final_obs = None
        if self._final_obs:
            final_obs = map_leaves(lambda *leaves: torch.cat(leaves), *self._final_obs)
        return Unroll(
            obs=map_leaves(self._to_device, self._obs),
            actions=torch.stack(self._actions),
            log_probs=torch.stack(self._log_probs),
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            final_obs=final_obs,
            scaled_rewards=np.array(self._scaled_rewards, np.float32)
            if self._scaled_rewards
            else None,
            action_masks=torch.stack(self._masks) if self._masks else None,
            life_lost=self._life_lost if self._life_lost.any() else None,
        )

    def _to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device)


def _unbind(obs: Any) -> list[Any]:
    """Return the rows of (T, N, *shape) tensors."""
    if not isinstance(obs, dict):
        return list(obs.unbind())
    leaves = [leaf.unbind() for leaf in obs.values()]
    return [dict(zip(obs, row, strict=True)) for row in zip(*leaves, strict=True)]


@dataclass
class EnvMemory:
    """What a policy remembers of N envs from one rollout to the next."""

    state: Tensor
    """(N, state_size)"""
    starts: Tensor
    """(N,) bool, whether an episode begins with the next observation."""

    @classmethod
    def blank(cls, n_envs: int, state_size: int, device: torch.device) -> EnvMemory:
        """Return the memory of N envs whose first episodes begin."""
        starts = torch.ones(n_envs, dtype=torch.bool, device=device)
        return cls(torch.zeros(n_envs, state_size, device=device), starts)

    @classmethod
    def of(cls, arrays: Mapping[str, Any], device: torch.device) -> EnvMemory:
        """Return the memory of a checkpoint, by field."""
        return cls(**{name: torch.tensor(array, device=device) for name, array in arrays.items()})


class MemoryActor:
    """A policy with a memory, which estimates values as it acts.

    Args:
        policy: acts on the rollout's device.
        memory: of the envs as they stand; it is brought up to date.
        seq_len: steps from one state that the learner starts from to the next; ``None``: it starts
            from the first alone.
    """

    def __init__(
        self, policy: RecurrentActor, memory: EnvMemory, seq_len: int | None = None
    ) -> None:
        self._policy = policy
        self._memory = memory
        self._seq_len = seq_len
        self._initial_states = [memory.state]
        self._starts: list[Tensor] = []
        self._values: list[Tensor] = []
        self._final_values: list[Tensor] = []
        self._waiting: Tensor | None = None

    def act(
        self, obs: Any, action_masks: Tensor | None = None, *, active: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return actions (N, ...) and their log-probabilities (N,).

        Args:
            obs: N observations.
            action_masks: (N, mask_size) bool; ``None`` masks nothing.
            active: (N,) bool, the rows that act; the memory of the others stays as it is, and what
                begins with the observation begins with the first on which the row acts. ``None``:
                all act.
        """
        starts, before = self._memory.starts, self._state_to_act_on()
        done = len(self._starts)
        if done and self._seq_len is not None and done % self._seq_len == 0:
            self._initial_states.append(before)
        self._starts.append(starts)
        distribution, values, after = self._policy.step(obs, before, action_masks)
        self._waiting = None
        if active is not None:
            after = torch.where(active.unsqueeze(-1), after, before)
            self._waiting = starts & ~active
        self._memory.state = after
        self._values.append(values)
        return distribution.sample(getattr(self._policy, "generator", None))

    def end_step(
        self,
        final_obs: Any,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        begins: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Estimate values of truncated episodes, whose memory is still there; forget what ended.

        Args:
            final_obs: (K, *shape) of the truncated ones.
            terminated: (N,)
            truncated: (N,)
            begins: (N,) whether an episode begins with the next observation; ``None``: where one
                ended.
        """
        device = self._memory.state.device
        if final_obs is not None:
            state = self._memory.state[torch.from_numpy(truncated).to(device)]
            self._final_values.append(self._policy.step(final_obs, state)[1])
        ended = terminated | truncated if begins is None else begins
        starts = torch.from_numpy(ended).to(device)
        self._memory.starts = starts if self._waiting is None else starts | self._waiting

    def complete(self, unroll: Unroll) -> Unroll:
        """Return the unroll with the values and what replays the memory."""
        next_obs = map_leaves(lambda leaf: leaf[-1], unroll.obs)
        next_values = self._policy.step(next_obs, self._state_to_act_on())[1]
        final_values = np.zeros(unroll.rewards.shape, np.float32)
        if self._final_values:
            final_values[unroll.truncated] = torch.cat(self._final_values).cpu().numpy()
        return replace(
            unroll,
            values=torch.stack([*self._values, next_values]),
            final_values=final_values,
            episode_starts=torch.stack(self._starts),
            initial_state=torch.cat(self._initial_states),
        )

    def _state_to_act_on(self) -> Tensor:
        return self._memory.state.masked_fill(self._memory.starts.unsqueeze(-1), 0.0)
