"""Default models, by the specs of an env."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from rlox.errors import SpaceError
from rlox.nn import make_encoder
from rlox.spaces import split
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from rlox_rl8._specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    TensorSpec,
    Unbounded,
)
from rlox_rl8.models.base import Model, RecurrentModel
from rlox_rl8.nn.modules import MLP, get_activation
from rlox_rl8.spaces import space_of

__all__ = [
    "DefaultContinuousModel",
    "DefaultContinuousRecurrentModel",
    "DefaultDiscreteModel",
    "DefaultDiscreteRecurrentModel",
    "default_models",
    "layers_of",
]


def default_models(
    observation_spec: TensorSpec, action_spec: TensorSpec, /
) -> tuple[type[Model], type[RecurrentModel]]:
    """Return the default classes, feed-forward and recurrent, for an env's specs.

    Observations are numbers, choices, switches, images of uint8, or a ``Composite`` of these;
    actions one dimension of choices, switches or numbers, bounded or not.

    Raises:
        TypeError: there is none; pass ``model_cls=``.
    """
    try:
        _Encoder(observation_spec)
    except SpaceError as error:
        raise TypeError(
            f"the default models do not take these observations: {error}; pass model_cls="
        ) from None
    if not isinstance(action_spec, (Categorical, Unbounded, Bounded)) or len(action_spec.shape) > 1:
        raise TypeError(
            "the default models take actions of one dimension of a Categorical, MultiCategorical, "
            f"Binary, Unbounded or Bounded spec, got {type(action_spec).__name__} of shape "
            f"{tuple(action_spec.shape)}; pass model_cls="
        )
    if isinstance(action_spec, Categorical):
        return DefaultDiscreteModel, DefaultDiscreteRecurrentModel
    return DefaultContinuousModel, DefaultContinuousRecurrentModel


def layers_of(
    model: nn.Module,
) -> tuple[tuple[nn.Linear, ...], tuple[nn.Linear, ...], type[nn.Module], nn.LSTM | None] | None:
    """Return policy's and value's layers, the activation and the memory of a default model.

    ``None`` of any other, and of one that does not see a single vector of numbers.
    """
    if type(model) not in DEFAULTS:
        return None
    assert isinstance(model, (_Perceptrons, _LSTM))
    if model.encoder.encoder is not None or model.head.kind not in (Categorical, Unbounded):
        return None
    if isinstance(model, _LSTM):  # without hidden layers, whose activation this would be
        return (model.head.linear,), (model.vf,), nn.Tanh, model.lstm
    value: Any = model.vf
    actor, critic = list(model.latents), list(value[0])
    kinds = {type(each) for each in (*actor, *critic)} - {nn.Linear}
    if len(kinds) != 1:
        return None
    linear = [tuple(x for x in part if type(x) is nn.Linear) for part in (actor, critic)]
    return (*linear[0], model.head.linear), (*linear[1], value[1]), kinds.pop(), None


class _Encoder(nn.Module):
    """Features (N, size) of observations (N, ...); a vector of numbers is its own."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__()
        self.encoder: nn.Module | None = None
        if isinstance(spec, (Unbounded, Bounded)) and len(spec.shape) == 1:
            self.size = spec.shape[0]
            return
        self._space = space_of(spec)
        self.encoder = make_encoder(self._space)
        self.size = int(self.encoder.output_size)  # type: ignore[arg-type]

    def forward(self, obs: Any) -> Tensor:
        if self.encoder is None:
            vector: Tensor = obs
            return vector
        if isinstance(obs, TensorDict):
            obs = split(self._space, obs.to_dict())
        features: Tensor = self.encoder(obs)
        return features


class _Head(nn.Module):
    """Features of actions from latent vectors, near 0 at first."""

    def __init__(self, width: int, action_spec: Any, bias: bool = True) -> None:
        super().__init__()
        self.actions = action_spec.shape[0]
        # torchrl's specs of switches and of choices of unequal numbers derive from Categorical
        kinds: Any = (Binary, MultiCategorical, Categorical, Bounded)
        self.kind = next((kind for kind in kinds if isinstance(action_spec, kind)), Unbounded)
        self.discrete = isinstance(action_spec, Categorical)
        sizes = {
            Binary: self.actions,
            MultiCategorical: sum(getattr(action_spec, "nvec", ())),
            Categorical: self.actions * int(getattr(action_spec, "n", 0) or 0),
        }
        size = int(sizes.get(self.kind, 2 * self.actions))
        self.linear = nn.Linear(width, size, bias=bias)
        nn.init.uniform_(self.linear.weight, -1e-3, 1e-3)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, latents: Tensor) -> TensorDict:
        out = self.linear(latents)
        if self.kind is Categorical:
            features = {"logits": out.unflatten(-1, (self.actions, -1))}
        elif self.kind in (Binary, MultiCategorical):
            features = {"logits": out}
        elif self.kind is Bounded:
            alpha, beta = (1.0 + F.softplus(half).clamp(min=1e-4) for half in out.chunk(2, -1))
            features = {"alpha": alpha, "beta": beta}
        else:
            mean, log_std = out.chunk(2, -1)
            features = {"mean": mean, "log_std": log_std.tanh()}
        return TensorDict(features, batch_size=[len(out)])


