"""Validation of the values that vector envs return, and of the actions they take."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from rlox.errors import EnvError
from rlox.protocols import VecEnv, VecEnvStep
from rlox.spaces.rows import form_of, is_nested, join, leaf_spaces, map_leaves, split

NUMBERS = "biuf"
"""Kinds of dtypes that are numbers."""
SHOWN = 60
"""Characters of a value in a message."""

STEP_KEYS = tuple(sorted(VecEnvStep.__required_keys__, key=[*VecEnvStep.__annotations__].index))
"""What every step of a vector env has."""


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One env of a vector env, whose resets and steps are checked.

    A step whose parts have the types and the shape of one that was found good is taken as it is,
    which costs a comparison each; any other is looked at in full. Its final observations are
    copies: an env may write each observation into the same array, and a vector env that resets it
    within the step keeps them for longer.

    Args:
        env: is stepped and closed.
        place: what errors say of where it stands, such as ``"env 3"``.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], place: str = "") -> None:
        super().__init__(env)
        self._place = place
        self._n_steps = 0
        # of a good observation
        self._shape: Any = None
        self._dtype: Any = None
        self._form: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env.

        Raises:
            EnvError: it does not return two things, or an observation of another shape, kind or
                nesting.
        """
        returned = self.env.reset(seed=seed, options=options)
        if returned.__class__ is tuple and len(returned) == 2:
            obs, info = returned
            if (
                obs.__class__ is np.ndarray
                and obs.dtype is self._dtype
                and obs.shape == self._shape
                and info.__class__ is dict
            ):
                return returned
        _require_returned(self.env, "reset", ("obs", "info"), returned, self._where("reset"))
        return returned

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env.

        Raises:
            EnvError: the step does not return five things, its observation has another shape, kind
                or nesting, its reward is not one number, or a flag of it not one truth value.
        """
        returned = self.env.step(action)
        self._n_steps += 1
        if returned.__class__ is not tuple or len(returned) != 5:
            self._look(returned)
        obs, reward, terminated, truncated, info = returned
        if not (
            obs.__class__ is np.ndarray
            and obs.dtype is self._dtype
            and obs.shape == self._shape
            and reward.__class__ in _NUMBERS
            and terminated.__class__ in _FLAGS
            and truncated.__class__ in _FLAGS
            and info.__class__ is dict
        ):
            self._look(returned)
        if terminated or truncated:
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, info

    def _look(self, returned: Any) -> None:
        """Refuse a step with a wrong part, and remember the form of a good observation."""
        if isinstance(returned, tuple) and len(returned) == 5 and self._is_nested_good(*returned):
            return
        where = self._where("step")
        parts = ("obs", "reward", "terminated", "truncated", "info")
        _require_returned(self.env, "step", parts, returned, where)
        name = _name(self.env)
        _require_scalar(name, "reward", "number", returned[1], where)
        for flag, value in zip(parts[2:4], returned[2:4], strict=True):
            _require_scalar(name, flag, "truth value", value, where)
        obs = returned[0]
        if obs.__class__ is np.ndarray:
            self._shape, self._dtype = obs.shape, obs.dtype
        elif obs.__class__ is dict:
            with suppress(AttributeError):
                self._form = form_of(obs)

    def _is_nested_good(
        self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> bool:
        """Return whether a step with a dict of arrays has the form of one that was found good."""
        classes = terminated.__class__, truncated.__class__
        if obs.__class__ is not dict or reward.__class__ not in _NUMBERS:
            return False
        try:
            return form_of(obs) == self._form and _FLAGS.issuperset(classes) and type(info) is dict
        except AttributeError:  # a leaf that is no array
            return False

    def _where(self, method: str) -> str:
        """Return which call of which env it was, for errors."""
        place = f" of {self._place}" if self._place else ""
        return f" in {f'step {self._n_steps}' if method == 'step' else 'a reset'}{place}"


# of values of these types none can be wrong
_NUMBERS = frozenset({float, int, np.float64, np.float32})
_FLAGS = frozenset({bool, np.bool_})


def _name(env: gymnasium.Env[Any, Any]) -> str:
    """Return the class of the env, or of the wrapper that observes something else than the env."""
    space = env.observation_space
    while isinstance(env, gymnasium.Wrapper) and env.env.observation_space is space:
        env = env.env
    return type(env).__name__


def _require_returned(
    env: gymnasium.Env[Any, Any], method: str, parts: tuple[str, ...], returned: Any, where: str
) -> None:
    """Refuse another number of things than ``parts``, or an observation of another form."""
    name = f"{_name(env)}.{method}"
    if not isinstance(returned, tuple) or len(returned) != len(parts):
        many = f" of {len(returned)}" if isinstance(returned, tuple) else ""
        raise EnvError(
            f"{name} must return ({', '.join(parts)}), got {type(returned).__name__}{many}{where}; "
            "gymnasium.utils.env_checker.check_env says more"
        )
    try:
        leaves = split(env.observation_space, returned[0])
    except ValueError as error:
        raise EnvError(
            f"{name} returned an observation that is not nested as its space{where}: {error}; "
            "change it or the env's observation_space"
        ) from None
    leaves = leaves if is_nested(env.observation_space) else {"": leaves}
    for leaf, space in leaf_spaces(env.observation_space).items():
        problem = _difference(leaves[leaf], space)
        if problem is not None:
            what = f"observation '{leaf}'" if leaf else "observation"
            raise EnvError(
                f"{name} returned an {what} {problem}{where}; change it or the env's "
                "observation_space"
            )
    if not isinstance(returned[-1], Mapping):
        raise EnvError(f"the info of {name} must be a dict, got {_short(returned[-1])}{where}")


def _difference(value: Any, space: gymnasium.Space[Any]) -> str | None:
    """Return what distinguishes a value from those of a space: its shape, or that it is no number.

    ``None``: nothing does.
    """
    if space.shape is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return f"that is no array, expected shape {space.shape}: {_short(value)}"
    if array.shape != space.shape:
        return f"of shape {array.shape}, expected {space.shape}"
    if space.dtype is not None and space.dtype.kind in NUMBERS and array.dtype.kind not in NUMBERS:
        return f"of dtype {array.dtype}, expected {space.dtype}: {_short(value)}"
    return None


def _short(value: Any) -> str:
    """Return a value for a message, however large it is."""
    if isinstance(value, (str, bytes)):
        return repr(value if len(value) <= SHOWN else value[:SHOWN])
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return repr(value)[:SHOWN]
    if isinstance(value, np.ndarray):
        return f"ndarray of shape {value.shape} and dtype {value.dtype}"
    return type(value).__name__


def _require_scalar(env_name: str, key: str, kind: str, value: Any, where: str) -> None:
    number = isinstance(value, (bool, int, float, np.generic)) or (
        isinstance(value, np.ndarray) and value.shape == ()
    )
    array = np.asarray(value) if number else None
    if array is not None and array.dtype.kind in NUMBERS and (kind == "number" or array in (0, 1)):
        return
    raise EnvError(f"the {key} of {env_name}.step must be one {kind}, got {_short(value)}{where}")


def require_vec_step(step: VecEnvStep, env: VecEnv, where: str = "") -> None:
    """Refuse a step of ``env`` that has not what :class:`rlox.protocols.VecEnvStep` says.

    Args:
        step: what ``env.step_all`` returned.
        env: which made it.
        where: what an error says of when it was.

    Raises:
        EnvError: a key is missing, or an array is of another shape or kind.
    """
    name = f"{type(env).__name__}.step_all{where}"
    if not isinstance(step, Mapping):
        raise EnvError(f"{name} must return a dict with {', '.join(STEP_KEYS)}, got {_short(step)}")
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


def batch_of_actions(actions: Any, space: gymnasium.Space[Any]) -> Any:
    """Return a batch of actions in the dtypes of the batch's space, nested as that is.

    Raises:
        EnvError: the actions have another shape, or are nested otherwise.
    """
    if not is_nested(space):
        actions = np.asarray(actions, dtype=space.dtype)
        if actions.shape != space.shape:
            raise EnvError(f"actions must have shape {space.shape}, got {actions.shape}")
        return actions
    try:
        leaves = split(space, actions)
    except ValueError as error:
        raise EnvError(f"the actions are not nested as their space: {error}") from None
    return join(space, map_leaves(batch_of_actions, leaves, leaf_spaces(space)))
