"""EnvPool's envs, stepped many at once in C++ threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space
from rlox.errors import EnvError, import_extra, suggest
from rlox.protocols import VecEnvStep
from rlox.spaces import is_nested
from rlox.spaces.rows import batch_of_actions

from rlox_simulators.options import PoolOptions
from rlox_simulators.seeds import seeds_of_32_bits


class PoolVecEnv:
    """N copies of an EnvPool env.

    EnvPool resets a copy in the step after its episode's last. Here the ended copies take that
    step at once, so that one step returns the true last observations and the first of the next
    episodes. States cannot be saved: a resumed run begins new episodes.

    Args:
        env_id: one of ``envpool.list_all_envs()``, such as ``"HalfCheetah-v5"``.
        n_envs: N.
        options: see :class:`PoolOptions`.
        arguments: keywords of ``envpool.make_gymnasium``, such as ``frame_skip``.

    Raises:
        EnvError: EnvPool has no such env, refuses an argument, or the observations are nested.
        MissingDependencyError: EnvPool is not installed.

    Source:
        Weng et al. 2022, "EnvPool: a highly parallel reinforcement learning environment execution
        engine".
    """

    def __init__(
        self, env_id: str, n_envs: int = 1, *, options: PoolOptions | None = None, **arguments: Any
    ) -> None:
        self._library = import_extra("envpool", f"'{env_id}' of EnvPool", "envpool")
        known = self._library.list_all_envs()
        if env_id not in known:
            raise EnvError(
                f"EnvPool has no '{env_id}'{suggest(env_id, known)}; "
                "envpool.list_all_envs() lists its envs"
            )
        threads = (options or PoolOptions()).pool_threads
        self._env_id, self._n_envs = env_id, n_envs
        self._arguments = {**arguments, "num_threads": 0 if threads is None else threads}
        self._env = self._build(None)
        with _quiet():
            self._spaces = self._env.observation_space, self._env.action_space
        if is_nested(self.observation_space):
            self._env.close()
            raise EnvError(
                f"EnvPool's '{env_id}' has observations {self.observation_space}; this backend "
                "steps those of one array only, so take env_backend='gymnasium'"
            )
        self._batch = batch_space(self.action_space, n_envs)
        self._started = False

    def _build(self, seed: npt.NDArray[np.int64] | None) -> Any:
        seeds = {} if seed is None else {"seed": seed.tolist()}
        try:
            return self._library.make_gymnasium(
                self._env_id, num_envs=self._n_envs, **self._arguments, **seeds
            )
        except Exception as error:  # raised by EnvPool's parser, its env, or its C++
            raise EnvError(
                f"'{self._env_id}' cannot be built by EnvPool with {self._arguments}: {error}"
            ) from error

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return self._n_envs

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Space of one env's observation."""
        space: gymnasium.Space[Any] = self._spaces[0]
        return space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Space of one env's action."""
        space: gymnasium.Space[Any] = self._spaces[1]
        return space

    def reset_all(self, seed: int | Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Begin new episodes; see :class:`rlox.protocols.VecEnv`.

        EnvPool takes seeds only at construction, so a seed rebuilds the envs.
        """
        if seed is not None:
            self._env.close()
            self._env = self._build(seeds_of_32_bits(seed, self._n_envs))
        with _quiet():
            obs, _ = self._env.reset()
        self._started = True
        return np.array(obs)

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs; see :class:`rlox.protocols.VecEnvStep`.

        Raises:
            EnvError: the actions have another shape, or :meth:`reset_all` was not called.
        """
        if not self._started:
            raise EnvError("step_all comes after reset_all")
        batch = batch_of_actions(actions, self._batch)
        obs, rewards, terminated, truncated, _ = self._env.step(batch)
        step: VecEnvStep = {
            "obs": obs,
            "rewards": np.asarray(rewards, np.float64),
            "terminated": np.asarray(terminated, np.bool_),
            "truncated": np.asarray(truncated, np.bool_),
            "final_obs": obs,
        }
        ended = np.flatnonzero(step["terminated"] | step["truncated"])
        if len(ended):
            # this step resets and ignores its actions
            first, *_ = self._env.step(batch[ended], ended.astype(np.int32))
            step["obs"] = obs.copy()
            step["obs"][ended] = first
        return step

    def close(self) -> None:
        """End EnvPool's threads."""
        self._env.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence gymnasium's warnings about rounded bounds of EnvPool's spaces."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield


def make_vec_env(
    env_id: str,
    *,
    n_envs: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    options: PoolOptions | None = None,
) -> PoolVecEnv:
    """Build the ``envpool`` backend's vector env."""
    return PoolVecEnv(env_id, n_envs, options=options, **(env_kwargs or {}))
