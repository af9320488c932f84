"""Actor-critics of agents: decentralised actors, critics that may see more."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from rlox.networks import Policy
from rlox.nn import ActionHead, Distribution, EncoderKind, TanhMLP, make_encoder
from torch import Tensor, nn

from rlox_marl.value_norm import PopArt, ValueNorm
from rlox_marl.views import PolicyView

__all__ = ["TeamPolicy"]


class TeamPolicy(Policy):
    """Two networks: the actor sees an agent's observation, the critic what it is allowed to.

    Args:
        view: the leaves of both, and the action space.
        hidden: width of the two hidden layers.
        network: how boxes become features; see :data:`rlox.nn.EncoderKind`.
        normalize_values: ``"value_norm"`` and ``"popart"`` normalise the critic's outputs.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: an observation has no encoder, or there is no distribution over the actions.
    """

    def __init__(
        self,
        view: PolicyView,
        *,
        hidden: int = 64,
        network: EncoderKind = "auto",
        normalize_values: Literal["none", "value_norm", "popart"] = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        head = ActionHead(view.group.action_space)
        self.actor = nn.ModuleDict(
            {
                "encoder": make_encoder(view.actor_space, kind=network, generator=generator),
                "head": head,
            }
        )
        sizes = (int(self.actor["encoder"].output_size), hidden, hidden)  # type: ignore[arg-type]
        self.actor["layers"] = TanhMLP(
            (*sizes, head.output_size), output_gain=0.01, generator=generator
        )
        self.critic = nn.ModuleDict(
            {"encoder": make_encoder(view.critic_space, kind=network, generator=generator)}
        )
        sizes = (int(self.critic["encoder"].output_size), hidden, hidden)  # type: ignore[arg-type]
        popart = normalize_values == "popart"
        last, gain = ((), math.sqrt(2)) if popart else ((1,), 1.0)
        self.critic["layers"] = TanhMLP((*sizes, *last), output_gain=gain, generator=generator)
        self.value_norm: ValueNorm | PopArt | None = None
        """Normalises value targets; ``None``: the critic's outputs are values."""
        if popart:
            self.critic["head"] = self.value_norm = PopArt(hidden, generator=generator)
        elif normalize_values == "value_norm":
            self.value_norm = ValueNorm()

    def encode(self, obs: Any) -> Any:
        """Return the leaves as they are."""
        return obs

    def distribution(self, features: Any, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions of B actions, from the leaves of the actor."""
        actor = self.actor
        outputs = actor["layers"](actor["encoder"](features))
        return actor["head"](outputs, action_masks)  # type: ignore[no-any-return]

    def value(self, features: Any) -> Tensor:
        """Return the critic's outputs (B,), normalised values if values are normalised."""
        critic = self.critic
        outputs: Tensor = critic["layers"](critic["encoder"](features))
        if "head" in critic:
            return critic["head"](outputs.tanh())  # type: ignore[no-any-return]
        return outputs.squeeze(-1)

    def get_value(self, obs: Any) -> Tensor:
        """Return values (B,) in the rewards' own scale."""
        values = self.value(obs)
        return values if self.value_norm is None else self.value_norm.denormalize(values)
