"""gymnasium envs in supervised processes, one each."""

from __future__ import annotations

import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import setitem
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

from rlox.envs.workers.arena import spec_to_send
from rlox.envs.workers.process import MakeWorker, Supervisor, Worker, WorkerProcess
from rlox.errors import EnvError, WorkerLostError
from rlox.protocols import VecEnvStep
from rlox.seeding import env_seeds
from rlox.spaces.rows import batch_of_actions, map_leaves, split

Arrays = dict[str, npt.NDArray[Any]]

RESET_TIMEOUT = 120.0
"""Lower bound of the time limit for a reset, in seconds."""


class ProcessVecEnv:
    """N envs, each in its own process, stepped together.

    A process that dies or misses its deadline raises an error that names its env. With restarts
    left it starts again with a new episode instead: its row of the step is ``lost``, see
    :class:`rlox.protocols.VecEnvStep`. An exception in an env is raised here, with its traceback.

    Args:
        env: a gymnasium id, or a callable that makes an env; it is sent by cloudpickle.
        n_envs: number of envs N.
        env_kwargs: arguments of ``gymnasium.make`` or of the callable.
        step_timeout: seconds allowed for a step of all envs.
        max_restarts: number of restarts per env.
        make_worker: makes a process, on this machine or elsewhere.

    Raises:
        EnvError: the env cannot be built or sent.
    """

    def __init__(
        self,
        env: Any,
        n_envs: int = 1,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        step_timeout: float = 60.0,
        max_restarts: int = 0,
        make_worker: MakeWorker = WorkerProcess,
    ) -> None:
        self.n_envs = n_envs
        """Number of envs N."""
        self._make_worker = make_worker
        self._arguments = (env, dict(env_kwargs or {}), spec_to_send(env))
        self._step_timeout = step_timeout
        self.supervisor = Supervisor(max_restarts)
        """Log of restarted envs and their reasons."""
        self._workers: list[Worker] = []
        self.close = weakref.finalize(self, _close, self._workers)
        """Ends the processes."""
        self._seeds: list[int | None] = [None] * n_envs
        self._masks: npt.NDArray[np.bool_] | None = None
        self._obs: Any = None
        try:
            for index in range(n_envs):
                self._workers.append(self._start(index))
            _, arrays = self._workers[0].call("spaces", deadline=RESET_TIMEOUT)
        except BaseException:
            self.close()
            raise
        # pickled by our own process
        spaces = pickle.loads(arrays["spaces"].tobytes())  # noqa: S301
        self.observation_space: gymnasium.Space[Any] = spaces[0]
        self.action_space: gymnasium.Space[Any] = spaces[1]
        self._action_batch: gymnasium.Space[Any] = batch_space(self.action_space, n_envs)

    @property
    def pids(self) -> list[int]:
        """Process ids."""
        return [worker.pid for worker in self._workers]

    def _start(self, index: int) -> Worker:
        try:
            return self._make_worker(
                "rlox.envs.gymnasium:serve",
                (*self._arguments, index),
                name=f"the process of env {index}",
            )
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise EnvError(
                f"the env cannot be sent to a process: {error}; pass its id or a function that "
                "makes it, or take vectorization='sync'"
            ) from error

    def reset_all(self, seed: int | Sequence[int] | None = None) -> Any:
        """Reset all envs and return N observations; see ``rlox.protocols.VecEnv``."""
        self._seeds = env_seeds(seed, self.n_envs)
        for index, worker in enumerate(self._workers):
            self._send(worker, "reset", self._seeds[index])
        rows = [arrays for arrays, _ in self._receive_all(lambda: RESET_TIMEOUT)]
        self._obs = _leaves(rows, "obs")
        self._masks = _masks(rows)
        return self._obs

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the masks of the next actions; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._masks

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; see :class:`rlox.protocols.VecEnvStep`."""
        leaves = split(self.action_space, batch_of_actions(actions, self._action_batch))
        for i, worker in enumerate(self._workers):
            row = map_leaves(lambda leaf, i=i: np.asarray(leaf)[i : i + 1], leaves)
            self._send(worker, "step", None, row if isinstance(row, dict) else {"": row})
        before, end = self._obs, time.monotonic() + self._step_timeout
        found = self._receive_all(lambda: end - time.monotonic())
        rows = [arrays for arrays, _ in found]
        lost = np.array([is_lost for _, is_lost in found])
        self._obs = _leaves(rows, "obs")
        self._masks = _masks(rows)
        step: VecEnvStep = {
            "obs": self._obs,
            "rewards": _column(rows, "rewards", np.float64),
            "terminated": _column(rows, "terminated", np.bool_),
            "truncated": _column(rows, "truncated", np.bool_) | lost,
            "final_obs": self._obs,
        }
        if lost.any() or any(name.startswith("final_obs:") for row in rows for name in row):
            step["final_obs"] = _leaves(rows, "final_obs", otherwise="obs")
        if lost.any():
            map_leaves(lambda leaf, old: setitem(leaf, lost, old[lost]), step["final_obs"], before)
            step["lost"] = lost
        return step

    def _send(
        self, worker: Worker, method: str, message: Any, arrays: Arrays | None = None
    ) -> None:
        with suppress(WorkerLostError):  # receiving the answer fails too, and restarts the env
            worker.send(method, message, arrays)

    def _receive_all(self, seconds: Callable[[], float]) -> list[tuple[Arrays, bool]]:
        """Return the result of :meth:`_receive` for each row.

        If an env raises, the other answers are read first, so that none is left for the next call.
        """
        found: list[tuple[Arrays, bool]] = []
        try:
            while len(found) < self.n_envs:
                found.append(self._receive(len(found), seconds()))
        except WorkerLostError:
            raise
        except Exception:
            for index in range(len(found) + 1, self.n_envs):
                with suppress(Exception):
                    self._workers[index].receive(max(seconds(), 0.0))
            raise
        return found

    def _receive(self, index: int, seconds: float) -> tuple[Arrays, bool]:
        """Return a row's arrays, and whether its env was lost and has been reset."""
        try:
            return self._workers[index].receive(max(seconds, 0.0))[1], False
        except WorkerLostError as error:
            lost: WorkerLostError = error
        while True:
            attempt = self.supervisor.lost(f"env {index}", lost)
            before, self._workers[index] = self._workers[index], self._start(index)
            before.close()
            seed = self._seeds[index]
            if seed is not None:
                seed = int(np.random.SeedSequence((seed, attempt)).generate_state(1)[0])
            try:
                return self._workers[index].call("reset", seed, deadline=RESET_TIMEOUT)[1], True
            except WorkerLostError as error:
                lost = error


def _close(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.close()


def _leaves(rows: Sequence[Arrays], prefix: str, otherwise: str | None = None) -> Any:
    """Return N observations from rows that have them under the prefix, or under the other one."""
    names = [name.partition(":")[2] for name in rows[0] if name.startswith("obs:")]

    def row(arrays: Arrays, leaf: str) -> npt.NDArray[Any]:
        given = arrays.get(f"{prefix}:{leaf}")
        return arrays[f"{otherwise}:{leaf}"] if given is None else given

    leaves = {leaf: np.concatenate([row(r, leaf) for r in rows]) for leaf in names}
    return leaves[""] if set(leaves) == {""} else leaves


def _masks(rows: Sequence[Arrays]) -> npt.NDArray[np.bool_] | None:
    if "masks" not in rows[0]:
        return None
    return np.concatenate([row["masks"] for row in rows])


def _column(rows: Sequence[Arrays], name: str, dtype: type) -> npt.NDArray[Any]:
    """Return one number per env; 0 where the env was lost."""
    return np.array([row[name][0] if name in row else 0 for row in rows], dtype)
