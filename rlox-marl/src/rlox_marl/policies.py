"""Actor-critics of agents: decentralised actors, critics that may see more."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from rlox.learners import SeparatePerceptrons
from rlox.networks import Policy
from rlox.nn import ActionHead, Distribution, EncoderKind, Memory, TanhMLP, make_encoder
from rlox.nn.layer_data import LayerData, chain, layer_data
from torch import Tensor, nn

from rlox_marl.value_norm import PopArt, ValueNorm
from rlox_marl.views import PolicyView

__all__ = ["RecurrentTeamPolicy", "TeamPolicy"]


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
        self.value_norm = _value_norm(normalize_values, hidden, generator)
        """Normalises value targets; ``None``: the critic's outputs are values."""
        if isinstance(self.value_norm, PopArt):
            self.critic["head"] = self.value_norm

    def encode(self, obs: Any) -> Any:
        """Return the leaves as they are."""
        return obs

    def distribution(self, features: Any, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions of B actions, from the leaves of the actor."""
        actor = self.actor
        outputs = actor["layers"](actor["encoder"](features))
        return actor["head"](outputs, action_masks)  # type: ignore[no-any-return]

    def perceptrons(self) -> SeparatePerceptrons | None:
        """Return the two networks for learner backends; see there."""
        encoders: Any = self.actor["encoder"], self.critic["encoder"]
        learns = any(True for encoder in encoders for _ in encoder.parameters())
        if learns or "head" in self.critic:
            return None
        return SeparatePerceptrons(
            actor=self.actor["layers"],
            critic=self.critic["layers"],
            inputs=lambda obs: (encoders[0](obs), encoders[1](obs)),
            action_space=self.actor["head"].action_space,
        )

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; see :mod:`rlox.nn.layer_data`."""
        return chain(*(layer_data(self.actor[name]) for name in ("encoder", "layers", "head")))

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


class RecurrentTeamPolicy(nn.Module):
    """Two networks with a recurrent layer each; what they see is :class:`TeamPolicy`'s.

    The state is one row per agent: the actor's memory, then the critic's.

    Args:
        view: the leaves of both, and the action space.
        kind: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer, after the encoder.
        hidden: width of the hidden layer after it.
        network: see :class:`TeamPolicy`.
        normalize_values: see :class:`TeamPolicy`.
        generator: see :class:`TeamPolicy`.

    Raises:
        SpaceError: an observation has no encoder, or there is no distribution over the actions.
    """

    def __init__(
        self,
        view: PolicyView,
        kind: Literal["lstm", "gru"],
        *,
        memory_size: int = 64,
        hidden: int = 64,
        network: EncoderKind = "auto",
        normalize_values: Literal["none", "value_norm", "popart"] = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        head = ActionHead(view.group.action_space)

        def layers(space: Any, sizes: tuple[int, ...], gain: float) -> nn.ModuleDict:
            encoder = make_encoder(space, kind=network, generator=generator)
            features = int(encoder.output_size)  # type: ignore[arg-type]
            return nn.ModuleDict(
                {
                    "encoder": encoder,
                    "memory": Memory(features, memory_size, kind, generator=generator),
                    "layers": TanhMLP(sizes, output_gain=gain, generator=generator),
                }
            )

        self.actor = layers(view.actor_space, (memory_size, hidden, head.output_size), 0.01)
        self.actor["head"] = head
        popart = normalize_values == "popart"
        last, gain = ((), math.sqrt(2)) if popart else ((1,), 1.0)
        self.critic = layers(view.critic_space, (memory_size, hidden, *last), gain)
        self.value_norm = _value_norm(normalize_values, hidden, generator)
        """Normalises value targets; ``None``: the critic's outputs are values."""
        if isinstance(self.value_norm, PopArt):
            self.critic["head"] = self.value_norm
        self.state_size = 2 * int(self.actor["memory"].state_size)  # type: ignore[arg-type]
        """Length of a state's row."""

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Return distributions of N actions, values (N,) in the rewards' scale, and the next state.

        Args:
            obs: N observations.
            state: (N, state_size), 0 where an episode begins.
            action_masks: (N, mask_size) bool; ``None`` masks nothing.
        """
        goes_on = torch.zeros(1, len(state), dtype=torch.bool, device=state.device)
        distribution, values, after = self._run(obs, state, goes_on, action_masks)
        if self.value_norm is not None:
            values = self.value_norm.denormalize(values)
        return distribution, values, after

    def evaluate_actions(
        self,
        obs: Any,
        actions: Tensor,
        action_masks: Tensor | None = None,
        *,
        state: Tensor,
        episode_starts: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and the critic's outputs, each (T*n,).

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

    def layer_data(self) -> LayerData:
        """Describe the most probable actions, for which the actor's memory is enough."""
        names = ("encoder", "memory", "layers", "head")
        return chain(*(layer_data(self.actor[name]) for name in names))

    def _run(
        self, obs: Any, state: Tensor, starts: Tensor, action_masks: Tensor | None
    ) -> tuple[Distribution, Tensor, Tensor]:
        after, outputs = [], []
        for part, before in zip((self.actor, self.critic), state.chunk(2, -1), strict=True):
            features = part["encoder"](obs).view(*starts.shape, -1)
            remembered, now = part["memory"](features, before, starts)
            outputs.append(part["layers"](remembered.flatten(0, 1)))
            after.append(now)
        chosen, judged = outputs
        popart = "head" in self.critic
        values = self.critic["head"](judged.tanh()) if popart else judged.squeeze(-1)
        return self.actor["head"](chosen, action_masks), values, torch.cat(after, -1)


def _value_norm(
    kind: str, hidden: int, generator: torch.Generator | None
) -> ValueNorm | PopArt | None:
    if kind == "popart":
        return PopArt(hidden, generator=generator)
    return ValueNorm() if kind == "value_norm" else None
