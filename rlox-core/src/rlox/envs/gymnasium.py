"""gymnasium envs behind a common vector-env interface, whatever their autoreset mode.

gymnasium vector envs reset an env whose episode ended in the same step, in the next step, or not
at all. All three modes give the same :class:`~rlox.protocols.VecEnvStep` here: same-step envs
report the final observation themselves, the other two are reset by mask within the step. So no
reset observation is mistaken for the outcome of an action, and no step is wasted.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import logging
import os
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import setitem
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from rlox.envs.processes import ProcessVecEnv
from rlox.envs.teams import several_agents
from rlox.envs.workers.arena import register_here
from rlox.errors import EnvError, suggest
from rlox.protocols import MultiAgentVecEnv, TensorEnv, VecEnv, VecEnvStep
from rlox.registry.table import get_registry
from rlox.spaces.rows import (
    MASK_KEY,
    NUMBERS,
    ActionRows,
    ObservationRows,
    batch_of_actions,
    find_misfit,
    integer_bounds,
    is_nested,
    join,
    leaf_spaces,
    map_leaves,
    split,
    without_mask,
)

Spaces = dict[str, tuple[int, gymnasium.Space[Any]]]
"""By attribute of an env: number of the first env, and its space."""


def make_env(
    env: str | Callable[..., gymnasium.Env[Any, Any]], env_kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return one env.

    Args:
        env: a gymnasium id, or a callable that makes an env.
        env_kwargs: arguments of the env.

    Raises:
        EnvError: the env refuses them; the text lists them and the accepted ones.
    """
    make = partial(gymnasium.make, env) if isinstance(env, str) else env
    if "mujoco" in str(getattr(gymnasium.registry.get(str(env)), "entry_point", "")):
        with suppress(ImportError):
            log_mujoco_warnings()
    if not env_kwargs:
        return make()
    try:
        return make(**env_kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        raise EnvError(
            f"env '{env}' cannot be built with the env_kwargs {dict(env_kwargs)}: {error}"
            f"{_known_arguments(env, env_kwargs)}"
        ) from error


def log_mujoco_warnings() -> None:
    """Log MuJoCo's warnings, which it else writes to ``MUJOCO_LOG.TXT`` in the working folder."""
    mujoco = import_module("mujoco")
    if mujoco.get_mju_user_warning() is None:
        log = logging.getLogger("rlox")
        mujoco.set_mju_user_warning(lambda text: log.warning("MuJoCo: %s", text.strip()))


def require_env(made: Any, number: int, spaces: Spaces) -> gymnasium.Env[Any, Any]:
    """Return ``made`` if it can be one of several envs that are stepped together.

    Args:
        made: result of an id or a callable.
        number: number of the env, for errors.
        spaces: spaces of the first env; filled by the first call.

    Raises:
        EnvError: not a gymnasium env, without a space, or with another space than the first env.
    """
    if not isinstance(made, gymnasium.Env):
        raise _no_env("the env callable must return a gymnasium.Env", made)
    for name in ("observation_space", "action_space"):
        space = getattr(made, name, None)
        if not isinstance(space, gymnasium.Space):
            raise EnvError(
                f"{type(made).__name__}.{name} must be a gymnasium.Space, got {space!r}; set it in "
                "the env's constructor"
            )
        first, expected = spaces.setdefault(name, (number, space))
        if space != expected:
            raise EnvError(
                f"env {number} has the {name} {space}, and env {first} has {expected}; envs that "
                "are stepped together must have the same, so let the callable make equal ones"
            )
    return made


def _known_arguments(env: Any, env_kwargs: Mapping[str, Any]) -> str:
    """Return the arguments of the env's constructor if a given one is unknown, else nothing."""
    try:
        entry_point = gymnasium.spec(env).entry_point if isinstance(env, str) else env
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        parameters = inspect.signature(creator).parameters.values()  # type: ignore[arg-type]
    except (gymnasium.error.Error, ImportError, TypeError, ValueError):
        return ""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [parameter.name for parameter in parameters if parameter.kind in kinds]
    unknown = [name for name in env_kwargs if name not in known]
    if not unknown or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return ""
    return f"{suggest(unknown[0], known)} (it takes {', '.join(known) or 'nothing'})"


Vectorization = Literal["sync", "async"]

MAX_PROCESSES_PER_CORE = 32
"""Env processes per core beyond which a machine spends its time switching between them."""

EnvLike = (
    str | Callable[[], gymnasium.Env[Any, Any]] | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]
)


