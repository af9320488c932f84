"""Feed-forward and recurrent models, and the default ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlox_rl8._specs import Categorical, Composite, TensorSpec, Unbounded
from rlox_rl8.nn.modules import MLP
from rlox_rl8.views import ViewKind, ViewRequirement

__all__ = [
    "DefaultContinuousModel",
    "DefaultContinuousRecurrentModel",
    "DefaultDiscreteModel",
    "DefaultDiscreteRecurrentModel",
    "GenericModelBase",
    "Model",
    "ModelFactory",
    "RecurrentModel",
    "RecurrentModelFactory",
]


class GenericModelBase(nn.Module, ABC):
    """Parent of both kinds.

    Args:
        observation_spec: of one env.
        action_spec: of one env.
        config: options of a subclass.
    """

    def __init__(
        self, observation_spec: TensorSpec, action_spec: TensorSpec, /, **config: Any
    ) -> None:
        super().__init__()
        self.observation_spec = observation_spec
        self.action_spec = action_spec
        self.config = config

    @abstractmethod
    def value_function(self) -> Tensor:
        """Return the values (N, 1) that belong to the last call."""


class Model(GenericModelBase):
    """A feed-forward model; ``view_requirements`` says which past observations it sees."""

    def __init__(
        self, observation_spec: TensorSpec, action_spec: TensorSpec, /, **config: Any
    ) -> None:
        super().__init__(observation_spec, action_spec, **config)
        self.view_requirements: dict[Any, ViewRequirement] = {"obs": ViewRequirement(shift=0)}

    def apply_view_requirements(
        self, batch: TensorDict, /, *, kind: ViewKind = "last"
    ) -> TensorDict:
        """Return the views of a batch (B, T): B rows for ``"last"``, B·T for ``"all"``."""
        rows = batch.shape[0] * (batch.shape[1] if kind == "all" else 1)
        parts = {
            key: requirement.apply(batch[key], kind)
            for key, requirement in self.view_requirements.items()
        }
        if all(isinstance(key, str) for key in parts):
            return TensorDict(parts, batch_size=[rows], device=batch.device)
        out = TensorDict({}, batch_size=[rows], device=batch.device)
        for key, part in parts.items():
            out[key] = part  # tuples name nested entries
        return out

    @abstractmethod
    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of N rows for views of N rows."""

    @staticmethod
    def default_model_cls(observation_spec: TensorSpec, action_spec: TensorSpec, /) -> type[Model]:
        """Return the default class for an env's specs.

        Raises:
            TypeError: there is none; pass ``model_cls=``.
        """
        discrete = _require_defaults(observation_spec, action_spec)
        return DefaultDiscreteModel if discrete else DefaultContinuousModel


class RecurrentModel(GenericModelBase):
    """A model with states, which ``state_spec`` describes for one env."""

    state_spec: Composite

    @abstractmethod
    def forward(self, batch: TensorDict, states: TensorDict, /) -> tuple[TensorDict, TensorDict]:
        """Return features of B·T rows and the states (B) after T steps of a batch (B, T)."""

    def init_states(self, n: int, /) -> TensorDict:
        """Return the states that n sequences start from; 0 unless overridden."""
        states: TensorDict = self.state_spec.expand(n, *self.state_spec.shape).zero()
        return states

    @staticmethod
    def default_model_cls(
        observation_spec: TensorSpec, action_spec: TensorSpec, /
    ) -> type[RecurrentModel]:
        """Return the default class; see :meth:`Model.default_model_cls`."""
        discrete = _require_defaults(observation_spec, action_spec)
        return DefaultDiscreteRecurrentModel if discrete else DefaultContinuousRecurrentModel


class ModelFactory(Protocol):
    """A class of models, or a function with the same arguments."""

    def __call__(
        self, observation_spec: TensorSpec, action_spec: TensorSpec, /, **config: Any
    ) -> Model:
        """Return a model."""


class RecurrentModelFactory(Protocol):
    """The same for recurrent models."""

    def __call__(
        self, observation_spec: TensorSpec, action_spec: TensorSpec, /, **config: Any
    ) -> RecurrentModel:
        """Return a model."""


