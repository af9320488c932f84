"""Q-functions and state-value functions for vector observations."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from rlox.nn.layer_data import LayerData, activation, chain, layer_data
from rlox.nn.mlp import EnsembleMLP, ReluMLP


class QNetwork(nn.Module):
    """Action value Q(s, a) of a continuous action.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: int = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.net = ReluMLP((obs_dim + act_dim, hidden, hidden, 1), generator=generator)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (B, 1) of observations (B, obs_dim) and actions (B, act_dim)."""
        return self.net(torch.cat((obs, actions), -1))  # type: ignore[no-any-return]


class TwinQNetwork(nn.Module):
    """Several independent action values of a continuous action, two for clipped double Q-learning.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of the two hidden layers.
        n_critics: number of critics K.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: int = 256,
        *,
        n_critics: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (obs_dim + act_dim, hidden, hidden, 1)
        self.net = EnsembleMLP(n_critics, sizes, generator=generator)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return values (K, B) of observations (B, obs_dim) and actions (B, act_dim)."""
        return self.net(torch.cat((obs, actions), -1)).squeeze(-1)  # type: ignore[no-any-return]


class DiscreteQNetwork(nn.Module):
    """Action values Q(s, ·) of all discrete actions at once, or what their distributions need.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions A.
        hidden: width of the two hidden layers.
        n_atoms: numbers n for each action, for the distribution of its return; ``None`` gives its
            value, without that dimension.
        noisy_std: σ₀ of noisy layers, see :class:`rlox.nn.NoisyLinear`; ``None`` adds no noise.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: int = 256,
        *,
        n_atoms: int | None = None,
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_atoms = n_atoms
        sizes = (obs_dim, hidden, hidden, n_actions * (n_atoms or 1))
        self.net = ReluMLP(sizes, noisy_std=noisy_std, generator=generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B, A), or numbers (B, A, n), of observations (B, obs_dim)."""
        outputs = self.net(obs)
        return outputs if self.n_atoms is None else outputs.unflatten(-1, (-1, self.n_atoms))  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the outputs; see :mod:`rlox.nn.layer_data`."""
        if self.n_atoms is None:
            return layer_data(self.net)
        return chain(layer_data(self.net), {"layer": "atoms", "count": self.n_atoms})


class DuelingQNetwork(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'), on a shared hidden layer.

    With several numbers for each action, each of them is such a sum.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions A.
        hidden: width of the shared layer and of each stream's own.
        n_atoms: as of :class:`DiscreteQNetwork`.
        noisy_std: as of :class:`DiscreteQNetwork`.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Wang et al. 2016, "Dueling network architectures", eq. 9; Hessel et al. 2018, "Rainbow",
        sec. "The integrated agent".
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: int = 256,
        *,
        n_atoms: int | None = None,
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_atoms = n_atoms
        n = n_atoms or 1
        self.shared = ReluMLP((obs_dim, hidden), noisy_std=noisy_std, generator=generator)
        self.value = ReluMLP((hidden, hidden, n), noisy_std=noisy_std, generator=generator)
        self.advantage = ReluMLP(
            (hidden, hidden, n_actions * n), noisy_std=noisy_std, generator=generator
        )

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B, A), or numbers (B, A, n), of observations (B, obs_dim)."""
        features = self.shared(obs).relu_()
        value, advantages = self.value(features), self.advantage(features)
        if self.n_atoms is None:
            return value + advantages - advantages.mean(-1, keepdim=True)  # type: ignore[no-any-return]
        advantages = advantages.unflatten(-1, (-1, self.n_atoms))
        return value.unsqueeze(-2) + advantages - advantages.mean(-2, keepdim=True)  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the outputs; see :mod:`rlox.nn.layer_data`."""
        streams = {
            "layer": "dueling",
            "value": layer_data(self.value),
            "advantage": layer_data(self.advantage),
            "atoms": self.n_atoms or 0,
        }
        return chain(layer_data(self.shared), activation("relu"), streams)


class ValueNetwork(nn.Module):
    """State value V(s).

    Args:
        obs_dim: size of an observation.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self, obs_dim: int, hidden: int = 256, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.net = ReluMLP((obs_dim, hidden, hidden, 1), generator=generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B,) of observations (B, obs_dim)."""
        return cast("Tensor", self.net(obs)).squeeze(-1)


@torch.no_grad()
def polyak_update(source: nn.Module, target: nn.Module, tau: float) -> None:
    """Move the target's parameters towards the source's: θ' ← (1 - τ) θ' + τ θ.

    Args:
        source: the network that learns.
        target: its target network; its buffers become the source's.
        tau: τ in [0, 1]; 1 copies.

    Raises:
        ValueError: ``tau`` is out of range.

    Source:
        Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", algorithm 1.
    """
    if not 0.0 <= tau <= 1.0:
        raise ValueError(f"tau must lie in [0, 1], got {tau}")
    for learnt, averaged in zip(source.parameters(), target.parameters(), strict=True):
        averaged.lerp_(learnt, tau)
    for buffer, copy in zip(source.buffers(), target.buffers(), strict=True):
        copy.copy_(buffer)