class GymVecEnv:
    """N gymnasium envs stepped together.

    Args:
        env_id: a gymnasium id, a callable that makes an env, one env (``n_envs`` must be 1), or a
            gymnasium vector env (``n_envs`` must be left out or agree).
        n_envs: number of envs N.
        seed: seed of the first :meth:`reset_all`; env i gets seed + i.
        vectorization: ``"sync"`` steps the envs in this process, ``"async"`` each in its own; see
            :class:`rlox.envs.processes.ProcessVecEnv`.
        env_kwargs: arguments of ``gymnasium.make``.
        max_restarts: number of restarts of each env in its own process, if that dies or stalls.
        first_number: number of the first env in errors, if these envs are part of a larger set.

    Raises:
        EnvError: the env cannot be built; the text has gymnasium's reason.
        SpaceError: a leaf of the observations is not an array of a fixed shape.
    """

    checks_steps = False
    """Whether each env's steps are checked here, and all arrays made here."""

    def __init__(
        self,
        env_id: EnvLike,
        n_envs: int | None = None,
        seed: int | Sequence[int] | None = None,
        *,
        vectorization: Vectorization = "sync",
        env_kwargs: Mapping[str, Any] | None = None,
        max_restarts: int = 0,
        first_number: int = 0,
    ) -> None:
        self._seed = seed
        self._processes: ProcessVecEnv | None = None
        if vectorization == "async" and not isinstance(env_id, (gymnasium.Env, VectorEnv)):
            _require_makeable(env_id)
            self._processes = ProcessVecEnv(
                env_id,
                _require_number(n_envs, MAX_PROCESSES_PER_CORE * (os.cpu_count() or 1)),
                env_kwargs=env_kwargs,
                max_restarts=max_restarts,
            )
            return
        self._env = _vectorize(env_id, n_envs, env_kwargs or {}, first_number)
        self._mode = self._env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self._mode is not AutoresetMode.SAME_STEP and not _resets_by_mask(self._env, self._mode):
            raise EnvError(
                f"{type(self._env.unwrapped).__name__} resets envs in the next step and cannot "
                f"reset single envs; pass {_same_step_remedy(self._env)}"
            )
        if self._mode is not AutoresetMode.SAME_STEP:
            _require_masked_resets(self._env)
        self._observation_space = without_mask(self._env.single_observation_space)
        self._rows = ObservationRows(self._observation_space)  # refuses unsupported spaces
        self._masks = ActionMasks(self._env)
        ours = isinstance(self._env, _Envs)
        self.checks_steps = ours and type(self) is GymVecEnv
        self._by_leaf = ours and self._observation_space is self._env.single_observation_space

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return self._env.num_envs if self._processes is None else self._processes.n_envs

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation, without an action mask."""
        if self._processes is not None:
            return self._processes.observation_space
        return self._observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        if self._processes is not None:
            return self._processes.action_space
        return self._env.single_action_space

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations; see ``rlox.protocols.VecEnv``."""
        if seed is None:
            seed, self._seed = self._seed, None
        if self._processes is not None:
            return self._processes.reset_all(seed)
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds: int | list[int] | None = None if seed is None else int(seed)
        else:
            seeds = [int(s) for s in seed]
        obs, infos = self._env.reset(seed=seeds)  # type: ignore[arg-type]
        self._masks.after_reset(obs, infos)
        return self._leaves(obs)

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the masks of the next actions; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._masks.current if self._processes is None else self._processes.action_masks()

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; see :class:`rlox.protocols.VecEnvStep`."""
        if self._processes is not None:
            return self._processes.step_all(actions)
        actions = batch_of_actions(actions, self._env.action_space)
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        ended = terminated | truncated
        reset_infos = None
        leaves = final_obs = obs if self._by_leaf else self._leaves(obs)
        if np.count_nonzero(ended):  # in a fifth of the time of any()
            if self._mode is AutoresetMode.SAME_STEP:
                final_obs = map_leaves(np.copy, leaves)
                for i in np.flatnonzero(ended).tolist():
                    last = self._leaves(infos["final_obs"][i])
                    self._rows.require(map_leaves(lambda leaf: leaf[None], last), first=i)
                    map_leaves(lambda leaf, new, i=i: setitem(leaf, i, new), final_obs, last)
            else:
                if not getattr(self._env.unwrapped, "copy", False):  # each step in the same array
                    final_obs = map_leaves(np.copy, leaves)
                obs, reset_infos = self._env.reset(options={"reset_mask": ended})
                leaves = self._leaves(obs)
        self._masks.after_step(obs, infos, ended, reset_infos)
        return {
            "obs": leaves,
            "rewards": np.asarray(rewards, dtype=np.float64),
            "terminated": np.asarray(terminated, dtype=np.bool_),
            "truncated": np.asarray(truncated, dtype=np.bool_),
            "final_obs": final_obs,
        }

    def _leaves(self, obs: Any) -> Any:
        """Return observations as arrays by leaf, without an action mask."""
        if self._observation_space is not self._env.single_observation_space:
            obs = {key: value for key, value in obs.items() if key != MASK_KEY}
        return map_leaves(np.asarray, split(self._observation_space, obs))

    def close(self) -> None:
        """Close the envs; worker processes end."""
        if self._processes is None:
            self._env.close()
        else:
            self._processes.close()


NORMALIZERS = ("NormalizeObservation", "NormalizeReward")
"""gymnasium's vector wrappers that treat the reset of one env as a reset of all."""


