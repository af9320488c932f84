"""Workers on a Ray cluster, called with deadlines."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.envs.workers.arena import dumps
from rlox.errors import WorkerError, WorkerLostError

from rlox_distributed.ray_cluster import first_line, import_ray, join_cluster

Arrays = Mapping[str, npt.NDArray[Any]]

START_DEADLINE = 120.0
"""Seconds until the object must be made."""

ENDING = 5.0
"""Seconds that a worker has to end by itself."""


class RayWorker:
    """An object in a Ray actor that answers calls; a :class:`rlox.envs.workers.Worker`.

    Ray never restarts it nor repeats a call: both would hide the loss of steps and streams from the
    owner. Calls and answers are pickled by Ray, within the cluster.

    Args:
        factory: see :class:`rlox.envs.workers.WorkerProcess`.
        arguments: arguments of the factory, see there.
        name: its name in errors.
        address: the cluster's, see :func:`rlox_distributed.ray_cluster.join_cluster`.
        cpus: number of the cluster's CPUs that it occupies.
        shares_arrays: whether it receives the same arrays as other workers, which are stored once
            in the object store.

    Raises:
        ConfigError: there is no cluster.
    """

    def __init__(
        self,
        factory: str,
        arguments: tuple[Any, ...],
        *,
        name: str,
        address: str | None = None,
        cpus: float = 1.0,
        shares_arrays: bool = False,
    ) -> None:
        self.name = name
        self._ray = import_ray()
        self._errors = self._ray.exceptions
        work = dumps((factory, arguments))
        self._shares = shares_arrays
        self._cluster = join_cluster(address)
        host = self._ray.remote(_Host)
        reserved = self._cluster.cpus(cpus)
        # two calls at a time: one to the object, and one that counts beats
        options = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        self._remote: Any = host.options(num_cpus=reserved, **options).remote()
        # on close, garbage collection or Python's exit; its successor has joined by then
        self._leave = weakref.finalize(self, self._cluster.leave)
        self._end = weakref.finalize(self, _end, self._remote)
        self._beats = 0
        self._pending: Any = self._remote.start.remote(work, [p or os.getcwd() for p in sys.path])
        self._pid = 0

    @property
    def pid(self) -> int:
        """Number of its process, on that process's node."""
        self._require_started()
        return self._pid

    def call(
        self, method: str, message: Any = None, arrays: Arrays | None = None, *, deadline: float
    ) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Call a method of the object and return its answer and arrays.

        Args:
            method: its name.
            message: plain values.
            arrays: arrays by name.
            deadline: seconds until the answer or between two signs of the method's progress.

        Raises:
            WorkerLostError: the worker or its node died or was too slow; the worker is ended.
            Exception: the method failed; the error is its own, with its traceback as the cause.
        """
        self.send(method, message, arrays)
        return self.receive(deadline)

    def send(self, method: str, message: Any = None, arrays: Arrays | None = None) -> None:
        """Begin a call, whose answer :meth:`receive` takes."""
        self._require_started()
        if self._pending is not None:  # the answer of an interrupted call
            self._receive(START_DEADLINE)
        given = arrays or {}
        sent = self._cluster.share(given) if self._shares and given else dict(given)
        try:
            self._pending = self._remote.call.remote(method, message, sent)
        except self._errors.RayError as error:
            raise self._lost(f"{self.name} has died on Ray: {first_line(error)}") from None

    def receive(self, deadline: float) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Return the answer of the call under way; see :meth:`call`."""
        answer, arrays = self._receive(deadline)
        # arrays in the object store are read-only and would keep their place in it
        return answer, {name: np.array(array) for name, array in arrays.items()}

    def _require_started(self) -> None:
        if not self._pid:
            self._pid = self._receive(START_DEADLINE)

    def _receive(self, deadline: float) -> Any:
        if self._pending is None:
            raise WorkerLostError(f"{self.name} was ended")
        try:
            while not self._ray.wait([self._pending], timeout=deadline)[0]:
                before, self._beats = self._beats, self._count_beats(deadline)
                if before == self._beats:
                    raise self._lost(self._how_late(deadline))
            found = self._ray.get(self._pending)
        except self._errors.RayTaskError as error:
            self._pending = None
            raise error.cause from WorkerError(f"in {self.name}:\n{error}")
        except self._errors.RayError as error:
            raise self._lost(f"{self.name} has died on Ray: {first_line(error)}") from None
        self._pending = None
        return found

    def _count_beats(self, deadline: float) -> int:
        """Return the number of signs of progress; unchanged if the worker is silent."""
        if not self._pid:
            return self._beats
        try:
            return int(self._ray.get(self._remote.beats.remote(), timeout=deadline))
        except self._errors.GetTimeoutError:
            return self._beats

    def _how_late(self, deadline: float) -> str:
        if self._pid:
            return f"{self.name} has not answered in {deadline:g} s"
        free = self._ray.available_resources().get("CPU", 0.0)
        total = self._ray.cluster_resources().get("CPU", 0.0)
        return (
            f"{self.name} has not started in {deadline:g} s; {free:g} of the {total:g} CPUs of the "
            "Ray cluster are free, so lower ray_cpus or add nodes"
        )

    def _lost(self, reason: str) -> WorkerLostError:
        self._pending = None
        self.kill()
        return WorkerLostError(reason)

    def kill(self) -> None:
        """End the worker at once."""
        self._end()

    def close(self) -> None:
        """Let the worker end after the call under way, and end it if it does not."""
        if self._end.alive and self._pid:
            with suppress(self._errors.RayError, OSError):
                self._ray.get(self._remote.close.remote(), timeout=ENDING)
        self._end()
        self._leave()


def _end(remote: Any) -> None:
    ray = import_ray()
    if ray.is_initialized():
        with suppress(Exception):  # it may be gone, and the cluster too
            ray.kill(remote, no_restart=True)


class _Host:
    """The object in the Ray actor."""

    def __init__(self) -> None:
        self._beats = 0
        self._worker: Any = None
        self._busy = threading.Lock()

    def start(self, work: bytes, paths: list[str]) -> int:
        """Make the object and return the process's number."""
        sys.path.extend(path for path in paths if path not in sys.path)
        # pickled by the owner, which Ray let into the cluster
        factory, arguments = pickle.loads(work)  # noqa: S301
        module, _, function = factory.partition(":")
        make = getattr(importlib.import_module(module), function)
        self._worker = make(*arguments, self._beat)
        return os.getpid()

    def _beat(self) -> None:
        self._beats += 1

    def beats(self) -> int:
        """Return the object's number of signs of progress."""
        return self._beats

    def call(self, method: str, message: Any, arrays: Arrays) -> tuple[Any, dict[str, Any]]:
        """Call a method of the object, with arrays that it may write to."""
        with self._busy:
            given = {name: np.array(array) for name, array in arrays.items()}
            answer: tuple[Any, dict[str, Any]] = getattr(self._worker, method)(message, given)
            return answer

    def close(self) -> None:
        """Close the object."""
        with self._busy:
            self._worker.close()
