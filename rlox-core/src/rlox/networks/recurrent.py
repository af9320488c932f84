"""Recurrent actor-critics (LSTM and GRU)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.nn.distributions import Distribution
from rlox.nn.heads import ActionHead
from rlox.nn.layer_data import LayerData, chain, layer_data
from rlox.nn.memory import Memory, MemoryKind
from rlox.nn.mlp import TanhMLP

__all__ = ["RecurrentPolicy"]


class RecurrentPolicy(nn.Module):
    """Policy and value function for any spaces, each with a recurrent layer of its own.

    Features of the encoder, which both share, go through an LSTM or GRU and a tanh network. The
    state is one row per env: the policy's memory, then the value function's.

    Args:
        encoder: from observations to features, with the attribute ``output_size``; see
            :func:`rlox.nn.make_encoder`.
        action_space: of one env.
        kind: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer.
        hidden: widths of the hidden layers after it.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: there is no distribution over the action space.
    """

    def __init__(
        self,
        encoder: nn.Module,
        action_space: spaces.Space[Any],
        kind: MemoryKind,
        *,
        memory_size: int = 64,
        hidden: Sequence[int] = (64,),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.encoder = encoder
        self.head = ActionHead(action_space)
        features = int(encoder.output_size)  # type: ignore[arg-type]
        self.actor_memory = Memory(features, memory_size, kind, generator=generator)
        self.critic_memory = Memory(features, memory_size, kind, generator=generator)
        sizes = (memory_size, *hidden)
        self.actor = TanhMLP((*sizes, self.head.output_size), output_gain=0.01, generator=generator)
        self.critic = TanhMLP((*sizes, 1), output_gain=1.0, generator=generator)
        self.state_size = 2 * self.actor_memory.state_size
        """Length of a state's row."""

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Take in one observation per env.

        Args:
            obs: N observations.
            state: (N, state_size), 0 where an episode begins.
            action_masks: (N, mask_size) bool; ``None`` masks nothing.

        Returns:
            Distributions of N actions, values (N,) and the next state (N, state_size).
        """
        goes_on = torch.zeros(1, len(state), dtype=torch.bool, device=state.device)
        return self._run(obs, state, goes_on, action_masks)

    def evaluate_actions(
        self,
        obs: Any,
        actions: Tensor,
        action_masks: Tensor | None = None,
        *,
        state: Tensor,
        episode_starts: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values, each (T*n,), of n sequences of T steps.

        Args:
            obs: T*n observations, step 0 of all sequences first.
            actions: theirs.
            action_masks: (T*n, mask_size) bool; ``None`` masks nothing.
            state: (n, state_size) before the sequences.
            episode_starts: (T*n,) bool, whether an episode begins with the observation.
        """
        starts = episode_starts.view(-1, len(state))
        distribution, values, _ = self._run(obs, state, starts, action_masks)
        return distribution.log_prob(actions), distribution.entropy(), values

    def _run(
        self, obs: Any, state: Tensor, starts: Tensor, action_masks: Tensor | None
    ) -> tuple[Distribution, Tensor, Tensor]:
        features = self.encoder(obs).view(*starts.shape, -1)
        for_actor, for_critic = state.chunk(2, -1)
        acting, actor_state = self.actor_memory(features, for_actor, starts)
        judging, critic_state = self.critic_memory(features, for_critic, starts)
        distribution = self.head(self.actor(acting.flatten(0, 1)), action_masks)
        values = self.critic(judging.flatten(0, 1)).squeeze(-1)
        return distribution, values, torch.cat([actor_state, critic_state], -1)

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; only the policy's memory is part of it."""
        parts = (self.encoder, self.actor_memory, self.actor, self.head)
        return chain(*(layer_data(part) for part in parts))
