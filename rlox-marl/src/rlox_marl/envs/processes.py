"""PettingZoo envs in supervised processes, one each."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.envs import WorkerProcess
from rlox.errors import EnvError
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentStep

from rlox_marl.envs.groups import ActionArrays, env_seeds
from rlox_marl.envs.pettingzoo import PettingZooVecEnv

__all__ = ["PettingZooProcesses", "serve"]

Arrays = dict[str, npt.NDArray[Any]]

BY_ENV = ("state", "final_state", "episode_ended")

RESET_TIMEOUT = 120.0
"""Least seconds that a reset may take."""

MAX_PROCESSES_PER_CORE = 32


class PettingZooProcesses:
    """N PettingZoo envs, each in a process of its own: a ``MultiAgentVecEnv``.

    They show what :class:`PettingZooVecEnv` shows for the same seeds and actions. An exception in
    an env is raised here; a process that dies or misses its deadline is an error that names its
    env.

    Args:
        env: an id, or a callable that makes a parallel or an AEC env; it is sent by cloudpickle.
        n_envs: number of envs N.
        seed: seed of the first :meth:`reset_all`; env i gets seed + i.
        env_kwargs: arguments of the env.
        with_state: see :class:`PettingZooVecEnv`.
        step_timeout: seconds that a step of all envs may take.

    Raises:
        EnvError: the env cannot be built or sent, or there are more than a machine bears.
        SpaceError: observations or actions are of no kind that policies take.
    """

    def __init__(
        self,
        env: Any,
        n_envs: int = 1,
        seed: int | Sequence[int] | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        with_state: bool = True,
        step_timeout: float = 60.0,
    ) -> None:
        if not (isinstance(env, str) or callable(env)):
            raise EnvError(
                f"vectorization='async' makes an env in each process, got the {type(env).__name__} "
                "itself; pass its id or a callable that makes it, or take vectorization='sync'"
            )
        most = MAX_PROCESSES_PER_CORE * (os.cpu_count() or 1)
        if isinstance(n_envs, bool) or not isinstance(n_envs, int) or not 1 <= n_envs <= most:
            raise EnvError(
                "vectorization='async' starts a process per env, at least 1 and at most "
                f"{most} on this machine, got n_envs = {n_envs!r}; vectorization='sync' takes more"
            )
        self._seed, self._step_timeout = seed, step_timeout
        self._workers: list[WorkerProcess] = []
        self.close = weakref.finalize(self, _close, self._workers)
        """Ends the processes."""
        try:
            for number in range(n_envs):
                arguments = (env, dict(env_kwargs or {}), with_state, number)
                self._workers.append(_start(arguments, number))
            answers = self._ask("spaces", [None] * n_envs, RESET_TIMEOUT)
            # pickled by our own processes
            spaces = [pickle.loads(arrays["spaces"].tobytes()) for _, arrays in answers]  # noqa: S301
            for number, other in enumerate(spaces):
                if other != spaces[0]:
                    raise EnvError(
                        f"env {number} has other agents or spaces than env 0; let the callable "
                        "make equal envs"
                    )
        except BaseException:
            self.close()
            raise
        self.n_envs = n_envs
        """Number of envs N."""
        self.possible_agents: tuple[str, ...] = spaces[0][0]
        """Names of all agents."""
        self.groups: tuple[AgentGroup, ...] = spaces[0][1]
        """Groups of agents of equal spaces."""
        self.state_space: gymnasium.Space[Any] | None = spaces[0][2]
        """Space of one env's state; ``None`` if it has none."""
        self._active: dict[str, npt.NDArray[np.bool_]] | None = None

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [worker.pid for worker in self._workers]

    def leave_out_state(self) -> None:
        """Read no state from now on; see :meth:`PettingZooVecEnv.leave_out_state`."""
        self._ask("leave_out_state", [None] * self.n_envs, RESET_TIMEOUT)
        self.state_space = None

    def reset_all(self, seed: int | Sequence[int] | None = None) -> MultiAgentObs:
        """Reset all envs; see :class:`rlox.protocols.MultiAgentVecEnv`."""
        if seed is None:
            seed, self._seed = self._seed, None
        found = self._ask("reset", env_seeds(seed, self.n_envs), RESET_TIMEOUT)
        # whether a group has masks is known from all envs together
        groups = [sorted({name for answer, _ in found for name in answer[k]}) for k in (0, 1)]
        answers = self._ask("show", [groups] * self.n_envs, RESET_TIMEOUT)
        return cast("MultiAgentObs", self._shown(answers))

    def step_all(self, actions: Mapping[str, Any]) -> MultiAgentStep:
        """Step all envs; see :class:`rlox.protocols.MultiAgentStep`.

        Raises:
            EnvError: the actions do not fit, or an env broke its contract.
            WorkerLostError: a process died or was too slow.
        """
        if self._active is None:
            raise EnvError("step_all was called before reset_all; reset the envs first")
        leaves = ActionArrays(self.groups, actions, self._active).leaves
        packed = _pack({"": leaves}, self.groups)
        rows = [
            {name: array[i : i + 1] for name, array in packed.items()} for i in range(self.n_envs)
        ]
        answers = self._ask("step", [None] * self.n_envs, self._step_timeout, rows)
        return cast("MultiAgentStep", self._shown(answers))

    def _ask(
        self,
        method: str,
        messages: Sequence[Any],
        seconds: float,
        rows: Sequence[Arrays] | None = None,
    ) -> list[tuple[Any, Arrays]]:
        """Call a method of all workers at once, and return their answers in order."""
        for i, worker in enumerate(self._workers):
            worker.send(method, messages[i], None if rows is None else rows[i])
        end = time.monotonic() + seconds
        return [worker.receive(max(end - time.monotonic(), 0.0)) for worker in self._workers]

    def _shown(self, answers: Sequence[tuple[Any, Arrays]]) -> Any:
        shown = _unpack([arrays for _, arrays in answers], self.groups)
        self._active = {name: flags.copy() for name, flags in shown["active"].items()}
        return shown


