"""Actor-critic policies with centralised critics, value normalisation, and optimisers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import torch
from rlox.errors import ConfigError
from rlox.learners import SeparatePerceptrons
from rlox.networks import Policy
from rlox.networks.actor_critics import Recurrent
from rlox.nn import (
    ActionHead,
    Distribution,
    EncoderKind,
    FlatOptimizer,
    Hidden,
    Layers,
    Memory,
    make_encoder,
    make_mlp,
    orthogonal,
)
from rlox.nn.encoders import has_image
from rlox.nn.layer_data import LayerData, chain, layer_data
from torch import Tensor, nn

from rlox_marl.views import PolicyView


class ValueNorm(nn.Module):
    """Running mean and deviation of value targets.

    Computed from debiased exponential moving averages of value targets and their squares,

        m ← β m + (1 - β) mean(x),   s ← β s + (1 - β) mean(x²),   d ← β d + (1 - β),
        μ = m / d,   σ² = max(s / d - μ², 0.01),

    and a critic learns (x - μ) / σ. Advantages need values in the rewards' own scale: denormalise
    values before estimating them.

    Deviations from the code of Yu et al.: the averages are float64, because s / d - μ² cancels in
    float32 where μ is far larger than σ; before the first update μ = 0 and σ = 1, while their σ of
    0.1 scales the first values down.

    Source:
        Yu et al. 2022, https://arxiv.org/abs/2103.01955, and its code (``valuenorm.py``).

    Args:
        beta: decay of the averages per update, in [0, 1).

    Raises:
        ValueError: ``beta`` is out of range.
    """

    mean_sum: Tensor
    square_sum: Tensor
    weight_sum: Tensor

    def __init__(self, beta: float = 0.99999) -> None:
        super().__init__()
        if not 0 <= beta < 1:
            raise ValueError(f"beta must lie in [0, 1), got {beta}")
        self.beta = beta
        for name in ("mean_sum", "square_sum", "weight_sum"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @property
    def mean(self) -> Tensor:
        """() μ in float64."""
        return torch.where(self.weight_sum > 0, self.mean_sum / self._weight(), 0.0)

    @property
    def std(self) -> Tensor:
        """() σ in float64."""
        variance = self.square_sum / self._weight() - self.mean**2
        floored = variance.clamp(min=0.01)
        return torch.where(self.weight_sum > 0, floored, 1.0).sqrt()

    @torch.no_grad()
    def update(self, targets: Tensor) -> None:
        """Take in value targets of any shape, in the rewards' own scale.

        Args:
            targets: value targets of active rows only.

        Raises:
            ValueError: there are no targets.
        """
        if not targets.numel():
            raise ValueError("update needs at least one value target, got none")
        numbers = targets.detach().to(self.mean_sum)
        keep, add = self.beta, 1 - self.beta
        self.mean_sum.mul_(keep).add_(numbers.mean() * add)
        self.square_sum.mul_(keep).add_(numbers.square().mean() * add)
        self.weight_sum.mul_(keep).add_(add)

    def normalize(self, values: Tensor) -> Tensor:
        """Return (values - μ) / σ in the dtype of ``values``."""
        return (values - self.mean.to(values)) / self.std.to(values)

    def denormalize(self, values: Tensor) -> Tensor:
        """Return σ · values + μ in the dtype of ``values``."""
        return values * self.std.to(values) + self.mean.to(values)

    def _weight(self) -> Tensor:
        return self.weight_sum.clamp(min=torch.finfo(torch.float64).tiny)


class PopArt(ValueNorm):
    """A value head that keeps its denormalised outputs when the normalisation changes.

    An update from μ, σ to μ', σ' sets w ← σ w / σ' and b ← (σ b + μ - μ') / σ', so that
    σ' (w x + b) + μ' does not change.

    Source:
        van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714.

    Args:
        features: number of inputs F.
        beta: decay of the averages per update, in [0, 1).
        generator: source of the weights, which are orthogonal; ``None`` uses torch's global one.
    """

    def __init__(
        self, features: int, beta: float = 0.99999, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(beta)
        self.head: Any = orthogonal(nn.Linear, features, 1, gain=1.0, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B,) normalised values of (B, F) features."""
        values: Tensor = self.head(features)
        return values.squeeze(-1)

    @torch.no_grad()
    def update(self, targets: Tensor) -> None:
        """Take in value targets, and rescale the head; see :meth:`ValueNorm.update`.

        Raises:
            ValueError: there is no target.
        """
        mean, std = self.mean, self.std
        super().update(targets)
        scale, shift = std / self.std, (mean - self.mean) / self.std
        # in place, because optimisers hold these tensors
        self.head.weight.mul_(scale.to(self.head.weight))
        self.head.bias.mul_(scale.to(self.head.bias)).add_(shift.to(self.head.bias))


