"""How a policy acts and estimates values in a rollout: without a memory, and with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.networks.predict import taking_masks
from rlox.protocols import OnPolicyActor, RecurrentActor
from rlox.spaces.nested import map_leaves

__all__ = ["EnvMemory", "FeedForwardActor", "MemoryActor", "RolloutActor"]


class RolloutActor(Protocol):
    """What fills a rollout with actions and values; tensors are on the rollout's device."""

    def act(self, obs: Any, action_masks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return actions (N, ...) and their log-probabilities (N,)."""

    def end_episodes(self, ended: npt.NDArray[np.bool_]) -> None:
        """Take note of the envs (N,) whose episode ended with the step."""

    def cut(self, final_obs: Any, cut: npt.NDArray[np.bool_]) -> None:
        """Take note of the true final observations of the envs (N,) whose episode was cut."""

    def values(self, obs: Any, next_obs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return values of all T*N observations, of those of :meth:`cut`, and of the next ones."""


class FeedForwardActor:
    """A policy that sees nothing but the observation; values are estimated in one batch.

    Args:
        policy: acts on the rollout's device.
    """

    def __init__(self, policy: OnPolicyActor) -> None:
        self._policy: Any = policy
        self._cut_obs: list[Any] = []
        self._takes_masks = False

    def act(self, obs: Any, action_masks: Tensor | None) -> tuple[Tensor, Tensor]:
        """See :class:`RolloutActor`."""
        if action_masks is None:
            return self._policy.get_action_and_logprob(obs)  # type: ignore[no-any-return]
        if not self._takes_masks:
            taking_masks(self._policy.get_action_and_logprob)
            self._takes_masks = True
        return self._policy.get_action_and_logprob(obs, action_masks)  # type: ignore[no-any-return]

    def end_episodes(self, ended: npt.NDArray[np.bool_]) -> None:
        """Do nothing: there is nothing to forget."""

    def cut(self, final_obs: Any, cut: npt.NDArray[np.bool_]) -> None:
        """See :class:`RolloutActor`."""
        self._cut_obs.append(final_obs)

    def values(self, obs: Any, next_obs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RolloutActor`."""
        value = self._policy.get_value
        final_values = torch.zeros(0)
        if self._cut_obs:
            final_values = value(map_leaves(lambda *leaves: torch.cat(leaves), *self._cut_obs))
        # a policy may return views of its parameters, which the learner is about to change
        return value(obs).clone(), final_values, value(next_obs)


@dataclass
class EnvMemory:
    """What a policy remembers of N envs from one rollout to the next."""

    state: Tensor
    """(N, state_size)"""
    starts: Tensor
    """(N,) bool, whether an episode begins with the next observation."""


class MemoryActor:
    """A policy with a memory, whose values are estimated as the rollout goes.

    Args:
        policy: acts on the rollout's device.
        memory: of the envs as they stand; it is brought up to date.
    """

    def __init__(self, policy: RecurrentActor, memory: EnvMemory) -> None:
        self._policy = policy
        self._memory = memory
        self.initial_state = memory.state
        """(N, state_size) before the rollout."""
        self.starts: list[Tensor] = []
        """(N,) of every step so far, whether an episode began with its observation."""
        self._values: list[Tensor] = []
        self._final_values: list[Tensor] = []

    def act(self, obs: Any, action_masks: Tensor | None) -> tuple[Tensor, Tensor]:
        """See :class:`RolloutActor`."""
        self.starts.append(self._memory.starts)
        distribution, values, self._memory.state = self._policy.step(
            obs, self._state_to_act_on(), action_masks
        )
        self._values.append(values)
        return distribution.sample(getattr(self._policy, "generator", None))

    def end_episodes(self, ended: npt.NDArray[np.bool_]) -> None:
        """Forget at the next step."""
        self._memory.starts = torch.from_numpy(ended).to(self._memory.state.device)

    def cut(self, final_obs: Any, cut: npt.NDArray[np.bool_]) -> None:
        """See :class:`RolloutActor`; the memory of the episode is still there."""
        state = self._memory.state[torch.from_numpy(cut).to(self._memory.state.device)]
        self._final_values.append(self._policy.step(final_obs, state)[1])

    def values(self, obs: Any, next_obs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RolloutActor`."""
        final_values = torch.cat(self._final_values) if self._final_values else torch.zeros(0)
        next_values = self._policy.step(next_obs, self._state_to_act_on())[1]
        return torch.cat(self._values), final_values, next_values

    def _state_to_act_on(self) -> Tensor:
        return self._memory.state.masked_fill(self._memory.starts.unsqueeze(-1), 0.0)
