"""One gymnasium env as its worker process serves it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.workers.arena import register_here

Arrays = dict[str, npt.NDArray[Any]]


class _Server:
    """Answers :class:`rlox.envs.processes.ProcessVecEnv`, which has one for each env."""

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
    """Return what answers for one env, in its process.

    Args:
        env: a gymnasium id, or a callable that makes an env.
        env_kwargs: its arguments.
        spec: how to make the env of an id that the parent has registered; ``None``: as here.
        number: of the env, for errors.
        beat: a sign that it goes on; a step is one call, so there is none.
    """
    register_here(spec)
    return _Server(GymVecEnv(env, 1, env_kwargs=env_kwargs, first_number=number))