class TeamPolicy(Policy):
    """Two networks: the actor sees an agent's observation, the critic may see more.

    Args:
        view: the leaves for actor and critic, and the action space.
        hidden: width of both hidden layers, or widths of any number of them.
        network: how boxes become features; see :data:`rlox.nn.EncoderKind`.
        normalize_values: ``"value_norm"`` and ``"popart"`` normalise the critic's outputs.
        generator: source of the weights and of the sampled actions; ``None`` uses torch's global
            one.

    Raises:
        SpaceError: no encoder fits an observation, or no distribution fits the actions.
    """

    actor: nn.ModuleDict
    critic: nn.ModuleDict
    value_norm: ValueNorm | None
    """Normalises value targets; ``None``: the critic's outputs are values."""

    def __init__(
        self,
        view: PolicyView,
        *,
        hidden: Hidden = 64,
        network: EncoderKind = "auto",
        normalize_values: Literal["none", "value_norm", "popart"] = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        _make_networks(self, view, Layers.expand(hidden), None, network, normalize_values)

    def encode(self, obs: Any) -> Any:
        """Return the leaves unchanged."""
        return obs

    def distribution(self, features: Any, action_masks: Tensor | None = None) -> Distribution:
        """Return the distributions of B actions from the actor's leaves."""
        actor = self.actor
        outputs = actor["layers"](actor["encoder"](features))
        return actor["head"](outputs, action_masks)  # type: ignore[no-any-return]

    def perceptrons(self) -> SeparatePerceptrons | None:
        """Return the two networks for learner backends, or ``None`` if they do not fit."""
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
            return critic["head"](outputs)  # type: ignore[no-any-return]
        return outputs.squeeze(-1)

    def get_value(self, obs: Any) -> Tensor:
        """Return values (B,) in the rewards' own scale."""
        values = self.value(obs)
        return values if self.value_norm is None else self.value_norm.denormalize(values)


class RecurrentTeamPolicy(Recurrent):
    """Two networks with a recurrent layer each; their inputs are those of :class:`TeamPolicy`.

    The state has one row per agent: the actor's memory, then the critic's.

    Args:
        view: the leaves for actor and critic, and the action space.
        kind: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer, after the encoder.
        hidden: width of the hidden layer after it, or widths of several.
        network: this and the arguments below are :class:`TeamPolicy`'s.
        normalize_values: how value targets are normalised.
        generator: source of weights and samples.
    """

    actor: nn.ModuleDict
    critic: nn.ModuleDict
    value_norm: ValueNorm | None
    """Normalises value targets; ``None``: the critic's outputs are values."""

    def __init__(
        self,
        view: PolicyView,
        kind: Literal["lstm", "gru"],
        *,
        memory_size: int = 64,
        hidden: Hidden = 64,
        network: EncoderKind = "auto",
        normalize_values: Literal["none", "value_norm", "popart"] = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(generator=generator)
        memory = kind, memory_size
        after = Layers.expand(hidden, 1)
        _make_networks(self, view, after, memory, network, normalize_values)
        self.state_size = 2 * int(self.actor["memory"].state_size)  # type: ignore[arg-type]

    def step(
        self, obs: Any, state: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Distribution, Tensor, Tensor]:
        """Take in N observations; see :class:`rlox.protocols.RecurrentActor`."""
        distribution, values, after = super().step(obs, state, action_masks)
        if self.value_norm is not None:
            values = self.value_norm.denormalize(values)
        return distribution, values, after

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; they need the actor's memory only."""
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
        values = self.critic["head"](judged) if popart else judged.squeeze(-1)
        return self.actor["head"](chosen, action_masks), values, torch.cat(after, -1)


def _make_networks(
    policy: Any,
    view: PolicyView,
    hidden: Layers,
    memory: tuple[Any, int] | None,
    network: EncoderKind,
    normalize_values: str,
) -> None:
    """Set a policy's actor and critic; ``memory`` is the kind and size of a recurrent layer."""
    generator = policy.generator

    def part(space: Any, *sizes: int, gain: float, **more: nn.Module) -> nn.ModuleDict:
        # within a team, some agents may see images and others vectors
        conv = hidden.conv if has_image(space, network) else "auto"
        encoder = make_encoder(space, kind=network, conv=conv, generator=generator)
        features = int(encoder.output_size)  # type: ignore[arg-type]
        modules = nn.ModuleDict({"encoder": encoder, **more})
        if memory is not None:
            modules["memory"] = Memory(features, memory[1], memory[0], generator=generator)
            features = memory[1]
        options: Any = {"critic": "head" not in more, "output_gain": gain, "generator": generator}
        modules["layers"] = make_mlp(features, hidden, *sizes, **options)
        return modules

    head = ActionHead(view.group.action_space, log_std=hidden.log_std)
    policy.actor = part(view.actor_space, head.output_size, gain=0.01, head=head)
    if normalize_values == "popart":
        policy.critic = part(view.critic_space, gain=math.sqrt(2))
        policy.value_norm = PopArt(hidden.critic_hidden[-1], generator=generator)  # type: ignore[index]
        policy.critic["head"] = policy.value_norm
    else:
        policy.critic = part(view.critic_space, 1, gain=1.0)
        policy.value_norm = ValueNorm() if normalize_values == "value_norm" else None


class ActorCriticOptimizer:
    """Two optimisers that step together; see :class:`rlox.protocols.Optimizer`.

    Args:
        actor: all modules except the critic.
        critic: shares no parameter with the actor.
        make_optimizer: see :class:`rlox.nn.FlatOptimizer`.
        max_grad_norm: bound of each part's gradient norm.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        make_optimizer: partial[Any],
        *,
        max_grad_norm: float,
    ) -> None:
        self._parts = {
            name: FlatOptimizer(part, make_optimizer, max_grad_norm=max_grad_norm)
            for name, part in (("actor", actor), ("critic", critic))
        }
        self.critic_learning_rate: float | None = None
        """The critic's current step size; ``None``: the actor's."""
        self._applied = True

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss``, discarding earlier gradients."""
        self._applied = True
        self.backward(loss)
        self.apply(learning_rate)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss`` to both parts' gradients, which a step resets to 0."""
        if self._applied:
            for part in self._parts.values():
                part.gradients.zero_()
            self._applied = False
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, learning_rate: float | None = None) -> None:
        """Clip each part's gradient and take a step."""
        critic_rate = self.critic_learning_rate
        self._parts["actor"].apply(learning_rate)
        self._parts["critic"].apply(learning_rate if critic_rate is None else critic_rate)
        self._applied = True

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not reach the parameters."""
        for part in self._parts.values():
            part.require_views()

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        return all(part.is_finite() for part in self._parts.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both optimisers."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])


def make_optimizer(policy: nn.Module, config: Any) -> FlatOptimizer | ActorCriticOptimizer:
    """Return Adam for a policy, or one Adam each for its actor and critic.

    Args:
        policy: a team's policy, on its device.
        config: has ``adam_eps``, ``max_grad_norm`` and ``critic_learning_rate``.

    Raises:
        ConfigError: ``critic_learning_rate`` is set and the policy is the user's.
    """
    adam = partial(torch.optim.Adam, eps=config.adam_eps, fused=True)
    if config.critic_learning_rate is None:
        return FlatOptimizer(policy, adam, max_grad_norm=config.max_grad_norm)
    if not isinstance(policy, TeamPolicy | RecurrentTeamPolicy):
        raise ConfigError(
            "critic_learning_rate needs the default policies, whose actors and critics share "
            f"no parameters, got {type(policy).__name__}; leave one of them out"
        )
    bound = config.max_grad_norm
    return ActorCriticOptimizer(policy.actor, policy.critic, adam, max_grad_norm=bound)