def _resets_by_mask(env: VectorEnv[Any, Any, Any], mode: AutoresetMode) -> bool:
    base = env.unwrapped
    if isinstance(base, AsyncVectorEnv):
        # without shared memory gymnasium's workers forget that they were reset, and reset again
        return mode is AutoresetMode.DISABLED or bool(base.shared_memory)
    return isinstance(base, SyncVectorEnv)


def _require_masked_resets(env: VectorEnv[Any, Any, Any]) -> None:
    """Refuse wrappers that treat the reset of one env as a reset of all."""
    while isinstance(env, VectorWrapper):
        name = type(env).__name__
        if name in NORMALIZERS and type(env).__module__.startswith("gymnasium."):
            raise EnvError(
                f"gymnasium's vector {name} cannot follow resets of single envs, which this vector "
                f"env needs; wrap each env in gymnasium.wrappers.{name} instead"
            )
        env = env.env


def _same_step_remedy(env: VectorEnv[Any, Any, Any]) -> str:
    """Return the replacement to suggest for a vector env that resets in the next step."""
    if isinstance(env.unwrapped, AsyncVectorEnv):
        return "the env's id, or build it with autoreset_mode=AutoresetMode.SAME_STEP"
    # custom classes take no autoreset mode
    env_id = "id" if env.spec is None else f"'{env.spec.id}'"
    return (
        f"env={env_id} with n_envs={env.num_envs}, or gymnasium.make_vec({env_id}, "
        f"num_envs={env.num_envs}, vectorization_mode='sync')"
    )