def _perceptron(size: int, hiddens: Sequence[int], activation_fn: str, bias: bool) -> nn.Sequential:
    """Return linear layers, each followed by its activation."""
    layers = MLP(size, hiddens, activation_fn=activation_fn, bias=bias, inplace=True)
    return nn.Sequential(*layers, get_activation(activation_fn, inplace=True))


class _Perceptrons(Model):
    """Separate perceptrons for the policy and the value."""

    def __init__(
        self,
        observation_spec: TensorSpec,
        action_spec: TensorSpec,
        /,
        *,
        hiddens: Sequence[int] = (256, 256),
        activation_fn: str = "relu",
        bias: bool = True,
    ) -> None:
        super().__init__(
            observation_spec, action_spec, hiddens=hiddens, activation_fn=activation_fn, bias=bias
        )
        self.encoder, width = _Encoder(observation_spec), hiddens[-1]
        perceptron = partial(_perceptron, self.encoder.size, hiddens, activation_fn, bias)
        self.latents = perceptron()
        self.head = _Head(width, action_spec, bias)
        self.vf = nn.Sequential(perceptron(), nn.Linear(width, 1))
        self._seen: Tensor | None = None

    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of actions."""
        self._seen = self.encoder(batch["obs"])
        out: TensorDict = self.head(self.latents(self._seen))
        return out

    def value_function(self) -> Tensor:
        """Return the values (N, 1) of the last observations."""
        assert self._seen is not None, "forward() comes first"
        values: Tensor = self.vf(self._seen)
        return values


class DefaultDiscreteModel(_Perceptrons):
    """Perceptrons for discrete actions.

    Args:
        hiddens: widths.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        bias: whether layers have one.
    """


class DefaultContinuousModel(_Perceptrons):
    """Perceptrons for continuous actions.

    Unbounded ones are normal, with deviations in [1/e, e]; bounded ones are of a beta distribution.

    Args:
        hiddens: widths.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        bias: whether layers have one.
    """


class _LSTM(RecurrentModel):
    def __init__(
        self,
        observation_spec: TensorSpec,
        action_spec: TensorSpec,
        /,
        *,
        hidden_size: int = 256,
        num_layers: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            observation_spec, action_spec, hidden_size=hidden_size, num_layers=num_layers, bias=bias
        )
        device = observation_spec.device
        shape = torch.Size([num_layers, hidden_size])
        self.state_spec = Composite(
            hidden_states=Unbounded(shape, device=device),
            cell_states=Unbounded(shape, device=device),
        )
        self.encoder = _Encoder(observation_spec)
        self.lstm = nn.LSTM(
            self.encoder.size, hidden_size, num_layers=num_layers, bias=bias, batch_first=True
        )
        self.head = _Head(hidden_size, action_spec, bias)
        self.vf = nn.Linear(hidden_size, 1)
        self._latents: Tensor | None = None

    def forward(self, batch: TensorDict, states: TensorDict, /) -> tuple[TensorDict, TensorDict]:
        """Return features (B·T) and the states (B) after them."""
        h, c = (states[k].movedim(0, 1).contiguous() for k in ("hidden_states", "cell_states"))
        seen = self.encoder(batch["obs"].flatten(0, 1)).unflatten(0, tuple(batch.shape))
        latents, (h, c) = self._remember(seen, (h, c))
        self._latents = latents.flatten(0, 1)
        after = {"hidden_states": h.movedim(0, 1), "cell_states": c.movedim(0, 1)}
        return self.head(self._latents), TensorDict(after, batch_size=[batch.shape[0]])

    def _remember(self, seen: Tensor, states: tuple[Tensor, Tensor]) -> Any:
        """Run the LSTM, in single precision where the processor has none in half."""
        if seen.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or _has_half_lstm():
            return self.lstm(seen, states)
        with torch.autocast("cpu", enabled=False):
            return self.lstm(seen.float(), states)

    def value_function(self) -> Tensor:
        """Return the values (B·T, 1)."""
        assert self._latents is not None, "forward() comes first"
        values: Tensor = self.vf(self._latents)
        return values


def _has_half_lstm() -> bool:
    """Return whether oneDNN, which torch asks for it, has an LSTM in bfloat16."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class DefaultDiscreteRecurrentModel(_LSTM):
    """An LSTM for discrete actions; policy and value share it.

    Args:
        hidden_size: units.
        num_layers: layers.
        bias: whether layers have one.
    """


class DefaultContinuousRecurrentModel(_LSTM):
    """An LSTM for continuous actions; policy and value share it.

    Args:
        hidden_size: units.
        num_layers: layers.
        bias: whether layers have one.
    """


DEFAULTS = (
    DefaultDiscreteModel,
    DefaultContinuousModel,
    DefaultDiscreteRecurrentModel,
    DefaultContinuousRecurrentModel,
)
