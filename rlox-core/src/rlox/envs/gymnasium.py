"""gymnasium envs behind the one vector-env contract, whatever their autoreset mode.

gymnasium vector envs reset an env whose episode ended in the same step, in the next step, or not
at all. All three end in the same :class:`~rlox.protocols.VecEnvStep` here: same-step envs report
the final observation themselves, the other two are reset by mask within the step, so no reset
observation is ever mistaken for the outcome of an action and no step is wasted.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import setitem
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlox.envs.processes import ProcessVecEnv
from rlox.envs.validate import CheckedEnv, batch_of_actions
from rlox.errors import EnvError, suggest
from rlox.protocols import VecEnvStep
from rlox.spaces.masks import MASK_KEY, ActionMasks, without_mask
from rlox.spaces.rows import ObservationRows, map_leaves, split

Spaces = dict[str, tuple[int, gymnasium.Space[Any]]]
"""By attribute of an env: the number of the first env, and its space."""


def make_env(
    env: str | Callable[..., gymnasium.Env[Any, Any]], env_kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return one env.

    Args:
        env: a gymnasium id, or a callable that makes an env.
        env_kwargs: its arguments.

    Raises:
        EnvError: it cannot be made with them; the text has their names and those that it takes.
    """
    make = partial(gymnasium.make, env) if isinstance(env, str) else env
    if not env_kwargs:
        return make()
    try:
        return make(**env_kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        raise EnvError(
            f"env '{env}' cannot be built with the env_kwargs {dict(env_kwargs)}: {error}"
            f"{_known_arguments(env, env_kwargs)}"
        ) from error


def require_env(made: Any, number: int, spaces: Spaces) -> gymnasium.Env[Any, Any]:
    """Return what was made if it can be one of several envs that are stepped together.

    Args:
        made: what an id or a callable has made.
        number: of the env, for errors.
        spaces: of the first env; filled by the first call.

    Raises:
        EnvError: it is no gymnasium env, lacks a space, or has another than the first env.
    """
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"the env callable must return a gymnasium.Env, got {type(made).__name__}")
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
    """Return what the env's constructor takes if an argument is not among it, else nothing."""
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
"""Env processes beyond which a machine does nothing but switch between them."""

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
        max_restarts: how often each env in a process of its own may begin again if that dies or
            stalls.
        first_number: what errors call the first env, if others count further ones.

    Raises:
        EnvError: the env cannot be built; the text has gymnasium's reason.
        SpaceError: a leaf of the observations is no array of a fixed shape.
    """

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
        self._observation_space = without_mask(self._env.single_observation_space)
        ObservationRows(self._observation_space)  # refuses what cannot be kept
        self._masks = ActionMasks(self._env)

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
        batch_space = self._env.action_space
        actions = batch_of_actions(actions, batch_space)
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        ended = terminated | truncated
        reset_infos = None
        leaves = final_obs = self._leaves(obs)
        if ended.any():
            if self._mode is AutoresetMode.SAME_STEP:
                final_obs = map_leaves(np.copy, leaves)
                for i in np.flatnonzero(ended):
                    _set_row(final_obs, int(i), self._leaves(infos["final_obs"][i]))
            else:
                if not self._env_copies():
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

    def _env_copies(self) -> bool:
        """Whether each step returns a new observation array."""
        return bool(getattr(self._env.unwrapped, "copy", False))

    def close(self) -> None:
        """Close the envs; worker processes end."""
        if self._processes is None:
            self._env.close()
        else:
            self._processes.close()


def _set_row(obs: Any, row: int, value: Any) -> None:
    map_leaves(lambda leaf, new: setitem(leaf, row, new), obs, value)


def make_vec_env(
    env_id: EnvLike,
    *,
    n_envs: int | None = None,
    vectorization: Vectorization = "sync",
    env_kwargs: Mapping[str, Any] | None = None,
    max_restarts: int = 0,
) -> GymVecEnv:
    """Build the ``gymnasium`` backend's vector env."""
    return GymVecEnv(
        env_id,
        n_envs,
        vectorization=vectorization,
        env_kwargs=env_kwargs,
        max_restarts=max_restarts,
    )


