"""Adapters between vector envs of arrays and batched envs of tensors."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.config.composition import Selection, selection
from rlox.config.model import changed
from rlox.envs import CheckedSteps, fixed_env_count, make_vec_env, tensors
from rlox.errors import ConfigError, EnvError, SpaceError, WorkerLostError
from rlox.protocols import StatefulVecEnv, TensorEnv, TensorStep, VecEnv
from rlox.spaces import ActionRows
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.data import Device
from rlox_rl8.env import Env, EnvFactory
from rlox_rl8.spaces import action_spec, observation_spec, observe, space_of

Array = npt.NDArray[Any]

STEPPED: dict[str, Any] = {"rewards": np.float32, "terminated": bool, "truncated": bool}
"""Entries (B,) of a step, and their dtypes as tensors."""


def tensor_env(
    source: Any,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: str | Selection = "auto",
) -> EnvFactory:
    """Return a factory of batched envs: :class:`VecTensorEnv` with bound arguments.

    Args:
        source: a gymnasium or native id, a callable that makes an env, an env or a vector env.
        env_kwargs: arguments of ``gymnasium.make`` or of the env backend.
        backend: env backend for ids.
    """
    factory: Any = partial(VecTensorEnv, source, env_kwargs=env_kwargs, backend=backend)
    factory.episodes_end = True
    factory.max_num_envs = fixed_env_count(source)
    return factory  # type: ignore[no-any-return]


class VecTensorEnv(Env):
    """Gymnasium's or native envs as tensors; each copy is reset in the step that ends its episode.

    Observations of ``Discrete`` spaces are one-hot rows, those of ``MultiBinary`` floats; actions
    are :class:`rlox.spaces.ActionRows`, clipped to the bounds of a ``Box``. The arguments are those
    of an :class:`rlox_rl8.Env` and of :func:`tensor_env`; a horizon has no effect, as episodes end
    by themselves.

    Raises:
        EnvError: the env cannot be built.
        SpaceError: a space cannot be tensors of one shape.
    """

    episodes_end: ClassVar[bool] = True
    fits_specs: ClassVar[bool] = True

    def __init__(
        self,
        source: Any,
        num_envs: int,
        /,
        horizon: int | None = None,
        *,
        device: Device = "cpu",
        env_kwargs: Mapping[str, Any] | None = None,
        backend: str | Selection = "auto",
    ) -> None:
        super().__init__(num_envs, horizon, device=device)
        self.envs = make_vec_env(source, n_envs=num_envs, backend=backend, env_kwargs=env_kwargs)
        self._owned = fixed_env_count(source) is None
        self.observation_spec = observation_spec(self.envs.observation_space, device)
        self.action_spec = action_spec(self.envs.action_space, device)
        self._steps, self._actions = CheckedSteps(self.envs), ActionRows(self.envs.action_space)
        self._started = False

    def reset(self, *, config: dict[str, Any] | None = None) -> Tensor | TensorDict:
        """Reset all copies; the first seeds come from torch's global generator.

        Raises:
            EnvError: a config was given, which these envs do not accept.
            SpaceError: the envs mask actions.
        """
        if config:
            raise EnvError(f"env_config is for env classes of rlox.rl8, got {config!r} for an env")
        seed = None if self._started else int(torch.randint(1 << 31, ()).item())
        self._started = True
        obs = self.envs.reset_all(seed)
        self._steps.check_reset(obs)
        if self._steps.action_masks() is not None:
            raise SpaceError("the env masks actions, which rl8's policies ignore; use 'ppo'")
        return self.observe(obs)

    def step(self, action: Tensor | TensorDict) -> TensorDict:
        """Step all copies; the result adds ``terminated``, ``truncated`` and ``final_obs``.

        Raises:
            EnvError: the step does not follow :class:`rlox.protocols.VecEnvStep`.
            WorkerLostError: envs were lost, and a horizon must hold all copies.
        """
        assert isinstance(action, Tensor)
        step = self.envs.step_all(self.actions(action.cpu().numpy()))
        if "lost" in step and step["lost"].any():
            raise WorkerLostError(
                f"{np.count_nonzero(step['lost'])} of {self.num_envs} envs were lost and replaced; "
                "a horizon cannot leave them out; go on from a checkpoint (rlox resume)"
            )
        self._steps.check(step)
        out = {key: self.observe(step[key]) for key in ("obs", "final_obs")}
        for key, kind in STEPPED.items():
            numbers = np.asarray(step[key], kind)[:, None]  # type: ignore[literal-required]
            out[key] = torch.as_tensor(numbers).to(self.device)
        return TensorDict(out, batch_size=[len(action)], device=self.device)

    def observe(self, obs: Any) -> Tensor | TensorDict:
        """Return observations (N, *shape), or a dict of such arrays by leaf name, as tensors."""
        return observe(self.envs.observation_space, obs, self.device)

    def actions(self, rows: Array) -> Array:
        """Return the policy's actions (N, columns) in the envs' form, (N, ...)."""
        plain = isinstance(self.envs.action_space, spaces.Discrete)
        return self._actions.to_env(rows[:, 0] if plain else rows)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the envs if they were made here."""
        if self._owned:
            self.envs.close()

    def state_dict(self) -> dict[str, Any] | None:
        """Return the envs' state; ``None`` without one, and then new episodes begin."""
        return (self.envs.state() or None) if isinstance(self.envs, StatefulVecEnv) else None

    @property
    def state_kind(self) -> str:
        """Kind of the state; only envs of the same kind accept it."""
        stateful = isinstance(self.envs, StatefulVecEnv)
        return getattr(self.envs, "state_kind", "") if stateful else "none"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the envs' state."""
        assert isinstance(self.envs, StatefulVecEnv)
        if not self._started:
            self.reset()
        self.envs.set_state(dict(state))


