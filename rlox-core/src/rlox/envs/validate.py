"""Validation of the values that vector envs return."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np

from rlox.errors import EnvError
from rlox.protocols import VecEnv, VecEnvStep
from rlox.spaces.nested import is_nested, leaf_spaces, split

__all__ = ["STEP_KEYS", "CheckedEnv", "require_vec_step"]

STEP_KEYS = tuple(sorted(VecEnvStep.__required_keys__, key=[*VecEnvStep.__annotations__].index))
"""What every step of a vector env has."""


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One env of a vector env.

    Its first reset and step are checked. Its final observations are copies: an env may write each
    observation into the same array, and a vector env that resets it within the step keeps them for
    longer.

    Args:
        env: is stepped and closed.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._checked = self._reset = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env.

        Raises:
            EnvError: the first reset does not return two things, or an observation of another
                shape or with other keys.
        """
        returned = self.env.reset(seed=seed, options=options)
        if not self._reset:
            _require_returned(self.env, "reset", ("obs", "info"), returned)
            self._reset = True
        return returned

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env.

        Raises:
            EnvError: the first step does not return five things, its observation has another shape
                or other keys, its reward is not one number, or a flag of it not one truth value.
        """
        returned = self.env.step(action)
        if not self._checked:
            parts = ("obs", "reward", "terminated", "truncated", "info")
            _require_returned(self.env, "step", parts, returned)
            name = _name(self.env)
            _require_scalar(name, "reward", "number", returned[1])
            for flag, value in zip(parts[2:4], returned[2:4], strict=True):
                _require_scalar(name, flag, "truth value", value)
            self._checked = True
        obs, reward, terminated, truncated, info = returned
        if terminated or truncated:
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, info


def _name(env: gymnasium.Env[Any, Any]) -> str:
    """Return the class of the env, or of the wrapper that observes something else than the env."""
    space = env.observation_space
    while isinstance(env, gymnasium.Wrapper) and env.env.observation_space is space:
        env = env.env
    return type(env).__name__


def _require_returned(
    env: gymnasium.Env[Any, Any], method: str, parts: tuple[str, ...], returned: Any
) -> None:
    """Refuse another number of things than ``parts``, or an observation of another form."""
    name = f"{_name(env)}.{method}"
    if not isinstance(returned, tuple) or len(returned) != len(parts):
        many = f" of {len(returned)}" if isinstance(returned, tuple) else ""
        raise EnvError(
            f"{name} must return ({', '.join(parts)}), got {type(returned).__name__}{many}; "
            "gymnasium.utils.env_checker.check_env says more"
        )
    try:
        leaves = split(env.observation_space, returned[0])
    except ValueError as error:
        raise EnvError(
            f"{name} returned an observation that is not nested as its space: {error}; change it "
            "or the env's observation_space"
        ) from None
    leaves = leaves if is_nested(env.observation_space) else {"": leaves}
    for leaf, space in leaf_spaces(env.observation_space).items():
        if space.shape is not None and np.shape(leaves[leaf]) != space.shape:
            what = f"observation '{leaf}'" if leaf else "observation"
            raise EnvError(
                f"{name} returned an {what} of shape {np.shape(leaves[leaf])}, expected "
                f"{space.shape}; change it or the env's observation_space"
            )


def _require_scalar(env_name: str, key: str, kind: str, value: Any) -> None:
    array = np.asarray(value)
    if array.shape == () and array.dtype.kind in "biuf":
        if kind == "number" or array in (0, 1):
            return
        got = repr(value)
    else:
        got = f"{type(value).__name__} of shape {array.shape} and dtype {array.dtype}"
    raise EnvError(f"the {key} of {env_name}.step must be one {kind}, got {got}")


def require_vec_step(step: VecEnvStep, env: VecEnv) -> None:
    """Refuse a step of ``env`` that has not what :class:`rlox.protocols.VecEnvStep` says.

    Raises:
        EnvError: a key is missing, or an array is of another shape or kind.
    """
    name = f"{type(env).__name__}.step_all"
    missing = [key for key in STEP_KEYS if key not in step]
    if missing:
        raise EnvError(
            f"{name} must return a dict with {', '.join(STEP_KEYS)}; it has no {missing[0]}"
        )
    given: Any = step
    shape = (env.n_envs,)
    _require_array(f"rewards of {name}", given["rewards"], shape)
    for key in ("terminated", "truncated"):
        _require_array(f"{key} of {name}", given[key], shape, kinds="b")
    for key in ("obs", "final_obs"):
        leaves = given[key] if isinstance(given[key], dict) else {"": given[key]}
        for leaf, space in leaf_spaces(env.observation_space).items():
            where = f"{key}['{leaf}']" if leaf else key
            _require_array(f"{where} of {name}", leaves.get(leaf), shape + (space.shape or ()))


def _require_array(what: str, value: Any, shape: tuple[int, ...], *, kinds: str = "biuf") -> None:
    if isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in kinds:
        return
    got = type(value).__name__
    if isinstance(value, (np.ndarray, np.generic)):
        got += f" of shape {value.shape} and dtype {value.dtype}"
    expected = "bool" if kinds == "b" else "numbers"
    raise EnvError(f"{what} must be an array of shape {shape} of {expected}, got {got}")
