"""gymnasium envs behind the one vector-env contract, whatever their autoreset mode.

gymnasium vector envs reset an env whose episode ended in the same step, in the next step, or not
at all. All three end in the same :class:`~rlox.protocols.VecEnvStep` here: same-step envs report
the final observation themselves, the other two are reset by mask within the step, so no reset
observation is ever mistaken for the outcome of an action and no step is wasted.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import setitem
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlox.envs.arguments import make_env
from rlox.envs.validate import CheckedEnv
from rlox.errors import EnvError
from rlox.protocols import VecEnvStep
from rlox.spaces.masks import MASK_KEY, ActionMasks, without_mask
from rlox.spaces.nested import is_nested, join, leaf_spaces, map_leaves, split
from rlox.spaces.rows import ObservationRows

__all__ = ["GymVecEnv", "Vectorization", "make_vec_env"]

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
        vectorization: ``"sync"`` steps the envs in this process, ``"async"`` each in its own
            process with observations in shared memory.
        env_kwargs: arguments of ``gymnasium.make``.

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
    ) -> None:
        self._seed = seed
        self._env = _vectorize(env_id, n_envs, vectorization, env_kwargs or {})
        self._mode = self._env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self._mode is not AutoresetMode.SAME_STEP and not _resets_by_mask(self._env, self._mode):
            raise EnvError(
                f"{type(self._env.unwrapped).__name__} resets envs in the next step and cannot "
                "reset single envs; pass the env's id, or build it with "
                "autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self._observation_space = without_mask(self._env.single_observation_space)
        ObservationRows(self._observation_space)  # refuses what cannot be kept
        self._masks = ActionMasks(self._env)

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return self._env.num_envs

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation, without an action mask."""
        return self._observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        return self._env.single_action_space

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations; see ``rlox.protocols.VecEnv``."""
        if seed is None:
            seed, self._seed = self._seed, None
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds: int | list[int] | None = None if seed is None else int(seed)
        else:
            seeds = [int(s) for s in seed]
        obs, infos = self._env.reset(seed=seeds)  # type: ignore[arg-type]
        self._masks.after_reset(obs, infos)
        return self._leaves(obs)

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the masks of the next actions; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._masks.current

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; see :class:`rlox.protocols.VecEnvStep`."""
        batch_space = self._env.action_space
        actions = _batch(actions, batch_space)
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
        self._env.close()


def _batch(actions: Any, space: gymnasium.Space[Any]) -> Any:
    """Return a batch of actions in the dtypes of the batch's space."""
    if not is_nested(space):
        actions = np.asarray(actions, dtype=space.dtype)
        if actions.shape != space.shape:
            raise EnvError(f"actions must have shape {space.shape}, got {actions.shape}")
        return actions
    try:
        leaves = split(space, actions)
    except ValueError as error:
        raise EnvError(f"the actions are not nested as their space: {error}") from None
    return join(space, map_leaves(_batch, leaves, leaf_spaces(space)))


def _set_row(obs: Any, row: int, value: Any) -> None:
    map_leaves(lambda leaf, new: setitem(leaf, row, new), obs, value)


def make_vec_env(
    env_id: EnvLike,
    *,
    n_envs: int | None = None,
    vectorization: Vectorization = "sync",
    env_kwargs: Mapping[str, Any] | None = None,
) -> GymVecEnv:
    """Build the ``gymnasium`` backend's vector env."""
    return GymVecEnv(env_id, n_envs, vectorization=vectorization, env_kwargs=env_kwargs)


def _resets_by_mask(env: VectorEnv[Any, Any, Any], mode: AutoresetMode) -> bool:
    base = env.unwrapped
    if isinstance(base, AsyncVectorEnv):
        # gymnasium's workers forget that they were reset when they share no memory, and reset again
        return mode is AutoresetMode.DISABLED or bool(base.shared_memory)
    return isinstance(base, SyncVectorEnv)


class _UsersEnv(SyncVectorEnv):
    """One env that its user closes: old gymnasium would close it with this object's deletion."""

    def __del__(self) -> None:
        """Leave it open."""


def _vectorize(
    env: EnvLike, n_envs: int | None, vectorization: Vectorization, env_kwargs: Mapping[str, Any]
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
        return _UsersEnv([lambda: CheckedEnv(env)], autoreset_mode=AutoresetMode.SAME_STEP)
    if not (isinstance(env, str) or callable(env)):
        raise EnvError(
            "env must be a gymnasium id, a callable that makes an env, a gymnasium env or a "
            f"vector env, got {type(env).__name__}"
        )

    if n_envs is not None and n_envs < 1:
        raise EnvError(f"n_envs must be at least 1, got {n_envs}")
    most = MAX_PROCESSES_PER_CORE * (os.cpu_count() or 1)
    if vectorization == "async" and n_envs is not None and n_envs > most:
        raise EnvError(
            f"vectorization='async' starts a process per env, at most {most} on this machine, got "
            f"n_envs = {n_envs}; use vectorization='sync'"
        )

    def build() -> gymnasium.Env[Any, Any]:
        made = make_env(env, env_kwargs)
        if not isinstance(made, gymnasium.Env):
            raise EnvError(
                f"the env callable must return a gymnasium.Env, got {type(made).__name__}"
            )
        for space in ("observation_space", "action_space"):
            if not isinstance(getattr(made, space, None), gymnasium.Space):
                raise EnvError(
                    f"{type(made).__name__}.{space} must be a gymnasium.Space, got "
                    f"{getattr(made, space, None)!r}; set it in the env's constructor"
                )
        return CheckedEnv(made)

    vector_class = AsyncVectorEnv if vectorization == "async" else SyncVectorEnv
    try:
        with _workers_ignore_the_terminal() if vectorization == "async" else nullcontext():
            vector = vector_class(
                [build for _ in range(1 if n_envs is None else n_envs)],
                autoreset_mode=AutoresetMode.SAME_STEP,
            )
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        reason = str(error).removesuffix(".")
        raise EnvError(f"env '{env}' cannot be built: {reason}{_remedy(env, error)}") from None
    if isinstance(vector, SyncVectorEnv):
        _require_distinct(vector.envs)
    return vector


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


@contextmanager
def _workers_ignore_the_terminal() -> Iterator[None]:
    """Let processes started within ignore SIGINT and SIGHUP.

    A terminal sends them to workers too, of Ctrl-C and when it is closed, and one that dies of it
    takes the training along before a consistent state can be saved. Signals can only be set in the
    main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    sent = (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT))  # Windows has no SIGHUP
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in dict.fromkeys(sent)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
