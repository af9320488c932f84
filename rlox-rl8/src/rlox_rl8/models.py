"""Models of policies and values, and defaults for an env's specs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import torch
from rlox.errors import SpaceError
from rlox.nn import make_encoder
from rlox.spaces import split
from tensordict import TensorDict
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from rlox_rl8 import _specs as specs
from rlox_rl8._specs import TensorSpec
from rlox_rl8.nn.modules import MLP, Module, get_activation
from rlox_rl8.spaces import space_of
from rlox_rl8.views import ViewKind, ViewRequirement

P = ParamSpec("P")
T = TypeVar("T")
ObservationSpecT = TypeVar("ObservationSpecT", bound=TensorSpec)
ActionSpecT = TypeVar("ActionSpecT", bound=TensorSpec)


class GenericModelBase(Module[P, T]):
    """Base of both kinds; specs are those of one env, and ``config`` is for a subclass."""

    def __init__(
        self, observation_spec: TensorSpec, action_spec: TensorSpec, /, **config: Any
    ) -> None:
        super().__init__()
        self.observation_spec = observation_spec
        self.action_spec = action_spec
        self.config = config
        self.view_requirements: dict[Any, ViewRequirement] = {"obs": ViewRequirement(shift=0)}
        """Visible past of each entry; an entry is a key or a tuple of keys."""

    @property
    def sees_past(self) -> bool:
        """Whether any view reaches back."""
        return any(requirement.shift for requirement in self.view_requirements.values())

    def apply_view_requirements(
        self, batch: TensorDict, /, *, kind: ViewKind = "last"
    ) -> TensorDict:
        """Return the views of a batch (B, T): B rows for ``"last"``, B·T for ``"all"``."""
        rows = batch.shape[0] * (batch.shape[1] if kind == "all" else 1)
        out = TensorDict({}, batch_size=[rows], device=batch.device)
        for key, view in self.view_requirements.items():
            out[key] = (view.apply_all if kind == "all" else view.apply_last)(key, batch)
        return out

    @property
    def drop_size(self) -> int:
        """Steps of each env without a view: the maximum over all requirements."""
        return max((view.drop_size for view in self.view_requirements.values()), default=0)

    def validate_view_requirements(self) -> None:
        """Check that all views leave out the same number of steps.

        Raises:
            ValueError: the numbers differ, so the views' rows would not match.
        """
        dropped = {str(key): view.drop_size for key, view in self.view_requirements.items()}
        if len(set(dropped.values())) > 1:
            raise ValueError(f"view requirements must drop equally many steps, got {dropped}")

    @property
    def device(self) -> torch.device:
        """Device of the parameters, or of the observations' spec if there are none."""
        first = next(self.parameters(), self.observation_spec)
        return torch.device(first.device)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move parameters and specs, and return this model."""
        moved = super().to(*args, **kwargs)
        device, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None:
            for name in ("observation_spec", "action_spec", "state_spec"):
                if hasattr(self, name):
                    setattr(self, name, getattr(self, name).to(device))
        return moved

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and files: all except tensors with a graph."""
        return {
            key: None if isinstance(value, Tensor) and value.grad_fn is not None else value
            for key, value in self.__dict__.items()
        }

    @abstractmethod
    def value_function(self) -> Tensor:
        """Return the values (N, 1) of the last call."""


