"""PettingZoo envs in supervised processes, one each."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.envs import WorkerProcess
from rlox.errors import EnvError
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentStep

from rlox_marl.envs.actions import ActionArrays
from rlox_marl.envs.seeds import env_seeds
from rlox_marl.envs.team_arrays import pack, unpack

__all__ = ["PettingZooProcesses"]

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
        self._agents: tuple[str, ...] = spaces[0][0]
        self._groups: tuple[AgentGroup, ...] = spaces[0][1]
        self._state_space: gymnasium.Space[Any] | None = spaces[0][2]
        self._active: dict[str, npt.NDArray[np.bool_]] | None = None

    @property
    def n_envs(self) -> int:
        """Number of envs N."""
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [worker.pid for worker in self._workers]

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """Names of all agents."""
        return self._agents

    @property
    def groups(self) -> tuple[AgentGroup, ...]:
        """Groups of agents of equal spaces."""
        return self._groups

    @property
    def state_space(self) -> gymnasium.Space[Any] | None:
        """Space of one env's state; ``None`` if it has none."""
        return self._state_space

    def leave_out_state(self) -> None:
        """Read no state from now on; see :meth:`PettingZooVecEnv.leave_out_state`."""
        self._ask("leave_out_state", [None] * self.n_envs, RESET_TIMEOUT)
        self._state_space = None

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
        leaves = ActionArrays(self._groups, actions, self._active).leaves
        packed = pack({"": leaves}, self._groups)
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
        rows: Sequence[dict[str, npt.NDArray[Any]]] | None = None,
    ) -> list[tuple[Any, dict[str, npt.NDArray[Any]]]]:
        """Call a method of all workers at once, and return their answers in order."""
        for i, worker in enumerate(self._workers):
            worker.send(method, messages[i], None if rows is None else rows[i])
        end = time.monotonic() + seconds
        return [worker.receive(max(end - time.monotonic(), 0.0)) for worker in self._workers]

    def _shown(self, answers: Sequence[tuple[Any, dict[str, npt.NDArray[Any]]]]) -> Any:
        shown = unpack([arrays for _, arrays in answers], self._groups)
        self._active = {name: flags.copy() for name, flags in shown["active"].items()}
        return shown


def _start(arguments: tuple[Any, ...], number: int) -> WorkerProcess:
    try:
        return WorkerProcess(
            "rlox_marl.envs.env_server:serve", arguments, name=f"the process of env {number}"
        )
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise EnvError(
            f"the env cannot be sent to a process: {error}; pass its id or a function that makes "
            "it, or take vectorization='sync'"
        ) from error


def _close(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        worker.close()
