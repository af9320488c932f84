"""Batched envs on the learner's device, and two dummies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8._specs import Categorical, TensorSpec, Unbounded
from rlox_rl8.data import Device

ObservationSpecT = TypeVar("ObservationSpecT", bound=TensorSpec)
ActionSpecT = TypeVar("ActionSpecT", bound=TensorSpec)


class Env(ABC):
    """B copies of an env in one object; all of them are reset together.

    Any class with the same members will do. A subclass sets :attr:`observation_spec` and
    :attr:`action_spec` in its constructor, both without the dimension of copies. It may have
    ``state_dict()`` and ``load_state_dict(state)`` of arrays; checkpoints then resume in the middle
    of a horizon.

    Args:
        num_envs: copies B.
        horizon: steps between resets; an env may ignore it.
        device: of all its tensors.

    Raises:
        ValueError: ``num_envs`` or ``horizon`` exceeds the env's maximum.
    """

    max_horizon: ClassVar[int | None] = None
    """Most steps of a horizon; ``None`` has no bound."""
    max_num_envs: ClassVar[int | None] = None
    """Most copies; ``None`` has no bound."""
    episodes_end: ClassVar[bool] = False
    """Whether a copy is reset in the step that ends its episode. :meth:`step` then also returns
    ``terminated`` and ``truncated`` (B, 1), bool, and ``final_obs``, the observations before any
    reset; ``obs`` then holds the first observation of the next episode."""
    capturable: ClassVar[bool] = False
    """Whether a CUDA graph can replay a step: :meth:`step` asks the host for no value, and it and
    :meth:`reset` write into the tensors of the state instead of replacing them. Envs whose episodes
    end are not captured."""
    fits_specs: ClassVar[bool] = False
    """Whether observations fit the spec by construction; validation then takes no step."""
    observation_spec: TensorSpec
    action_spec: TensorSpec

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Device = "cpu"
    ) -> None:
        for name, value in (("num_envs", num_envs), ("horizon", horizon)):
            bound = getattr(self, f"max_{name}")
            if bound is not None and value is not None and value > bound:
                raise ValueError(f"{type(self).__name__}'s {name} must be <= {bound}, got {value}")
        self.num_envs, self.horizon, self.device = num_envs, horizon, device

    @abstractmethod
    def reset(self, *, config: dict[str, Any] | None = None) -> Tensor | TensorDict:
        """Reset all copies and return their observations (B, ...).

        ``config`` holds options of this reset, such as the ranges of randomised physics.
        """

    @abstractmethod
    def step(self, action: Tensor | TensorDict) -> TensorDict:
        """Step all copies and return ``obs`` (B, ...) and ``rewards`` (B, 1)."""


class GenericEnv(Env, Generic[ObservationSpecT, ActionSpecT]):
    """An env whose specs are typed."""

    observation_spec: ObservationSpecT
    action_spec: ActionSpecT


class EnvFactory(Protocol):
    """A class of envs, or a function with the same arguments."""

    def __call__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Device = "cpu"
    ) -> Env:
        """Return an env of ``num_envs`` copies."""


class DummyEnv(Env):
    """A position on a line; the reward is minus its distance from 0.

    Positions begin uniform in [-bounds, bounds], 100 unless the reset's config says otherwise.
    """

    capturable = True
    action_kind: ClassVar[Any]
    """Class or function that makes the spec of actions."""

    def __init__(
        self, num_envs: int, /, horizon: int | None = None, *, device: Device = "cpu"
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        self.bounds = 100.0
        self.observation_spec = Unbounded(shape=torch.Size([1]), device=device)
        self.action_spec = self.action_kind(shape=torch.Size([1]), device=device)
        self.state = torch.zeros(num_envs, 1, device=device)

    def reset(self, *, config: dict[str, Any] | None = None) -> Tensor:
        """Draw positions; ``config`` may have ``bounds``."""
        self.bounds = float((config or {}).get("bounds", self.bounds))
        return self.state.uniform_(-self.bounds, self.bounds).clone()

    def move(self, distance: Tensor) -> TensorDict:
        """Add a distance (B, 1) and return the result of :meth:`step`."""
        self.state += distance
        out = {"obs": self.state.clone(), "rewards": -self.state.abs()}
        return TensorDict(out, batch_size=[self.num_envs], device=self.device)

    def state_dict(self) -> dict[str, Any]:
        """Return positions and bounds."""
        return {"state": self.state.cpu().numpy(), "bounds": self.bounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore positions and bounds."""
        self.state.copy_(torch.tensor(state["state"]))
        self.bounds = float(state["bounds"])


class ContinuousDummyEnv(DummyEnv):
    """The action is added to the position."""

    action_kind = Unbounded

    def step(self, action: Tensor | TensorDict) -> TensorDict:
        """Move by ``action`` (B, 1)."""
        assert isinstance(action, Tensor)
        return self.move(action)


class DiscreteDummyEnv(DummyEnv):
    """Action 0 moves by -1 and action 1 by +1."""

    action_kind = partial(Categorical, 2)

    def step(self, action: Tensor | TensorDict) -> TensorDict:
        """Move by 2a - 1, ``action`` being (B, 1) of integers."""
        assert isinstance(action, Tensor)
        return self.move((2 * action - 1).float())
