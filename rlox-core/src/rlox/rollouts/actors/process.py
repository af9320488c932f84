"""Actors in processes of their own, over shared memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.batches.rollout import Unroll
from rlox.batches.unrolls import unroll_from_arrays, unroll_to_arrays
from rlox.envs.workers.process import MakeWorker, Worker, WorkerProcess
from rlox.envs.workers.registered import register_here, spec_to_send
from rlox.envs.workers.supervisor import Supervisor
from rlox.errors import WorkerLostError
from rlox.rollouts.actors.local import LocalActor
from rlox.rollouts.actors.plan import ActorPlan, Weights

__all__ = ["ProcessActor", "make_process_actor"]

Arrays = dict[str, npt.NDArray[Any]]

FIRST_DEADLINE = 120.0
"""Least seconds that the first step may take, before which envs are reset."""


class ProcessActor:
    """An actor in a process, which begins again if it dies or stalls.

    Args:
        plan: what all actors are built from.
        index: which of them it is.
        make_worker: makes the process, here or elsewhere.
    """

    def __init__(
        self, plan: ActorPlan, index: int, make_worker: MakeWorker = WorkerProcess
    ) -> None:
        self._plan, self._index, self._make_worker = plan, index, make_worker
        self._supervisor = Supervisor(plan.max_restarts)
        self._sequence = 0
        self._closed = False
        self._start(0)

    @property
    def restarts(self) -> int:
        """How often the process had to begin again."""
        return self._supervisor.restarts

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"actor {self._index}"

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def _start(self, attempt: int) -> None:
        self._process: Worker = self._make_worker(
            f"{__name__}:serve",
            (self._plan, self._index, attempt, spec_to_send(self._plan.env)),
            name=self.name,
        )
        self._deadline = max(self._plan.deadline, FIRST_DEADLINE)

    def collect(self, weights: Weights) -> Unroll:
        """Return the next unroll; see :class:`rlox.rollouts.actors.plan.Actor`.

        Raises:
            WorkerLostError: the process was lost more often than it may begin again.
        """
        arrays = self._collect(weights.version, weights.arrays)
        while arrays is None:
            arrays = self._collect(weights.version, weights.arrays)
        self._deadline = self._plan.deadline
        self._sequence += 1
        return replace(unroll_from_arrays(arrays), sequence=self._sequence - 1)

    def _collect(self, version: int, given: Arrays) -> Arrays | None:
        """Return an unroll's arrays; ``None`` if the process was lost and begins again."""
        try:
            return self._process.call("collect", version, given, deadline=self._deadline)[1]
        except WorkerLostError as error:
            if self._closed:
                raise
            attempt, before = self._supervisor.lost(self.name, error), self._process
            self._start(attempt)
            before.close()
            return None

    def state_dict(self) -> dict[str, Any]:
        """Return envs, streams, and how many unrolls there were."""
        _, arrays = self._process.call("state", deadline=FIRST_DEADLINE)
        # pickled by our own process
        state: dict[str, Any] = pickle.loads(arrays["state"].tobytes())  # noqa: S301
        return {**state, "sequence": self._sequence}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._sequence = int(state["sequence"])
        data = np.frombuffer(pickle.dumps(state), np.uint8)
        self._process.call("load", None, {"state": data}, deadline=FIRST_DEADLINE)

    def interrupt(self) -> None:
        """End the process at once, whatever it is doing."""
        self._closed = True
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._process.close()


def make_process_actor(plan: ActorPlan, index: int) -> ProcessActor:
    """Build an actor of the backend ``process``."""
    return ProcessActor(plan, index)


class _Server:
    """An actor as its process serves it."""

    def __init__(self, actor: LocalActor) -> None:
        self._actor = actor
        self.close = actor.close

    def collect(self, version: int, arrays: Arrays) -> tuple[None, Arrays]:
        unroll = self._actor.collect(Weights.of_arrays(version, arrays))
        return None, unroll_to_arrays(unroll)

    def state(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        state = pickle.dumps(self._actor.state_dict())
        return None, {"state": np.frombuffer(state, np.uint8)}

    def load(self, _: None, arrays: Arrays) -> tuple[None, Arrays]:
        # pickled by our own parent
        self._actor.load_state_dict(pickle.loads(arrays["state"].tobytes()))  # noqa: S301
        return None, {}


def serve(
    plan: ActorPlan, index: int, attempt: int, spec: Any, beat: Callable[[], None]
) -> _Server:
    """Return what answers the calls of a :class:`ProcessActor`, in its process."""
    register_here(spec)
    return _Server(LocalActor(plan, index, attempt=attempt, on_step=beat))
