"""One PettingZoo env as its worker process serves it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox_marl.envs.pettingzoo import PettingZooVecEnv
from rlox_marl.envs.team_arrays import pack

__all__ = ["serve"]

Arrays = dict[str, npt.NDArray[Any]]


class _Server:
    """Answers :class:`rlox_marl.envs.processes.PettingZooProcesses`, one for each env."""

    def __init__(self, env: PettingZooVecEnv) -> None:
        self._env = env
        self.close = env.close

    def spaces(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        env = self._env
        data = pickle.dumps((env.possible_agents, env.groups, env.state_space))
        return None, {"spaces": np.frombuffer(data, np.uint8)}

    def leave_out_state(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        self._env.leave_out_state()
        return None, {}

    def reset(self, seed: int | None, arrays: Arrays) -> tuple[list[list[str]], Arrays]:
        found = self._env.begin(None if seed is None else [seed])
        return [sorted(groups) for groups in found], {}

    def show(self, found: list[list[str]], arrays: Arrays) -> tuple[None, Arrays]:
        given, bare = (set(groups) for groups in found)
        return None, pack(self._env.show_first(given, bare), self._env.groups)

    def step(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        leaves: dict[str, Any] = {group.name: {} for group in self._env.groups}
        for name, array in arrays.items():
            _field, number, leaf = name.split(":", 2)
            leaves[self._env.groups[int(number)].name][leaf] = array
        return None, pack(self._env.step_leaves(leaves), self._env.groups)


def serve(
    env: Any,
    env_kwargs: Mapping[str, Any],
    with_state: bool,
    number: int,
    beat: Callable[[], None],
) -> _Server:
    """Return what answers for one env, in its process.

    Args:
        env: an id, or a callable that makes an env.
        env_kwargs: its arguments.
        with_state: read the env's state.
        number: of the env, for errors.
        beat: a sign that it goes on; a step is one call, so there is none.
    """
    made = PettingZooVecEnv(
        env, 1, env_kwargs=env_kwargs, with_state=with_state, first_number=number
    )
    return _Server(made)