def _start(arguments: tuple[Any, ...], number: int) -> WorkerProcess:
    try:
        return WorkerProcess(
            "rlox_marl.envs.processes:serve", arguments, name=f"the process of env {number}"
        )
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise EnvError(
            f"the env cannot be sent to a process: {error}; pass its id or a function that makes "
            "it, or take vectorization='sync'"
        ) from error


def _close(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.close()


class _Server:
    """Answers :class:`PettingZooProcesses`, one for each env."""

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
        return None, _pack(self._env.show_first(given, bare), self._env.groups)

    def step(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        leaves: dict[str, Any] = {group.name: {} for group in self._env.groups}
        for name, array in arrays.items():
            _field, number, leaf = name.split(":", 2)
            leaves[self._env.groups[int(number)].name][leaf] = array
        return None, _pack(self._env.step_leaves(leaves), self._env.groups)


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


def _pack(shown: Mapping[str, Any], groups: Sequence[AgentGroup]) -> Arrays:
    """Return the arrays of what envs show, by field, number of the group, and leaf."""
    arrays: Arrays = {}
    for field, value in shown.items():
        if field in BY_ENV:
            if value is not None:
                arrays[field] = value
            continue
        for number, group in enumerate(groups):
            if group.name in value:
                leaves = value[group.name]
                named = leaves if isinstance(leaves, dict) else {"": leaves}
                arrays |= {f"{field}:{number}:{leaf}": array for leaf, array in named.items()}
    return arrays


def _unpack(answers: Sequence[Arrays], groups: Sequence[AgentGroup]) -> dict[str, Any]:
    """Return what all envs show, from the arrays of some envs each."""
    shown: dict[str, Any] = {"masks": {}, "state": None}
    for name in answers[0]:
        array = np.concatenate([answer[name] for answer in answers])
        field, _, rest = name.partition(":")
        if not rest:
            shown[field] = array
            continue
        number, _, leaf = rest.partition(":")
        by_group = shown.setdefault(field, {})
        group = groups[int(number)].name
        if leaf:
            by_group.setdefault(group, {})[leaf] = array
        else:
            by_group[group] = array
    if "episode_ended" in shown:
        shown.setdefault("final_state", None)
    return shown
