"""Recurrent policies in rollouts: their memory from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.batches.rollout import Unroll
from rlox.protocols import RecurrentActor
from rlox.spaces.nested import map_leaves

__all__ = ["EnvMemory", "MemoryActor"]


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
