"""Acting by action values: greedily, or ε-greedily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from rlox.nn.layer_data import LayerData, chain, layer_data, mode
from rlox.spaces import map_leaves
from torch import Generator, Tensor

from rlox_marl.action_values import AgentValues, greedy

__all__ = ["EpsilonGreedy", "GreedyPolicy"]


@dataclass(frozen=True)
class EpsilonGreedy:
    """B distributions: a uniform action with probability ε, else that of the highest value."""

    values: Tensor
    """(B, actions)"""
    masks: Tensor | None
    """(B, actions) bool, True for a possible action; ``None``: all are."""
    epsilon: float

    def mode(self) -> Tensor:
        """Return the actions (B,) of the highest values."""
        return greedy(self.values, self.masks)

    def sample(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return actions (B,) and their log-probabilities (B,).

        Args:
            generator: source of the draws, on the CPU; ``None`` uses torch's global one.
        """
        device = self.values.device
        best = self.mode()
        chance = torch.rand(len(best), generator=generator).to(device) < self.epsilon
        drawn = torch.rand(self.values.shape, generator=generator).to(device)
        possible = torch.ones_like(drawn, dtype=torch.bool) if self.masks is None else self.masks
        uniform = drawn.masked_fill(~possible, -1.0).argmax(-1)
        actions = torch.where(chance, uniform, best)
        share = self.epsilon / possible.sum(-1)
        return actions, torch.log(share + (1 - self.epsilon) * (actions == best))


class GreedyPolicy:
    """A policy by action values, with the methods of policies with and without a memory.

    Args:
        network: the action values.
        epsilon: the present ε.
        memory_size: units of the network's memory; 0 for none.
    """

    def __init__(
        self, network: AgentValues, epsilon: Callable[[], float], memory_size: int
    ) -> None:
        self.generator: Generator | None = None
        self.state_size = memory_size
        self._network, self._epsilon = network, epsilon

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[EpsilonGreedy, Tensor, Tensor]:
        """Take in one observation per row; see :class:`rlox.protocols.RecurrentActor`.

        Args:
            obs: leaves (B, *shape).
            state: (B, state_size), 0 where an episode begins.
            action_masks: (B, actions) bool; ``None`` masks nothing.

        Returns:
            Distributions of B actions, the values (B,) of the best ones, and the next state.
        """
        starts = torch.zeros(1, len(state), dtype=torch.bool, device=state.device)
        rows = map_leaves(lambda leaf: leaf.unsqueeze(0), obs)
        values, after = self._network(rows, state, starts)
        values = values.squeeze(0)
        best = values.gather(-1, greedy(values, action_masks).unsqueeze(-1)).squeeze(-1)
        return EpsilonGreedy(values, action_masks, self._epsilon()), best, after[0]

    def layer_data(self) -> LayerData:
        """Describe the best actions; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self._network), mode(spaces.Discrete(self._network.n_actions)))

    def _distribution(self, obs: Any, action_masks: Tensor | None) -> EpsilonGreedy:
        first = next(iter(obs.values()))
        return self.step(obs, first.new_zeros(len(first), 0, dtype=torch.float32), action_masks)[0]

    def deterministic(self, obs: Any, action_masks: Tensor | None = None) -> Tensor:
        """Return the best actions (B,) of a policy without a memory."""
        return self._distribution(obs, action_masks).mode()

    def get_action_and_logprob(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return sampled actions (B,) of a policy without a memory, and log-probabilities (B,)."""
        return self._distribution(obs, action_masks).sample(self.generator)