class Model(GenericModelBase[[TensorDict], TensorDict]):
    """A feed-forward model; ``view_requirements`` sets the past observations that it sees."""

    @abstractmethod
    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of N rows for views of N rows."""

    @staticmethod
    def default_model_cls(observation_spec: TensorSpec, action_spec: TensorSpec, /) -> type[Model]:
        """Return the default class for an env's specs.

        Raises:
            TypeError: there is none; pass ``model_cls=``.
        """
        return default_models(observation_spec, action_spec)[0]


class RecurrentModel(GenericModelBase[[TensorDict, TensorDict], tuple[TensorDict, TensorDict]]):
    """A model with states; ``state_spec`` describes those of one env.

    If ``view_requirements`` reach back, it is called with the views (B, T) instead of the batch.
    """

    state_spec: specs.Composite

    @abstractmethod
    def forward(self, batch: TensorDict, states: TensorDict, /) -> tuple[TensorDict, TensorDict]:
        """Return features of B·T rows and the states (B) after T steps of a batch (B, T)."""

    def init_states(self, n: int, /) -> TensorDict:
        """Return the initial states of n sequences; 0 unless overridden."""
        return self.state_spec.expand(n, *self.state_spec.shape).zero()

    @staticmethod
    def default_model_cls(
        observation_spec: TensorSpec, action_spec: TensorSpec, /
    ) -> type[RecurrentModel]:
        """Return the default class; see :meth:`Model.default_model_cls`."""
        return default_models(observation_spec, action_spec)[1]


class GenericModel(Model, Generic[ObservationSpecT, ActionSpecT]):
    """A feed-forward model whose specs are typed."""

    observation_spec: ObservationSpecT
    action_spec: ActionSpecT


class GenericRecurrentModel(RecurrentModel, Generic[ObservationSpecT, ActionSpecT]):
    """A recurrent model whose specs are typed."""

    observation_spec: ObservationSpecT
    action_spec: ActionSpecT


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


def default_models(
    observation_spec: TensorSpec, action_spec: TensorSpec, /
) -> tuple[type[Model], type[RecurrentModel]]:
    """Return the default classes, feed-forward and recurrent, for an env's specs.

    Observations are floats, categorical or binary entries, uint8 images, or a ``Composite`` of
    these; actions have one dimension of categories, binary entries or floats, bounded or not.

    Raises:
        TypeError: there is none; pass ``model_cls=``.
    """
    try:
        _Encoder(observation_spec)
    except SpaceError as error:
        raise TypeError(
            f"the default models do not take these observations: {error}; pass model_cls="
        ) from None
    if specs.kind_of(action_spec) in (None, specs.Composite) or len(action_spec.shape) > 1:
        raise TypeError(
            "the default models take actions of one dimension of a Categorical, MultiCategorical, "
            f"Binary, Unbounded or Bounded spec, got {type(action_spec).__name__} of shape "
            f"{tuple(action_spec.shape)}; pass model_cls="
        )
    if isinstance(action_spec, specs.Categorical):
        return DefaultDiscreteModel, DefaultDiscreteRecurrentModel
    return DefaultContinuousModel, DefaultContinuousRecurrentModel


class _Encoder(nn.Module):
    """Features (N, size) of observations (N, ...); float vectors pass unchanged."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__()
        self.encoder: nn.Module | None = None
        if isinstance(spec, (specs.Unbounded, specs.Bounded)) and len(spec.shape) == 1:
            self.size = spec.shape[0]
            return
        self._space = space_of(spec)
        self.encoder = make_encoder(self._space)
        self.size = int(self.encoder.output_size)  # type: ignore[arg-type]

    def forward(self, obs: Any) -> Tensor:
        if self.encoder is None:
            return obs  # type: ignore[no-any-return]
        if isinstance(obs, TensorDict):
            obs = split(self._space, obs.to_dict())
        return self.encoder(obs)  # type: ignore[no-any-return]


class _Head(nn.Module):
    """Features of actions from latent vectors, initially near 0."""

    def __init__(self, width: int, action_spec: Any, bias: bool = True) -> None:
        super().__init__()
        self.actions = action_spec.shape[0]
        self.kind = specs.kind_of(action_spec)
        self.discrete = isinstance(action_spec, specs.Categorical)
        if self.kind is specs.MultiCategorical:
            size = int(sum(action_spec.nvec))
        elif self.kind is specs.Categorical:
            size = self.actions * int(action_spec.n)
        else:
            size = self.actions * (1 if self.kind is specs.Binary else 2)
        self.linear = nn.Linear(width, size, bias=bias)
        nn.init.uniform_(self.linear.weight, -1e-3, 1e-3)
        if bias:
            nn.init.zeros_(self.linear.bias)

    def forward(self, latents: Tensor) -> TensorDict:
        out = self.linear(latents)
        if self.kind is specs.Categorical:
            features = {"logits": out.unflatten(-1, (self.actions, -1))}
        elif self.kind in (specs.Binary, specs.MultiCategorical):
            features = {"logits": out}
        elif self.kind is specs.Bounded:
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
        config = {"hiddens": hiddens, "activation_fn": activation_fn, "bias": bias}
        super().__init__(observation_spec, action_spec, **config)
        self.encoder, width = _Encoder(observation_spec), hiddens[-1]
        perceptron = partial(_perceptron, self.encoder.size, hiddens, activation_fn, bias)
        self.latents = perceptron()
        self.head = _Head(width, action_spec, bias)
        self.vf = nn.Sequential(perceptron(), nn.Linear(width, 1))
        self._seen: Tensor | None = None

    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of actions."""
        self._seen = self.encoder(batch["obs"])
        return self.head(self.latents(self._seen))

    def value_function(self) -> Tensor:
        """Return the values (N, 1) of the last observations."""
        assert self._seen is not None, "forward() comes first"
        return self.vf(self._seen)  # type: ignore[no-any-return]


class DefaultDiscreteModel(_Perceptrons):
    """Perceptrons for discrete actions.

    Args:
        hiddens: widths.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        bias: whether layers have one.
    """


class DefaultContinuousModel(_Perceptrons):
    """:class:`DefaultDiscreteModel` for continuous actions.

    Unbounded ones are normal, with deviations in [1/e, e]; bounded ones have a beta distribution.
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
        config = {"hidden_size": hidden_size, "num_layers": num_layers, "bias": bias}
        super().__init__(observation_spec, action_spec, **config)
        one = specs.Unbounded(torch.Size([num_layers, hidden_size]), device=observation_spec.device)
        self.state_spec = specs.Composite(hidden_states=one, cell_states=one.clone())
        self.encoder = _Encoder(observation_spec)
        self.lstm = nn.LSTM(self.encoder.size, batch_first=True, **config)
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
        return self.vf(self._latents)  # type: ignore[no-any-return]


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
    """:class:`DefaultDiscreteRecurrentModel` for continuous actions."""


PERCEPTRONS = (DefaultDiscreteModel, DefaultContinuousModel)
DEFAULTS = (*PERCEPTRONS, DefaultDiscreteRecurrentModel, DefaultContinuousRecurrentModel)