def _resets_by_mask(env: VectorEnv[Any, Any, Any], mode: AutoresetMode) -> bool:
    base = env.unwrapped
    if isinstance(base, AsyncVectorEnv):
        # gymnasium's workers forget that they were reset when they share no memory, and reset again
        return mode is AutoresetMode.DISABLED or bool(base.shared_memory)
    return isinstance(base, SyncVectorEnv)


def _same_step_remedy(env: VectorEnv[Any, Any, Any]) -> str:
    """Return what to pass in place of a vector env that resets in the next step."""
    if isinstance(env.unwrapped, AsyncVectorEnv):
        return "the env's id, or build it with autoreset_mode=AutoresetMode.SAME_STEP"
    # classes of their own take no autoreset mode
    env_id = "id" if env.spec is None else f"'{env.spec.id}'"
    return (
        f"env={env_id} with n_envs={env.num_envs}, or gymnasium.make_vec({env_id}, "
        f"num_envs={env.num_envs}, vectorization_mode='sync')"
    )


class _UsersEnv(SyncVectorEnv):
    """One env that its user closes: old gymnasium would close it with this object's deletion."""

    def __del__(self) -> None:
        """Leave it open."""


def _vectorize(
    env: EnvLike, n_envs: int | None, env_kwargs: Mapping[str, Any], first_number: int
) -> VectorEnv[Any, Any, Any]:
    if isinstance(env, VectorEnv):
        if n_envs not in (None, env.num_envs):
            raise EnvError(f"n_envs is {n_envs}, but the vector env has {env.num_envs} envs")
        return env
    if isinstance(env, gymnasium.Env):
        if n_envs not in (None, 1):
            raise EnvError(
                f"one env cannot serve as n_envs = {n_envs} copies; pass its id or a callable "
                "that makes it, or n_envs=1"
            )
        return _UsersEnv(
            [lambda: CheckedEnv(env, f"env {first_number}")], autoreset_mode=AutoresetMode.SAME_STEP
        )
    _require_makeable(env)
    count = _require_number(n_envs)
    spaces: Spaces = {}

    def build(number: int) -> gymnasium.Env[Any, Any]:
        made = require_env(make_env(env, env_kwargs), number, spaces)
        return CheckedEnv(made, f"env {number}")

    try:
        vector = SyncVectorEnv(
            [partial(build, first_number + i) for i in range(count)],
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        reason = str(error).removesuffix(".")
        raise EnvError(f"env '{env}' cannot be built: {reason}{_remedy(env, error)}") from None
    _require_distinct(vector.envs)
    return vector


def _require_makeable(env: Any) -> None:
    if not (isinstance(env, str) or callable(env)):
        raise EnvError(
            "env must be a gymnasium id, a callable that makes an env, a gymnasium env or a "
            f"vector env, got {type(env).__name__}"
        )


def _require_number(n_envs: int | None, most: int | None = None) -> int:
    """Return the number of envs to make, of which processes bear so many at most."""
    if n_envs is not None and n_envs < 1:
        raise EnvError(f"n_envs must be at least 1, got {n_envs}")
    if most is not None and n_envs is not None and n_envs > most:
        raise EnvError(
            f"vectorization='async' starts a process per env, at most {most} on this machine, got "
            f"n_envs = {n_envs}; use vectorization='sync'"
        )
    return 1 if n_envs is None else n_envs


def _require_distinct(envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
    """Refuse one env that stands in several places, where each would step and reset the others."""
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise EnvError(
            f"the env callable returned the same {type(envs[0].unwrapped).__name__} more than once "
            f"for n_envs = {len(envs)}; let it make a new env at each call, or use n_envs=1"
        )


def _remedy(env: EnvLike, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and ":" in str(env):
        return "; if the module lies in the working folder, set PYTHONPATH=."
    if isinstance(error, (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound)):
        return f" (if a module of yours registers it, name that too: 'module:{env}')"
    return ""