def _require_defaults(observation_spec: TensorSpec, action_spec: TensorSpec) -> bool:
    """Return whether actions are discrete."""
    if not isinstance(observation_spec, Unbounded) or len(observation_spec.shape) != 1:
        raise TypeError(
            "the default models take observations of one Unbounded dimension, got "
            f"{type(observation_spec).__name__} of shape {tuple(observation_spec.shape)}; "
            "pass model_cls="
        )
    if not isinstance(action_spec, (Categorical, Unbounded)) or len(action_spec.shape) != 1:
        raise TypeError(
            "the default models take actions of one Categorical or Unbounded dimension, got "
            f"{type(action_spec).__name__} of shape {tuple(action_spec.shape)}; pass model_cls="
        )
    return isinstance(action_spec, Categorical)


class _Head(nn.Module):
    """Features of actions from latent vectors, near 0 at first."""

    def __init__(self, width: int, action_spec: Any) -> None:
        super().__init__()
        self.actions = action_spec.shape[0]
        self.discrete = isinstance(action_spec, Categorical)
        size = self.actions * (action_spec.space.n if self.discrete else 2)
        self.linear = nn.Linear(width, size)
        nn.init.uniform_(self.linear.weight, -1e-3, 1e-3)
        nn.init.zeros_(self.linear.bias)

    def forward(self, latents: Tensor) -> TensorDict:
        out = self.linear(latents)
        if self.discrete:
            features = {"logits": out.unflatten(-1, (self.actions, -1))}
        else:
            mean, log_std = out.chunk(2, -1)
            features = {"mean": mean, "log_std": log_std.tanh()}
        return TensorDict(features, batch_size=[len(out)])


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
    ) -> None:
        super().__init__(
            observation_spec, action_spec, hiddens=hiddens, activation_fn=activation_fn
        )
        size, width = observation_spec.shape[0], hiddens[-1]
        mlp = partial(MLP, size, hiddens, activation_fn=activation_fn, inplace=True)
        self.latents = mlp()
        self.head = _Head(width, action_spec)
        self.vf = nn.Sequential(mlp(), nn.Linear(width, 1))
        self._obs: Tensor | None = None

    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of actions."""
        self._obs = batch["obs"]
        out: TensorDict = self.head(self.latents(self._obs))
        return out

    def value_function(self) -> Tensor:
        """Return the values (N, 1) of the last observations."""
        assert self._obs is not None, "forward() comes first"
        values: Tensor = self.vf(self._obs)
        return values


class DefaultDiscreteModel(_Perceptrons):
    """Perceptrons for discrete actions.

    Args:
        hiddens: widths.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
    """


class DefaultContinuousModel(_Perceptrons):
    """Perceptrons for continuous actions, whose deviation lies in [1/e, e].

    Args:
        hiddens: widths.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
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
    ) -> None:
        super().__init__(
            observation_spec, action_spec, hidden_size=hidden_size, num_layers=num_layers
        )
        device = observation_spec.device
        shape = torch.Size([num_layers, hidden_size])
        self.state_spec = Composite(
            hidden_states=Unbounded(shape, device=device),
            cell_states=Unbounded(shape, device=device),
        )
        self.lstm = nn.LSTM(
            observation_spec.shape[0], hidden_size, num_layers=num_layers, batch_first=True
        )
        self.head = _Head(hidden_size, action_spec)
        self.vf = nn.Linear(hidden_size, 1)
        self._latents: Tensor | None = None

    def forward(self, batch: TensorDict, states: TensorDict, /) -> tuple[TensorDict, TensorDict]:
        """Return features (B·T) and the states (B) after them."""
        h, c = (states[k].movedim(0, 1).contiguous() for k in ("hidden_states", "cell_states"))
        latents, (h, c) = self.lstm(batch["obs"], (h, c))
        self._latents = latents.flatten(0, 1)
        after = {"hidden_states": h.movedim(0, 1), "cell_states": c.movedim(0, 1)}
        return self.head(self._latents), TensorDict(after, batch_size=[batch.shape[0]])

    def value_function(self) -> Tensor:
        """Return the values (B·T, 1)."""
        assert self._latents is not None, "forward() comes first"
        values: Tensor = self.vf(self._latents)
        return values


class DefaultDiscreteRecurrentModel(_LSTM):
    """An LSTM for discrete actions; policy and value share it.

    Args:
        hidden_size: units.
        num_layers: layers.
    """


class DefaultContinuousRecurrentModel(_LSTM):
    """An LSTM for continuous actions; policy and value share it.

    Args:
        hidden_size: units.
        num_layers: layers.
    """
