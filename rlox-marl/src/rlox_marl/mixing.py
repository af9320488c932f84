"""Mixing: from the values of agents to the value of their team."""

from __future__ import annotations

from typing import Any, Literal

import torch.nn.functional as F  # noqa: N812  # the field's name for it
from rlox.nn import ReluMLP, make_encoder
from rlox.nn.encoders import EncoderKind
from torch import Generator, Tensor, nn

__all__ = ["MixingKind", "MonotoneMixing", "NoMixing", "SumMixing", "make_mixing"]

MixingKind = Literal["none", "sum", "monotone"]
"""How the values of agents become values that are learnt."""


class NoMixing(nn.Module):
    """Every agent's value is learnt on its own."""

    def forward(self, values: Tensor, state: Any = None) -> Tensor:
        """Return the values (B, A) of A agents as they are."""
        return values


class SumMixing(nn.Module):
    """The value of a team is the sum of its agents' values.

    Source:
        Sunehag et al. 2018, "Value-decomposition networks for cooperative multi-agent learning",
        sec. 3.
    """

    def forward(self, values: Tensor, state: Any = None) -> Tensor:
        """Return values (B, 1) of teams from those (B, A) of their agents, 0 where one rests."""
        return values.sum(-1, keepdim=True)


class MonotoneMixing(nn.Module):
    """The value of a team grows with the value of each of its agents.

        Q_tot = elu(q · |W_1(s)| + b_1(s)) · |w_2(s)| + v(s)

    b_1 is linear in the features of the state s, and v has a hidden layer; W_1 and w_2 have one of
    ``hyper_size`` units, or are linear.

    Args:
        n_agents: number of agents A.
        state_space: of the state.
        size: columns of W_1.
        hyper_size: units of the hidden layer of W_1 and w_2; 0: they are linear, as in the paper.
        network: how boxes become features; see :data:`rlox.nn.EncoderKind`.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Rashid et al. 2018, "QMIX: monotonic value function factorisation for deep multi-agent
        reinforcement learning", sec. 4; the hidden layer: hijkzzz/pymarl2 and uoe-agents/epymarl.
    """

    def __init__(
        self,
        n_agents: int,
        state_space: Any,
        size: int,
        *,
        hyper_size: int = 0,
        network: EncoderKind = "auto",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(state_space, kind=network, generator=generator)
        n_in = int(self.encoder.output_size)  # type: ignore[arg-type]
        inner = (n_in, hyper_size) if hyper_size else (n_in,)
        self.first_weight = ReluMLP((*inner, n_agents * size), generator=generator)
        self.first_bias = ReluMLP((n_in, size), generator=generator)
        self.second_weight = ReluMLP((*inner, size), generator=generator)
        self.second_bias = ReluMLP((n_in, size, 1), generator=generator)
        self._shape = n_agents, size

    def forward(self, values: Tensor, state: Any) -> Tensor:
        """Return values (B, 1) of teams.

        Args:
            values: (B, A) of the agents, 0 where one rests.
            state: (B, *shape).
        """
        features = self.encoder(state)
        weight = self.first_weight(features).abs().view(-1, *self._shape)
        hidden = (values.unsqueeze(1) @ weight).squeeze(1) + self.first_bias(features)
        outputs = F.elu(hidden) * self.second_weight(features).abs()
        return outputs.sum(-1, keepdim=True) + self.second_bias(features)  # type: ignore[no-any-return]


def make_mixing(
    kind: MixingKind,
    n_agents: int,
    state_space: Any,
    size: int,
    **options: Any,
) -> nn.Module:
    """Return the mixing of a kind; arguments as of :class:`MonotoneMixing`."""
    if kind == "none":
        return NoMixing()
    if kind == "sum":
        return SumMixing()
    return MonotoneMixing(n_agents, state_space, size, **options)
