"""Networks of a team's action values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.nn import EncoderKind, Memory, ReluMLP, make_encoder
from rlox.nn.layer_data import LayerData, activation, chain, layer_data
from rlox.protocols import AgentGroup
from rlox.spaces import map_leaves
from torch import Generator, Tensor, nn

from rlox_marl.mixing import MixingKind, make_mixing
from rlox_marl.views import PolicyView

__all__ = ["AgentValues", "TeamValues", "greedy", "require_discrete"]


class AgentValues(nn.Module):
    """Action values of agents that share a network, with or without a memory.

    Args:
        view: what they see, and their discrete actions.
        hidden: width of the hidden layers, two without a memory and one before it.
        memory_size: units of a GRU; 0 for none.
        network: how boxes become features; see :data:`rlox.nn.EncoderKind`.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: an observation has no encoder.
    """

    def __init__(
        self,
        view: PolicyView,
        *,
        hidden: int = 64,
        memory_size: int = 0,
        network: EncoderKind = "auto",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_actions = n_actions = int(view.group.action_space.n)  # type: ignore[attr-defined]
        """Number of actions of an agent."""
        self.encoder = make_encoder(view.actor_space, kind=network, generator=generator)
        n_in = int(self.encoder.output_size)  # type: ignore[arg-type]
        self.memory: Memory | None = None
        if memory_size:
            self.before: nn.Module = ReluMLP((n_in, hidden), generator=generator)
            self.memory = Memory(hidden, memory_size, "gru", generator=generator)
            self.after = ReluMLP((memory_size, n_actions), generator=generator)
        else:
            self.before = nn.Identity()
            self.after = ReluMLP((n_in, hidden, hidden, n_actions), generator=generator)

    def layer_data(self) -> LayerData:
        """Describe the values of one observation; see :mod:`rlox.nn.layer_data`."""
        layers = [layer_data(self.encoder), layer_data(self.before)]
        if self.memory is not None:
            layers += [activation("relu"), layer_data(self.memory)]
        return chain(*layers, layer_data(self.after))

    def forward(self, obs: Any, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values (T, n, actions), and the memory (T, n, size) after each step.

        Args:
            obs: leaves (T, n, *shape).
            state: (n, size) the memory before the first step.
            starts: (T, n) bool, whether an episode begins with the step.
        """
        features = self.encoder(map_leaves(lambda leaf: leaf.flatten(0, 1), obs))
        features = self.before(features)
        if self.memory is None:
            return self.after(features).view(*starts.shape, -1), state.expand(len(starts), -1, -1)
        inputs = features.relu().view(*starts.shape, -1)
        remembered, _ = self.memory(inputs, state, starts)
        return self.after(remembered), remembered


class TeamValues(nn.Module):
    """Action values of the agents of a team, and their mixing.

    The agents are in the order of the views, those of a view in the order of its columns.

    Args:
        views: of the networks.
        state_space: what the mixing sees.
        mixing: how the values become the team's.
        mixing_size: see :class:`rlox_marl.mixing.MonotoneMixing`.
        hyper_size: see there.
        options: of :class:`AgentValues`.
    """

    def __init__(
        self,
        views: Sequence[PolicyView],
        state_space: Any,
        mixing: MixingKind,
        mixing_size: int,
        hyper_size: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.agents = nn.ModuleList([AgentValues(view, **options) for view in views])
        self.names = [view.name for view in views]
        n_agents = sum(len(view.columns) for view in views)
        self.mixing = make_mixing(
            mixing,
            n_agents,
            state_space,
            mixing_size,
            hyper_size=hyper_size,
            network=options["network"],
            generator=options["generator"],
        )

    def forward(
        self, obs: Mapping[str, Any], state: Mapping[str, Tensor], starts: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return action values (T, B, A, actions) and memories after each step, by view.

        Args:
            obs: by view, leaves (T, B, A, *shape).
            state: by view, (B, A, size) the memory before the first step.
            starts: (T, B) bool, whether an episode begins with the step.
        """
        values, after = {}, {}
        for name, network in zip(self.names, self.agents, strict=True):
            shape = state[name].shape[:2]
            begins = starts.unsqueeze(-1).expand(-1, *shape).flatten(1)
            seen = map_leaves(lambda leaf: leaf.flatten(1, 2), obs[name])
            found, memory = network(seen, state[name].flatten(0, 1), begins)
            values[name] = found.view(len(starts), *shape, -1)
            after[name] = memory.reshape(len(starts), *shape, memory.shape[-1])
        return values, after

    def following(self, obs: Mapping[str, Any], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the action values (T, B, A, actions) of what each step led to, by view.

        Args:
            obs: by view, leaves (T, B, A, *shape).
            after: by view, the memories (T, B, A, size) after the steps.
        """
        steps, teams = next(iter(after.values())).shape[:2]
        rows = {
            name: map_leaves(lambda leaf: leaf.flatten(0, 1).unsqueeze(0), obs[name])
            for name in self.names
        }
        state = {name: memory.flatten(0, 1) for name, memory in after.items()}
        device = next(self.parameters()).device
        values, _ = self(
            rows, state, torch.zeros(1, steps * teams, dtype=torch.bool, device=device)
        )
        return {name: found.view(steps, teams, *found.shape[2:]) for name, found in values.items()}


def greedy(values: Tensor, masks: Tensor | None) -> Tensor:
    """Return the actions (...) of the highest values (..., actions) that the masks allow.

    Args:
        values: of the actions.
        masks: of the same shape, True for a possible action; ``None``: all are.
    """
    if masks is not None:
        values = values.masked_fill(~masks, -torch.inf)
    return values.argmax(-1)


def require_discrete(groups: Sequence[AgentGroup]) -> None:
    """Refuse actions that are not discrete.

    Raises:
        SpaceError: some are not.
    """
    for group in groups:
        if not isinstance(group.action_space, spaces.Discrete):
            raise SpaceError(
                f"actions must be Discrete, and those of {', '.join(group.agents)} are "
                f"{group.action_space}; take mappo or ippo"
            )
