"""PettingZoo envs in supervised processes, one each."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.envs import WorkerProcess
from rlox.errors import EnvError

from rlox_marl.envs.one_env import OneEnv, Outcome
from rlox_marl.envs.pettingzoo import PettingZooVecEnv, build_envs

__all__ = ["PettingZooProcesses", "serve"]

Arrays = dict[str, npt.NDArray[Any]]

RESET_TIMEOUT = 120.0
"""Least seconds that a reset may take."""

MAX_PROCESSES_PER_CORE = 32


class PettingZooProcesses(PettingZooVecEnv):
    """N PettingZoo envs, each in a process of its own.

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
        self._step_timeout = step_timeout
        self._workers: list[WorkerProcess] = []
        self.close = weakref.finalize(self, _close, self._workers)  # type: ignore[method-assign]
        """Ends the processes."""
        try:
            for number in range(n_envs):
                self._workers.append(_start((env, dict(env_kwargs or {}), number), number))
            found = self._ask("spaces", [()] * n_envs, RESET_TIMEOUT)
            self._set_up(found, seed, with_state)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [worker.pid for worker in self._workers]

    def leave_out_state(self) -> None:
        """Read no state from now on; see :meth:`PettingZooVecEnv.leave_out_state`."""
        self._ask("leave_out_state", [()] * self.n_envs, RESET_TIMEOUT)
        self.state_space = None

    def _reset(self, seeds: Sequence[int | None]) -> list[Outcome]:
        return self._ask("reset", [(seed,) for seed in seeds], RESET_TIMEOUT)

    def _advance(self, taken: Sequence[Mapping[str, Any]]) -> list[tuple[Outcome, Outcome]]:
        return self._ask("advance", [(actions,) for actions in taken], self._step_timeout)

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]], seconds: float) -> list[Any]:
        """Call a method of all envs at once, and return the answers in order."""
        for worker, given in zip(self._workers, arguments, strict=True):
            worker.send("call", method, {"": _pickled(given)})
        end = time.monotonic() + seconds
        answers = [worker.receive(max(end - time.monotonic(), 0.0)) for worker in self._workers]
        # pickled by our own processes
        return [pickle.loads(arrays[""].tobytes()) for _, arrays in answers]  # noqa: S301


def _pickled(value: Any) -> npt.NDArray[np.uint8]:
    return np.frombuffer(pickle.dumps(value), np.uint8)


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
    """Answers :class:`PettingZooProcesses` for one env."""

    def __init__(self, env: OneEnv) -> None:
        self._env = env
        self.close = env.close

    def call(self, method: str, arrays: Arrays) -> tuple[None, Arrays]:
        # pickled by the process that started this one
        given = pickle.loads(arrays[""].tobytes())  # noqa: S301
        part = getattr(self._env, method)
        return None, {"": _pickled(part(*given) if callable(part) else part)}


def serve(
    env: Any, env_kwargs: Mapping[str, Any], number: int, beat: Callable[[], None]
) -> _Server:
    """Return what answers for one env, in its process.

    Args:
        env: an id, or a callable that makes an env.
        env_kwargs: its arguments.
        number: of the env, for errors.
        beat: a sign that it goes on; a step is one call, so there is none.
    """
    return _Server(build_envs(env, 1, env_kwargs, number)[0])