class _Envs(SyncVectorEnv):
    """Envs made here. A step makes one array of each leaf, and keeps no info but action masks.

    gymnasium's step also joins all infos and copies each array, which takes longer than small envs.
    """

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        super().__init__(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        space: Any = self.single_observation_space
        self._dtypes = {name: leaf.dtype for name, leaf in leaf_spaces(space).items()}
        # a Dict of leaves is split already
        self._splits = [*self._dtypes] != [*getattr(space, "spaces", [""])]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all envs and reset those that ended; observations are returned by leaf."""
        space, seen, rewards = self.single_observation_space, [], np.empty(self.num_envs)
        terminated, truncated = np.empty((2, self.num_envs), np.bool_)
        infos: dict[str, Any] = {}
        pairs = zip(self.envs, iterate(self.action_space, actions), strict=True)
        for i, (env, action) in enumerate(pairs):
            obs, reward, over, cut, info = env.step(action)
            rewards[i], terminated[i], truncated[i] = reward, over, cut
            if over or cut:
                infos = self._add_info(infos, {"final_obs": obs}, i)
                obs, info = env.reset()
            if MASK_KEY in info:
                infos = self._add_info(infos, {MASK_KEY: info[MASK_KEY]}, i)
            seen.append(split(space, obs) if self._splits else obs)
        if not is_nested(space):
            return np.array(seen, space.dtype), rewards, terminated, truncated, infos
        arrays = {k: np.array([obs[k] for obs in seen], d) for k, d in self._dtypes.items()}
        return arrays, rewards, terminated, truncated, infos


class _UsersEnv(_Envs):
    """One env that its user closes: old gymnasium would close it when this object is deleted."""

    def __del__(self) -> None:
        """Leave the env open."""


def _vectorize(
    env: EnvLike, n_envs: int | None, env_kwargs: Mapping[str, Any], first_number: int
) -> VectorEnv[Any, Any, Any]:
    if isinstance(env, VectorEnv):
        if n_envs not in (None, env.num_envs):
            raise EnvError(f"n_envs is {n_envs}, but the vector env has {env.num_envs} envs")
        base = env.unwrapped
        if isinstance(base, SyncVectorEnv):
            base.envs = [
                one if isinstance(one, CheckedEnv) else CheckedEnv(one, f"env {i}")
                for i, one in enumerate(base.envs)
            ]
        return env
    if isinstance(env, gymnasium.Env):
        if n_envs not in (None, 1):
            raise EnvError(
                f"one env cannot serve as n_envs = {n_envs} copies; pass its id or a callable "
                "that makes it, or n_envs=1"
            )
        return _UsersEnv([lambda: CheckedEnv(env, f"env {first_number}")])
    _require_makeable(env)
    count = _require_number(n_envs)
    spaces: Spaces = {}

    def build(number: int) -> gymnasium.Env[Any, Any]:
        made = require_env(make_env(env, env_kwargs), number, spaces)
        return CheckedEnv(made, f"env {number}")

    try:
        vector = _Envs([partial(build, first_number + i) for i in range(count)])
    except (gymnasium.error.Error, ImportError) as error:
        reason = str(error).removesuffix(".")
        raise EnvError(f"env '{env}' cannot be built: {reason}{_remedy(env, error)}") from None
    _require_distinct(vector.envs)
    return vector


def _require_makeable(env: Any) -> None:
    if not (isinstance(env, str) or callable(env)):
        expected = "a gymnasium id, a callable that makes an env, a gymnasium env or a vector env"
        raise _no_env(f"env must be {expected}", env)


def _no_env(expected: str, got: Any) -> EnvError:
    name = type(got).__name__
    if hasattr(got, "possible_agents"):  # of PettingZoo
        return several_agents(f"{name} has")
    if not (hasattr(got, "reset") or hasattr(got, "step")):
        return EnvError(f"{expected}, got {name}")
    tensors = "an env of tensors is passed as an object with all members of TensorEnv"
    lacks = [x for x in vars(TensorEnv) if not x.startswith("_") and not hasattr(got, x)]
    missing = f", of which it lacks {', '.join(lacks)}" if lacks else ""
    return EnvError(f"{expected}, got {name}; {tensors}{missing}")


def _require_number(n_envs: int | None, most: int | None = None) -> int:
    """Return the number of envs to make; with processes, at most ``most``."""
    if n_envs is not None and n_envs < 1:
        raise EnvError(f"n_envs must be at least 1, got {n_envs}")
    if most is not None and n_envs is not None and n_envs > most:
        raise EnvError(
            f"vectorization='async' starts a process per env, at most {most} on this machine, got "
            f"n_envs = {n_envs}; use vectorization='sync'"
        )
    return 1 if n_envs is None else n_envs


def _require_distinct(envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
    """Refuse one env in several places, where each would step and reset the others."""
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise EnvError(
            f"the env callable returned the same {type(envs[0].unwrapped).__name__} more than once "
            f"for n_envs = {len(envs)}; let it make a new env at each call, or use n_envs=1"
        )


def _remedy(env: EnvLike, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and ":" in str(env):
        return "; if the module lies in the working folder, set PYTHONPATH=."
    if isinstance(error, gymnasium.error.UnregisteredEnv):
        with suppress(ImportError):
            import_module("ale_py")  # registers its games
        specs = [b.spec for b in get_registry().usable("rlox_env_backends")]
        known = {*gymnasium.registry, *(env_id for spec in specs for env_id in spec.env_ids)}
        name = str(env)
        alike = re.compile(rf"\w+/{re.escape(name)}([-_]v\d+)?")
        if meant := sorted(filter(alike.fullmatch, known)):
            return f"; did you mean '{meant[0]}'?"
        if re.fullmatch(r"[a-z_0-9]+_v\d+", name):
            return (
                f"; PettingZoo's envs are named with their package, as in 'sisl/{name}', and "
                "trained by 'mappo'"
            )
    if isinstance(error, (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound)):
        return f" (if a module of yours registers it, name that too: 'module:{env}')"
    return ""


SHOWN = 60
"""Number of characters of a value that a message shows."""

STEP_KEYS = tuple(sorted(VecEnvStep.__required_keys__, key=[*VecEnvStep.__annotations__].index))
"""Keys that every step of a vector env has."""


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One env of a vector env, whose resets and steps are checked.

    A step that needs no cast passes after a quick comparison of each leaf's place, shape and
    dtype; any other step is checked in full. Final observations are copied: an env may write each
    observation into the same array, and a vector env that resets it within the step keeps them
    for longer.

    Args:
        env: the env to step and close.
        place: name of the env in errors, such as ``"env 3"``.

    Raises:
        EnvError: the env's ``reset`` takes no seed or no options.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], place: str = "") -> None:
        super().__init__(env)
        try:
            inspect.signature(env.unwrapped.reset).bind(seed=None, options=None)
        except TypeError as error:
            raise EnvError(
                f"{type(env.unwrapped).__name__}.reset must take seed= and options=, but it {error}"
                "; write def reset(self, *, seed=None, options=None)"
            ) from None
        self._spaces = env.observation_space, env.action_space
        self._form = _form(env.observation_space)
        self._action_form = _form(env.action_space)
        self._place = place
        self._n_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the env.

        Raises:
            EnvError: the reset does not return two things, or an observation of another shape,
                kind or nesting; or it changes the env's spaces.
        """
        returned = self.env.reset(seed=seed, options=options)
        for before, name in zip(self._spaces, ("observation_space", "action_space"), strict=True):
            now = getattr(self.env, name)
            if now is not before and now != before:
                raise EnvError(
                    f"{type(self.env).__name__}.{name} was {before} and is {now}"
                    f"{self._where('reset')}; it must not change"
                )
        if returned.__class__ is tuple and len(returned) == 2:
            obs, info = returned
            if info.__class__ is dict and not _is_endless(info) and _fits(obs, self._form):
                return returned
        obs = _require_returned(self.env, "reset", ("obs", "info"), returned, self._where("reset"))
        return obs, returned[1]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the env.

        Raises:
            EnvError: the step does not return five things, its observation has another shape, kind
                or nesting, its reward is not one number, or one of its flags not one truth value.
        """
        # gymnasium sorts the keys of a batch
        returned = self.env.step(_ordered(action, self._action_form))
        self._n_steps += 1
        if returned.__class__ is not tuple or len(returned) != 5:
            returned = self._look(returned)
        obs, reward, terminated, truncated, info = returned
        if not (
            reward.__class__ in _NUMBERS
            and terminated.__class__ in _FLAGS
            and truncated.__class__ in _FLAGS
            and info.__class__ is dict
            and not (info and _is_endless(info))
            and _fits(obs, self._form)
        ):
            obs = self._look(returned)[0]
        if terminated or truncated:
            obs = copy.deepcopy(obs)
        return obs, reward, terminated, truncated, info

    def _look(self, returned: Any) -> Any:
        """Check a step in full and refuse a wrong part.

        Returns:
            The step, with an observation that no cast changes.
        """
        where = self._where("step")
        parts = ("obs", "reward", "terminated", "truncated", "info")
        fitting = _require_returned(self.env, "step", parts, returned, where)
        name = _name(self.env)
        _require_scalar(name, "reward", "number", returned[1], where)
        for flag, value in zip(parts[2:4], returned[2:4], strict=True):
            _require_scalar(name, flag, "truth value", value, where)
        return fitting, *returned[1:]

    def _where(self, method: str) -> str:
        """Return the call and the env in words, for errors."""
        place = f" of {self._place}" if self._place else ""
        return f" in {f'step {self._n_steps}' if method == 'step' else 'a reset'}{place}"


# values of these types need no further check
_NUMBERS = frozenset({float, int, np.float64, np.float32})
_FLAGS = frozenset({bool, np.bool_})
_INTS = frozenset({int, np.int64})
_DTYPES = [np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]]


def _form(space: gymnasium.Space[Any]) -> tuple[Any, ...]:
    """Return the data that :func:`_fits` compares with the values of a space."""
    if isinstance(space, gymnasium.spaces.Dict):
        return dict, [(key, _form(child)) for key, child in space.spaces.items()], None
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple, [(i, _form(child)) for i, child in enumerate(space.spaces)], None
    bounds, own = integer_bounds(space), np.dtype(space.dtype)
    known: dict[Any, Any] = {
        dtype: None if bounds is None or np.can_cast(dtype, own) else bounds
        for dtype in _DTYPES
        if bounds is None or np.can_cast(dtype, own, "same_kind")
    }
    if isinstance(space, gymnasium.spaces.Discrete) and np.dtype(np.int64) in known:
        known[int] = bounds
    return None, space.shape, known


def _fits(value: Any, form: tuple[Any, ...]) -> bool:
    """Return whether a value has the nesting of its space, and leaves that no cast would change.

    Numbers of the space's own dtype are compared with its bounds for all envs at once, see
    :meth:`rlox.spaces.ObservationRows.require`.
    """
    kind, inner, known = form
    try:
        if kind is not None:
            if value.__class__ is not kind or len(value) != len(inner):
                return False
            for key, child in inner:  # noqa: SIM110  # all() takes twice as long
                if not _fits(value[key], child):
                    return False
            return True
        if value.__class__ in _INTS:
            low, high = known[int]
            return bool(low <= value <= high)
        bounds = known[value.dtype]
        return value.shape == inner and (bounds is None or find_misfit(value, *bounds) is None)
    except (AttributeError, KeyError):
        return False


def _ordered(value: Any, form: tuple[Any, ...]) -> Any:
    """Return a value of a space with its keys in the space's order."""
    kind, inner, _ = form
    if kind is None:
        return value
    parts = [(key, _ordered(value[key], child)) for key, child in inner]
    return dict(parts) if kind is dict else tuple(part for _, part in parts)


def _name(env: gymnasium.Env[Any, Any]) -> str:
    """Return the class of the env, or of the wrapper that changes the observations."""
    space = env.observation_space
    while isinstance(env, gymnasium.Wrapper) and env.env.observation_space is space:
        env = env.env
    return type(env).__name__


def _require_returned(
    env: gymnasium.Env[Any, Any], method: str, parts: tuple[str, ...], returned: Any, where: str
) -> Any:
    """Refuse a wrong number of returned values, or an observation of another form.

    Returns:
        The observation; leaves that a cast to their space of integers could change are cast.
    """
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
    cast = {}
    for leaf, space in leaf_spaces(env.observation_space).items():
        problem = _difference(leaves[leaf], space)
        if problem is not None:
            what = f"observation '{leaf}'" if leaf else "observation"
            raise EnvError(
                f"{name} returned an {what} {problem}{where}; change it or the env's "
                "observation_space"
            )
        array, dtype = np.asarray(leaves[leaf]), np.dtype(space.dtype)
        if integer_bounds(space) is not None and not np.can_cast(array.dtype, dtype):
            cast[leaf] = array.astype(dtype)
    if not isinstance(returned[-1], Mapping):
        raise EnvError(f"the info of {name} must be a dict, got {_short(returned[-1])}{where}")
    if _is_endless(returned[-1]):
        raise EnvError(f"the info of {name} holds itself{where}; leave that out")
    if not cast:
        return returned[0]
    leaves = {**leaves, **cast}
    return join(env.observation_space, leaves if is_nested(env.observation_space) else leaves[""])


def _is_endless(info: Any, above: tuple[int, ...] = (), sound: set[int] | None = None) -> bool:
    """Return whether a dict contains itself, in dicts and lists, or is nested a hundred deep."""
    values = info if isinstance(info, list) else info.values()
    inner = [value for value in values if isinstance(value, (dict, list))]
    if not inner:
        return False
    sound, above = set() if sound is None else sound, (*above, id(info))
    for value in inner:
        if id(value) not in sound:
            if id(value) in above or len(above) == 100 or _is_endless(value, above, sound):
                return True
            sound.add(id(value))
    return False


def _difference(value: Any, space: gymnasium.Space[Any]) -> str | None:
    """Return how a value differs from those of a space: shape, kind, or a number out of bounds.

    ``None``: it does not differ.
    """
    if space.shape is None:
        return None
    if isinstance(value, memoryview):  # cannot be copied
        return "that is a memoryview, expected an array"
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return f"that is not an array, expected shape {space.shape}: {_short(value)}"
    if array.shape != space.shape:
        return f"of shape {array.shape}, expected {space.shape}"
    if space.dtype is not None and space.dtype.kind in NUMBERS and array.dtype.kind not in NUMBERS:
        return f"of dtype {array.dtype}, expected {space.dtype}: {_short(value)}"
    bounds = integer_bounds(space)
    index = None if bounds is None else find_misfit(array, *bounds)
    return None if index is None else f"with {array[index]}, which {space} does not hold,"


def _short(value: Any) -> str:
    """Return a short text for a value of any size."""
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
    """Refuse a step of ``env`` that does not match :class:`rlox.protocols.VecEnvStep`.

    Args:
        step: result of ``env.step_all``.
        env: the env that returned it.
        where: time of the step, for errors.

    Raises:
        EnvError: a key is missing, or an array is of another shape or kind.
    """
    name = f"{type(env).__name__}.step_all{where}"
    require_keys(name, step, STEP_KEYS)
    given: Any = step
    shape = (env.n_envs,)
    _require_array(f"rewards of {name}", given["rewards"], shape)
    for key in ("terminated", "truncated"):
        _require_array(f"{key} of {name}", given[key], shape, kinds="b")
    for key in ("obs", "final_obs"):
        require_observations(given[key], env.observation_space, shape, f"{key}{{}} of {name}")


def require_keys(name: str, step: Any, keys: tuple[str, ...]) -> None:
    """Refuse the result of a method called ``name`` without these keys.

    Raises:
        EnvError: it is not a mapping, or lacks a key.
    """
    if not isinstance(step, Mapping):
        raise EnvError(f"{name} must return a dict with {', '.join(keys)}, got {_short(step)}")
    missing = [key for key in keys if key not in step]
    if missing:
        raise EnvError(f"{name} must return a dict with {', '.join(keys)}; it has no {missing[0]}")


def require_team_step(step: Any, env: MultiAgentVecEnv, keys: tuple[str, ...], name: str) -> None:
    """Refuse a step without the ``keys`` of :class:`rlox.protocols.MultiAgentStep`.

    Args:
        step: result of ``env``.
        env: the env that returned it.
        keys: required keys.
        name: source of the step, for errors.

    Raises:
        EnvError: a key is missing, or a group's array is missing or of another shape or kind.
    """
    require_keys(name, step, keys)
    if "episode_ended" in keys:
        _require_array(f"episode_ended of {name}", step["episode_ended"], (env.n_envs,), kinds="b")
    for group, key in itertools.product(env.groups, keys):
        shape = env.n_envs, len(group.agents)
        rows = step[key].get(group.name) if isinstance(step[key], Mapping) else step[key]
        what = f"{key}['{group.name}']{{}} of {name}"
        if key in ("obs", "final_obs"):
            require_observations(rows, group.observation_space, shape, what)
        elif key in ("active", "rewards", "terminated", "truncated"):
            kinds = NUMBERS if key == "rewards" else "b"
            _require_array(what.format(""), rows, shape, kinds=kinds)


def require_observations(
    obs: Any, space: gymnasium.Space[Any], rows: tuple[int, ...], what: str
) -> None:
    """Refuse anything but observations of a space, in arrays (*rows, *shape).

    Args:
        obs: observations from an env.
        space: space of one observation.
        rows: leading dimensions.
        what: name in errors, with braces for the name of a leaf.

    Raises:
        EnvError: a leaf is missing, or of another shape or kind.
    """
    leaves = obs if isinstance(obs, dict) else {"": obs}
    for leaf, of_leaf in leaf_spaces(space).items():
        name = what.format(f"['{leaf}']" if leaf else "")
        _require_array(name, leaves.get(leaf), (*rows, *(of_leaf.shape or ())))


def _require_array(what: str, value: Any, shape: tuple[int, ...], *, kinds: str = NUMBERS) -> None:
    if isinstance(value, np.ndarray) and value.shape == shape and value.dtype.kind in kinds:
        return
    got = type(value).__name__
    if isinstance(value, (np.ndarray, np.generic)):
        got += f" of shape {value.shape} and dtype {value.dtype}"
    expected = "bool" if kinds == "b" else "numbers"
    raise EnvError(f"{what} must be an array of shape {shape} of {expected}, got {got}")


class ActionMasks:
    """Masks of N envs for their next actions.

    An env uses one of three places. :class:`rlox.spaces.ActionRows` describes the mask's row.

    1. ``info["action_mask"]`` of every reset and step, as in gymnasium's own envs;
    2. the key ``"action_mask"`` of a ``Dict`` of observations: PettingZoo's convention. The policy
       does not see it as part of the observation;
    3. a method ``action_masks()``: sb3-contrib's convention.

    Args:
        env: the envs, with masks in one of the three places or without any.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        self._actions: ActionRows | None = None
        space = env.single_observation_space
        self._in_obs = without_mask(space) is not space
        self._by_method = not self._in_obs and _has_method(env)
        self._in_info = False
        self.current: npt.NDArray[np.bool_] | None = None
        """(N, mask_size), True if a choice is possible; ``None`` if the envs give no masks."""

    def after_reset(self, obs: Any, infos: Mapping[str, Any]) -> None:
        """Read the masks after a reset of all envs; see :meth:`after_step`."""
        self._in_info = not self._in_obs and not self._by_method and MASK_KEY in infos
        self.after_step(obs, infos)

    def after_step(
        self,
        obs: Any,
        infos: Mapping[str, Any],
        ended: npt.NDArray[np.bool_] | None = None,
        reset_infos: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the masks for the next actions.

        Args:
            obs: observations of all envs, with the mask's key.
            infos: infos of the step.
            ended: (N,) the envs that were reset after the step.
            reset_infos: infos of those resets; ``None`` if ``infos`` has them.

        Raises:
            EnvError: a mask is missing, has another shape, or forbids all choices, or the actions
                cannot be masked.
        """
        if self._in_obs:
            given = obs[MASK_KEY]
        elif self._by_method:
            given = _call(self._env)
        elif self._in_info:
            given = self._from_infos(infos, ended, reset_infos)
        elif MASK_KEY in infos:
            raise EnvError(
                f"an env gave info['{MASK_KEY}'] with a step but not with its reset; give it with "
                "both"
            )
        else:
            return
        if self._actions is None:
            self._actions = ActionRows(self._env.single_action_space)
        try:
            self.current = self._actions.check_masks(given, self._env.num_envs)
        except ValueError as error:
            raise EnvError(f"the envs gave wrong action masks: {error}") from None

    def _from_infos(
        self,
        infos: Mapping[str, Any],
        ended: npt.NDArray[np.bool_] | None,
        reset_infos: Mapping[str, Any] | None,
    ) -> npt.NDArray[Any]:
        if ended is None or reset_infos is None:
            return _rows(infos, np.ones(self._env.num_envs, np.bool_))
        after_reset = _rows(reset_infos, ended)
        if ended.all():
            return after_reset
        # at the end of an episode an env may forbid all actions, or give no mask
        return np.where(ended[:, None], after_reset, _rows(infos, ~ended))


def _rows(infos: Mapping[str, Any], asked: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return the masks (N, mask_size) in infos; those of the envs in ``asked`` are required."""
    given = infos.get(f"_{MASK_KEY}", asked if MASK_KEY in infos else ~asked)
    if not given[asked].all():
        missing = np.flatnonzero(asked & ~given)[0]
        raise EnvError(
            f"env {missing} gave no info['{MASK_KEY}']; give it with every reset and step"
        )
    masks = np.asarray(infos[MASK_KEY])
    if masks.dtype == object:
        raise EnvError(
            f"info['{MASK_KEY}'] must be one array of 0 and 1, the columns of all choices side by "
            f"side, got {type(masks[asked][0]).__name__}"
        )
    return masks


def _has_method(env: VectorEnv[Any, Any, Any]) -> bool:
    if callable(getattr(env, "action_masks", None)):
        return True
    base = env.unwrapped
    if not isinstance(base, (SyncVectorEnv, AsyncVectorEnv)):
        return False
    return all(base.call("has_wrapper_attr", "action_masks"))


def _call(env: VectorEnv[Any, Any, Any]) -> npt.NDArray[Any]:
    method = getattr(env, "action_masks", None)
    base: Any = env.unwrapped
    return np.asarray(base.call("action_masks") if method is None else method())


Arrays = dict[str, npt.NDArray[Any]]


class _Server:
    """Answers :class:`rlox.envs.processes.ProcessVecEnv`; one server per env."""

    def __init__(self, env: GymVecEnv) -> None:
        self._env = env
        self.close = env.close

    def spaces(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        data = pickle.dumps((self._env.observation_space, self._env.action_space))
        return None, {"spaces": np.frombuffer(data, np.uint8)}

    def reset(self, seed: int | None, arrays: Arrays) -> tuple[None, Arrays]:
        obs = self._env.reset_all(None if seed is None else [seed])
        return None, _named("obs", obs) | self._masks()

    def step(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        step = self._env.step_all(arrays.get("", arrays))
        answer = {key: step[key] for key in ("rewards", "terminated", "truncated")}
        answer |= _named("obs", step["obs"]) | self._masks()
        if step["final_obs"] is not step["obs"]:
            answer |= _named("final_obs", step["final_obs"])
        return None, answer

    def _masks(self) -> Arrays:
        masks = self._env.action_masks()
        return {} if masks is None else {"masks": masks}


def _named(prefix: str, obs: Any) -> Arrays:
    leaves = obs if isinstance(obs, dict) else {"": obs}
    return {f"{prefix}:{leaf}": array for leaf, array in leaves.items()}


def serve(
    env: Any, env_kwargs: Mapping[str, Any], spec: Any, number: int, beat: Callable[[], None]
) -> _Server:
    """Return the object that answers for one env, in the env's process.

    Args:
        env: a gymnasium id, or a callable that makes an env.
        env_kwargs: its arguments.
        spec: spec of an id that the parent has registered; ``None``: the id is known here.
        number: number of the env, for errors.
        beat: function that reports progress; unused, because a step is a single call.
    """
    register_here(spec)
    return _Server(GymVecEnv(env, 1, env_kwargs=env_kwargs, first_number=number))
