"""Action values of teams: networks, mixing of the agents' values, and acting by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from rlox.nn import MLP, EncoderKind, Hidden, Layers, Memory, make_encoder, make_mlp
from rlox.nn.encoders import has_image
from rlox.nn.layer_data import LayerData, chain, layer_data, mode
from rlox.spaces import map_leaves
from torch import Generator, Tensor, nn

from rlox_marl.views import PolicyView


class AgentValues(nn.Module):
    """Action values of agents that share a network, with or without a memory.

    Args:
        view: the agents' inputs and discrete actions.
        hidden: width of the hidden layers, two without a memory, one before it; or their widths.
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
        hidden: Hidden = 64,
        memory_size: int = 0,
        network: EncoderKind = "auto",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_actions = n_actions = int(view.group.action_space.n)  # type: ignore[attr-defined]
        """Number of actions of an agent."""
        space = view.actor_space
        conv = Layers.expand(hidden).conv if has_image(space, network) else "auto"
        self.encoder = make_encoder(space, kind=network, conv=conv, generator=generator)
        n_in = int(self.encoder.output_size)  # type: ignore[arg-type]
        self.memory: Memory | None = None
        if memory_size:
            before: Any = Layers.expand(hidden, 1)
            self.before: nn.Module = make_mlp(n_in, before, generator=generator)
            self.memory = Memory(before.hidden[-1], memory_size, "gru", generator=generator)
            n_in, hidden = memory_size, replace(before, hidden=())
        else:
            self.before = nn.Identity()
        self.after = make_mlp(n_in, hidden, n_actions, generator=generator)

    def layer_data(self) -> LayerData:
        """Describe the values of one observation; see :mod:`rlox.nn.layer_data`."""
        layers = [layer_data(self.encoder), layer_data(self.before)]
        if self.memory is not None:
            layers.append(layer_data(self.memory))
        return chain(*layers, layer_data(self.after))

    def forward(self, obs: Any, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Return action values (T, n, actions), and the memory (T, n, size) after each step.

        The inputs are leaves (T, n, *shape), the memory (n, size) before the first step, and
        (T, n) bools, True where a step begins an episode.
        """
        features = self.encoder(map_leaves(lambda leaf: leaf.flatten(0, 1), obs))
        features = self.before(features)
        if self.memory is None:
            return self.after(features).view(*starts.shape, -1), state.expand(len(starts), -1, -1)
        inputs = features.view(*starts.shape, -1)
        remembered, _ = self.memory(inputs, state, starts)
        return self.after(remembered), remembered


class Mixing(nn.Module):
    """Turns the agents' values into the learnt ones."""

    by_agent: ClassVar[bool] = False
    """Whether every agent's value is learnt on its own."""
    state_space: Any = None
    """Space of the team's state as its input; ``None``: it does not use the state."""


class NoMixing(Mixing):
    """Every agent's value is learnt on its own."""

    by_agent = True

    def forward(self, values: Tensor, state: Any = None) -> Tensor:
        """Return the values (B, A) of A agents unchanged."""
        return values


class SumMixing(Mixing):
    """The value of a team is the sum of its agents' values.

    Source:
        Sunehag et al. 2018, "Value-decomposition networks for cooperative multi-agent learning",
        sec. 3.
    """

    def forward(self, values: Tensor, state: Any = None) -> Tensor:
        """Return team values (B, 1) from agent values (B, A), which are 0 for resting agents."""
        return values.sum(-1, keepdim=True)


class MonotoneMixing(Mixing):
    """The value of a team grows with the value of each of its agents.

        Q_tot = elu(q · |W_1(s)| + b_1(s)) · |w_2(s)| + v(s)

    b_1 is linear in the features of the state s, and v has a hidden layer; W_1 and w_2 have a
    hidden layer of ``hyper_size`` units, or are linear.

    Args:
        n_agents: number of agents A.
        state_space: space of the state.
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
        self.state_space = state_space
        self.encoder = make_encoder(state_space, kind=network, generator=generator)
        n_in = int(self.encoder.output_size)  # type: ignore[arg-type]
        inner = (n_in, hyper_size) if hyper_size else (n_in,)
        self.first_weight = MLP((*inner, n_agents * size), generator=generator)
        self.first_bias = MLP((n_in, size), generator=generator)
        self.second_weight = MLP((*inner, size), generator=generator)
        self.second_bias = MLP((n_in, size, 1), generator=generator)
        self._shape = n_agents, size

    def forward(self, values: Tensor, state: Any) -> Tensor:
        """Return team values (B, 1) from agent values (B, A), 0 at rest, and states (B, *shape)."""
        features = self.encoder(state)
        weight = self.first_weight(features).abs().view(-1, *self._shape)
        hidden = (values.unsqueeze(1) @ weight).squeeze(1) + self.first_bias(features)
        outputs = F.elu(hidden) * self.second_weight(features).abs()
        return outputs.sum(-1, keepdim=True) + self.second_bias(features)  # type: ignore[no-any-return]


class TeamValues(nn.Module):
    """Action values of a team's agents, and their mixing.

    Agents are ordered by view, and within a view by its columns.

    Args:
        agents: networks by view name.
        mixing: turns the agents' values into the team's.
    """

    def __init__(self, agents: Mapping[str, AgentValues], mixing: Mixing) -> None:
        super().__init__()
        self.agents = nn.ModuleList(agents.values())
        self.names = list(agents)
        self.mixing = mixing

    def forward(
        self, obs: Mapping[str, Any], state: Mapping[str, Tensor], starts: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return action values (T, B, A, actions) and memories after each step, by view.

        The inputs are leaves (T, B, A, *shape) and memories (B, A, size) before the first step,
        both by view, and (T, B) bools, True where an episode begins.
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
        """Return the action values (T, B, A, actions) after each step, by view.

        The inputs are the next leaves (T, B, A, *shape) and the memories (T, B, A, size) then.
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
    """Return the allowed actions (...) with the highest values (..., actions)."""
    if masks is not None:
        values = values.masked_fill(~masks, -torch.inf)
    return values.argmax(-1)


@dataclass(frozen=True)
class EpsilonGreedy:
    """B distributions: a uniform action with probability ε, else the highest-valued one."""

    values: Tensor
    """(B, actions)"""
    masks: Tensor | None
    """(B, actions) bool, True for allowed actions; ``None`` allows all."""
    epsilon: float

    def mode(self) -> Tensor:
        """Return the highest-valued actions (B,)."""
        return greedy(self.values, self.masks)

    def sample(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return actions (B,) and their log-probabilities (B,), drawn on the CPU."""
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
    """An ε-greedy policy, with the methods of recurrent and of feed-forward policies.

    Args:
        network: the action values.
        epsilon: returns the current ε.
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
        """Return distributions of B actions, the best actions' values (B,), and the next state.

        See :class:`rlox.protocols.RecurrentActor`.
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
        """Return the best actions (B,); for policies without a memory."""
        return self._distribution(obs, action_masks).mode()

    def get_action_and_logprob(
        self, obs: Any, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return sampled actions (B,) and log-probabilities (B,); only without a memory."""
        return self._distribution(obs, action_masks).sample(self.generator)
