"""Envs of tensors: classic control on a GPU, and any of them as a vector env of arrays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rlox.envs.gymnasium import STEP_KEYS, require_keys
from rlox.errors import EnvError
from rlox.nn.devices import find_device
from rlox.protocols import TensorEnv, TensorStep, VecEnvStep
from rlox.seeding import restore_generator
from rlox.spaces.rows import map_leaves


class ClassicControl(ABC):
    """N copies of a gymnasium env with its dynamics in torch, a :class:`rlox.protocols.TensorEnv`.

    Args:
        n_envs: copies N.
        device: of all tensors.
        dtype: of the state; observations and rewards are float32.
    """

    env_id: ClassVar[str]
    """Gymnasium's id, whose spaces and time limit it has."""
    begins: ClassVar[tuple[tuple[float, ...], tuple[float, ...]]]
    """Bounds of the first state of an episode, each number uniform between them."""
    capturable: ClassVar[bool] = True

    def __init__(
        self,
        n_envs: int,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if n_envs < 1:
            raise EnvError(f"n_envs must be at least 1, got {n_envs}")
        like = gymnasium.make(self.env_id)
        spec: Any = like.spec
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.max_episode_steps: int = spec.max_episode_steps
        self.n_envs = n_envs
        self.device = find_device(device)
        self.generator = torch.Generator(self.device)
        self.low, self.high = torch.tensor(self.begins, dtype=dtype, device=self.device)
        self.state = torch.zeros(n_envs, len(self.low), dtype=dtype, device=self.device)
        """(N, S), in gymnasium's order."""
        self.elapsed = torch.zeros(n_envs, dtype=torch.int32, device=self.device)
        """(N,) steps since each episode began."""

    @abstractmethod
    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states (N, S) after one step, rewards (N,) and ends of the task (N,)."""

    def observe(self, state: Tensor) -> Tensor:
        """Return the observations (N, *shape) of states (N, S)."""
        return state.float()

    def to(self, device: str | torch.device) -> ClassicControl:
        """Return the env on a device: itself, or a new one that is not reset yet."""
        if torch.device(device) == self.device:
            return self
        return type(self)(self.n_envs, device=device, dtype=self.state.dtype)

    def reset(self, seed: int | None = None) -> Tensor:
        """Reset all copies; see :class:`rlox.protocols.TensorEnv`."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.copy_(self._begin())
        self.elapsed.zero_()
        return self.observe(self.state)

    def step(self, actions: Tensor) -> TensorStep:
        """Step all copies; see :class:`rlox.protocols.TensorEnv`."""
        state, rewards, terminated = self.advance(self.state, actions)
        self.elapsed += 1
        truncated = self.elapsed >= self.max_episode_steps
        ended = terminated | truncated
        begun = self._begin()
        self.state.copy_(torch.where(ended.unsqueeze(1), begun, state))
        self.elapsed.masked_fill_(ended, 0)
        return {
            "obs": self.observe(self.state),
            "rewards": rewards.float(),
            "terminated": terminated,
            "truncated": truncated,
            "final_obs": self.observe(state),
        }

    def _begin(self) -> Tensor:
        drawn = torch.empty_like(self.state).uniform_(generator=self.generator)
        return torch.lerp(self.low, self.high, drawn)

    def state_dict(self) -> dict[str, Any]:
        """Return states, running lengths and the generator's state as arrays."""
        found = {"state": self.state, "elapsed": self.elapsed}
        found["generator"] = self.generator.get_state()
        return {name: array_of(tensor) for name, tensor in found.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`."""
        self.state.copy_(torch.tensor(state["state"]))
        self.elapsed.copy_(torch.tensor(state["elapsed"]))
        restore_generator(self.generator, state["generator"])


class CartPole(ClassicControl):
    """A pole on a cart, gymnasium's ``CartPole-v1``.

    Source:
        Florian 2007, "Correct equations for the dynamics of the cart-pole system", without
        friction, by explicit Euler steps of 0.02 s.
    """

    env_id = "CartPole-v1"
    begins = ((-0.05,) * 4, (0.05,) * 4)

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`ClassicControl`; the state is x, dx/dt, θ and dθ/dt in m and rad."""
        x, speed, angle, spin = state.unbind(1)
        force = 20.0 * actions.to(state.dtype) - 10.0
        sin, cos = angle.sin(), angle.cos()
        pull = (force + 0.05 * spin.square() * sin) / 1.1
        spin_up = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        speed_up = pull - 0.05 * spin_up * cos / 1.1
        x, speed = x + 0.02 * speed, speed + 0.02 * speed_up
        angle, spin = angle + 0.02 * spin, spin + 0.02 * spin_up
        failed = (x.abs() > 2.4) | (angle.abs() > math.radians(12))
        return torch.stack((x, speed, angle, spin), 1), torch.ones_like(x), failed


class Pendulum(ClassicControl):
    """A pendulum to swing up and hold, gymnasium's ``Pendulum-v1``."""

    env_id = "Pendulum-v1"
    begins = ((-math.pi, -1.0), (math.pi, 1.0))

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`ClassicControl`; the state is θ from upright and dθ/dt, actions are N m."""
        angle, spin = state.unbind(1)
        torque = actions[:, 0].clamp(-2.0, 2.0)
        turned = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        # the torque's parts are in its own precision, as gymnasium's are
        cost = turned.square() + 0.1 * spin.square() + (0.001 * torque.square()).to(state.dtype)
        spin_up = 15.0 * angle.sin() + (3.0 * torque).to(state.dtype)
        spin = (spin + 0.05 * spin_up).clamp(-8.0, 8.0)
        ended = torch.zeros_like(self.elapsed, dtype=torch.bool)
        return torch.stack((angle + 0.05 * spin, spin), 1), -cost, ended

    def observe(self, state: Tensor) -> Tensor:
        """Return cosine and sine of the angle, and its speed."""
        angle, spin = state.unbind(1)
        return torch.stack((angle.cos(), angle.sin(), spin), 1).float()


class MountainCar(ClassicControl):
    """A car too weak for the hill, gymnasium's ``MountainCar-v0``.

    Source:
        Moore 1990, "Efficient memory-based learning for robot control".
    """

    env_id = "MountainCar-v0"
    begins = ((-0.6, 0.0), (-0.4, 0.0))

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`ClassicControl`; the state is position and speed."""
        x, speed = state.unbind(1)
        push = 0.001 * (actions - 1).to(state.dtype) - 0.0025 * (3.0 * x).cos()
        speed = (speed + push).clamp(-0.07, 0.07)
        x = (x + speed).clamp(-1.2, 0.6)
        speed = torch.where(x == -1.2, speed.clamp(min=0.0), speed)  # the left wall stops the car
        reached = (x >= 0.5) & (speed >= 0.0)
        return torch.stack((x, speed), 1), -torch.ones_like(x), reached


class Acrobot(ClassicControl):
    """Two links whose lower joint swings them up, gymnasium's ``Acrobot-v1``.

    Source:
        Sutton and Barto 1998, "Reinforcement learning: an introduction", section 11.3, by
        Runge-Kutta steps of 0.2 s.
    """

    env_id = "Acrobot-v1"
    begins = ((-0.1,) * 4, (0.1,) * 4)

    def advance(self, state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`ClassicControl`; the state is both angles and both speeds."""
        torque = (actions - 1).to(state.dtype)
        k1 = self._derive(state, torque)
        k2 = self._derive(state + 0.1 * k1, torque)
        k3 = self._derive(state + 0.1 * k2, torque)
        k4 = self._derive(state + 0.2 * k3, torque)
        state = state + 0.2 / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = torch.remainder(state[:, :2] + math.pi, 2 * math.pi) - math.pi
        speed_1 = state[:, 2].clamp(-4 * math.pi, 4 * math.pi)
        speed_2 = state[:, 3].clamp(-9 * math.pi, 9 * math.pi)
        reached = -angles[:, 0].cos() - angles.sum(1).cos() > 1.0
        moved = torch.stack((*angles.unbind(1), speed_1, speed_2), 1)
        return moved, reached.to(state.dtype) - 1.0, reached

    @staticmethod
    def _derive(state: Tensor, torque: Tensor) -> Tensor:
        """Return the time derivatives of angles and speeds: links of 1 kg, 1 m and 1 kg m²."""
        angle_1, angle_2, speed_1, speed_2 = state.unbind(1)
        sin, cos = angle_2.sin(), angle_2.cos()
        d1 = 3.5 + cos
        d2 = 1.25 + 0.5 * cos
        phi_2 = 4.9 * (angle_1 + angle_2 - math.pi / 2).cos()
        phi_1 = (
            -0.5 * speed_2.square() * sin
            - speed_2 * speed_1 * sin
            + 14.7 * (angle_1 - math.pi / 2).cos()
            + phi_2
        )
        up_2 = (torque + d2 / d1 * phi_1 - 0.5 * speed_1.square() * sin - phi_2) / (
            1.25 - d2.square() / d1
        )
        return torch.stack((speed_1, speed_2, -(d2 * up_2 + phi_1) / d1, up_2), 1)

    def observe(self, state: Tensor) -> Tensor:
        """Return cosine and sine of both angles, and both speeds."""
        angle_1, angle_2, speed_1, speed_2 = state.unbind(1)
        parts = (angle_1.cos(), angle_1.sin(), angle_2.cos(), angle_2.sin(), speed_1, speed_2)
        return torch.stack(parts, 1).float()


ENVS = {each.env_id: each for each in (CartPole, Pendulum, MountainCar, Acrobot)}
"""Classes of the env backend ``tensors``, by id."""


class TensorVecEnv:
    """An env of tensors as a :class:`rlox.protocols.VecEnv`, for code that wants arrays.

    Args:
        tensors: the env, whose device stays its own.
    """

    state_kind = "tensors"

    def __init__(self, tensors: TensorEnv) -> None:
        self.tensors = tensors
        self.n_envs = tensors.n_envs
        self.observation_space = tensors.observation_space
        self.action_space = tensors.action_space

    def reset_all(self, seed: Any = None) -> Any:
        """Reset all envs; the first of several seeds fixes all draws."""
        first = None if seed is None else int(np.ravel(seed)[0])
        return map_leaves(array_of, self.tensors.reset(first))

    def step_all(self, actions: npt.NDArray[Any]) -> VecEnvStep:
        """Step all envs; see :class:`rlox.protocols.VecEnv`."""
        step = self.tensors.step(torch.as_tensor(actions, device=self.tensors.device))
        require_keys(f"{type(self.tensors).__name__}.step", step, STEP_KEYS)
        arrays: Any = {key: map_leaves(array_of, step[key]) for key in STEP_KEYS}  # type: ignore[literal-required]
        arrays["rewards"] = arrays["rewards"].astype(np.float64)
        return arrays  # type: ignore[no-any-return]

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the env's masks, or ``None`` if it has none."""
        masks = getattr(self.tensors, "action_masks", None)
        return None if masks is None else array_of(masks())

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the env's state; empty if it has none."""
        return self.tensors.state_dict() if hasattr(self.tensors, "state_dict") else {}

    def set_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the env's state."""
        self.tensors.load_state_dict(state)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Free nothing: tensors free themselves."""


def array_of(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a copy of a tensor as an array."""
    if not isinstance(tensor, Tensor):
        raise EnvError(f"an env of tensors must return tensors, got {tensor!r:.80}")
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array


def make_vec_env(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> TensorVecEnv:
    """Return N copies of one of :data:`ENVS`, for the env backend ``tensors``."""
    return TensorVecEnv(ENVS[env_id](n_envs, **(env_kwargs or {})))
