"""Parents of feed-forward and recurrent models."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import torch
from rlox.registry.table import resolve
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8._specs import Composite, TensorSpec
from rlox_rl8.nn.modules.module import Module
from rlox_rl8.views import ViewKind, ViewRequirement

__all__ = [
    "GenericModel",
    "GenericModelBase",
    "GenericRecurrentModel",
    "Model",
    "ModelFactory",
    "RecurrentModel",
    "RecurrentModelFactory",
]


DEFAULTS = "rlox_rl8.models.defaults:default_models"
"""Returns the default classes for an env's specs; they derive from those of this module."""

P = ParamSpec("P")
T = TypeVar("T")
ObservationSpecT = TypeVar("ObservationSpecT", bound=TensorSpec)
ActionSpecT = TypeVar("ActionSpecT", bound=TensorSpec)


class GenericModelBase(Module[P, T]):
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
        self.view_requirements: dict[Any, ViewRequirement] = {"obs": ViewRequirement(shift=0)}
        """By entry, a key or a tuple of them, how much of the past the model sees."""

    @property
    def sees_past(self) -> bool:
        """Whether any view reaches back."""
        return any(requirement.shift for requirement in self.view_requirements.values())

    def apply_view_requirements(
        self, batch: TensorDict, /, *, kind: ViewKind = "last"
    ) -> TensorDict:
        """Return the views of a batch (B, T): B rows for ``"last"``, B·T for ``"all"``."""
        rows = batch.shape[0] * (batch.shape[1] if kind == "all" else 1)
        parts = {
            key: (view.apply_all if kind == "all" else view.apply_last)(key, batch)
            for key, view in self.view_requirements.items()
        }
        if all(isinstance(key, str) for key in parts):
            return TensorDict(parts, batch_size=[rows], device=batch.device)
        out = TensorDict({}, batch_size=[rows], device=batch.device)
        for key, part in parts.items():
            out[key] = part  # tuples name nested entries
        return out

    @property
    def drop_size(self) -> int:
        """Steps of each env that have no view: the most of all requirements."""
        return max((view.drop_size for view in self.view_requirements.values()), default=0)

    def validate_view_requirements(self) -> None:
        """Check that all views leave out as many steps.

        Raises:
            ValueError: they do not, so that their rows would not fit together.
        """
        dropped = {str(key): view.drop_size for key, view in self.view_requirements.items()}
        if len(set(dropped.values())) > 1:
            raise ValueError(f"view requirements must leave out as many steps each, got {dropped}")

    @property
    def device(self) -> torch.device:
        """Device of the parameters, or of the observations' spec if there are none."""
        found = next(self.parameters(), None)
        return torch.device(self.observation_spec.device) if found is None else found.device

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
        """Return what copies and files hold: all but tensors of the last call with their graph."""
        return {
            key: None if isinstance(value, Tensor) and value.grad_fn is not None else value
            for key, value in self.__dict__.items()
        }

    @abstractmethod
    def value_function(self) -> Tensor:
        """Return the values (N, 1) that belong to the last call."""


class Model(GenericModelBase[[TensorDict], TensorDict]):
    """A feed-forward model; ``view_requirements`` says which past observations it sees."""

    @abstractmethod
    def forward(self, batch: TensorDict, /) -> TensorDict:
        """Return features of N rows for views of N rows."""

    @staticmethod
    def default_model_cls(observation_spec: TensorSpec, action_spec: TensorSpec, /) -> type[Model]:
        """Return the default class for an env's specs.

        Raises:
            TypeError: there is none; pass ``model_cls=``.
        """
        default: type[Model] = resolve(DEFAULTS)(observation_spec, action_spec)[0]
        return default


class RecurrentModel(GenericModelBase[[TensorDict, TensorDict], tuple[TensorDict, TensorDict]]):
    """A model with states, which ``state_spec`` describes for one env.

    Where ``view_requirements`` reach back, it is called with the views (B, T) in place of the
    batch.
    """

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
        default: type[RecurrentModel] = resolve(DEFAULTS)(observation_spec, action_spec)[1]
        return default


class GenericModel(Model, Generic[ObservationSpecT, ActionSpecT]):
    """A feed-forward model whose specs type checkers know."""

    observation_spec: ObservationSpecT
    action_spec: ActionSpecT


class GenericRecurrentModel(RecurrentModel, Generic[ObservationSpecT, ActionSpecT]):
    """A recurrent model whose specs type checkers know."""

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