class TensorVecEnv(tensors.TensorVecEnv):
    """A batched env for any algorithm; its horizon truncates the episodes of all copies.

    Args:
        env_cls: a subclass of :class:`rlox_rl8.Env`.
        n_envs: copies N.
        horizon: steps of an episode.
        device: of the env's tensors.
        config: passed to every reset.

    Raises:
        SpaceError: a spec has no gymnasium space.
    """

    def __init__(
        self,
        env_cls: EnvFactory,
        n_envs: int,
        horizon: int,
        *,
        device: Device = "cpu",
        config: dict[str, Any] | None = None,
    ) -> None:
        if getattr(env_cls, "episodes_end", False):
            raise EnvError("the episodes of this env end by themselves; use the env within it")
        if n_envs < 1 or horizon < 1:
            raise ValueError(f"n_envs and horizon must be >= 1, got {n_envs} and {horizon}")
        super().__init__(_Horizon(env_cls(n_envs, horizon, device=device), horizon, config))


class _Horizon:
    """A batched env whose copies are reset together as a :class:`rlox.protocols.TensorEnv`."""

    def __init__(self, env: Env, horizon: int, config: dict[str, Any] | None) -> None:
        self._env, self._horizon, self._config = env, horizon, config
        self.n_envs, self.device, self._steps = env.num_envs, env.device, 0
        self._generator: Tensor | None = None
        self.observation_space = space_of(env.observation_spec)
        self.action_space = space_of(env.action_spec)

    def reset(self, seed: int | None = None) -> Any:
        """Reset all copies, with draws from this object's own stream."""
        if seed is not None:
            self._generator = torch.Generator().manual_seed(seed).get_state()
        self._steps = 0
        return _leaves(self._drawing(partial(self._env.reset, config=self._config)))

    def step(self, actions: Tensor) -> TensorStep:
        """Step all copies; see :class:`rlox.protocols.TensorEnv`."""
        spec = self._env.action_spec
        rows = actions.to(spec.dtype).reshape(self.n_envs, *spec.shape)
        out = self._drawing(partial(self._env.step, rows))
        self._steps += 1
        ends = self._steps >= self._horizon
        final, flags = _leaves(out["obs"]), torch.zeros(self.n_envs, dtype=torch.bool)
        return {
            "obs": self.reset() if ends else final,
            "rewards": out["rewards"].reshape(self.n_envs),
            "terminated": flags.to(self.device),
            "truncated": (flags | ends).to(self.device),
            "final_obs": final,
        }

    def _drawing(self, call: Callable[[], Any]) -> Any:
        """Call under this object's stream, and leave torch's global generator as it was."""
        with torch.random.fork_rng(devices=[]):
            if self._generator is not None:
                torch.set_rng_state(self._generator)
            try:
                return call()
            finally:
                self._generator = torch.get_rng_state()


def _leaves(obs: Any) -> Any:
    """Return copies of the observations by leaf, as an env may write into its tensors."""
    if isinstance(obs, Tensor):
        return obs.detach().clone()
    return {key: _leaves(value) for key, value in obs.flatten_keys(".").items()}


def imported(dotted: str) -> Any:
    """Return an attribute of a module, which is imported first.

    Raises:
        ConfigError: the module or the attribute does not exist.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ValueError, ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"'{name}' of '{module}' cannot be imported: {error}") from None


def find_env(env: Any, config: Any) -> Any:
    """Return a class of batched envs.

    That is ``env`` itself, also as ``"module:Class"``, or a function with a class's arguments; any
    env that ``ppo`` takes gets an adapter, with the options of ``config``.

    Raises:
        ConfigError: ``env`` is neither, or a class got ``env_kwargs`` or ``env_backend``.
    """
    if is_vec_source(env):
        return tensor_env(
            env, env_kwargs=config.env_kwargs, backend=selection(config, "env_backend")
        )
    for name in ("env_kwargs", "env_backend"):
        if changed(config, name):
            raise ConfigError(f"{name} is for gymnasium's and native envs; leave it out")
    found = env
    if isinstance(env, str):
        module, _, name = env.partition(":")
        if "" in (*module.split("."), name):
            raise ConfigError(f"env must be 'module:Class', got '{env}'")
        if "" not in sys.path:
            sys.path.insert(0, "")
        found = imported(f"{module}.{name}")
    steps = all(hasattr(found, name) for name in ("reset", "step"))
    if (inspect.isclass(found) and not steps) or not callable(found):
        raise ConfigError(f"env must be a class like rlox.rl8.Env, got {found!r}")
    return found


def is_vec_source(env: Any) -> bool:
    """Return whether :func:`rlox.envs.make_vec_env` accepts an env."""
    if isinstance(env, str):
        return ":" not in env
    if inspect.isclass(env):
        return issubclass(env, gymnasium.Env)
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv, VecEnv, TensorEnv)):
        return True
    if not callable(env):
        return False
    try:
        inspect.signature(env).bind()
    except (TypeError, ValueError):  # needs arguments, like a batched env
        return False
    return True
