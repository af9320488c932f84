"""Worker processes: started without fork, called with deadlines.

Forking a process with threads, as torch and gRPC make them, may hang; and a child that imports the
caller's main module requires a guard in every script. So a worker is a new interpreter that gets
the import path. A call and its answer are a few bytes on a socket; arrays go through an
:class:`~rlox.envs.workers.arena.Arena`. A worker ends when its parent does, however that happens.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from rlox.envs.workers.arena import Arena, dumps
from rlox.errors import WorkerError, WorkerLostError

_LOG = logging.getLogger("rlox")

IN_MEMORY = Path("/dev/shm")  # noqa: S108  # the file is unlinked at once
START, ENDING = 120.0, 5.0
"""Seconds that a worker gets to make its object, for which the first call waits, and to end."""

Arrays = Mapping[str, npt.NDArray[Any]]


class Worker(Protocol):
    """A remote object that answers calls within deadlines, as :class:`WorkerProcess` does."""

    @property
    def pid(self) -> int:
        """Process id, on the machine where the process runs."""

    def call(
        self, method: str, message: Any = None, arrays: Arrays | None = None, *, deadline: float
    ) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Call a method and return its answer and newly allocated arrays."""

    def send(self, method: str, message: Any = None, arrays: Arrays | None = None) -> None:
        """Begin a call; :meth:`receive` takes its answer."""

    def receive(self, deadline: float) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Return the answer of the call under way."""

    def close(self) -> None:
        """Let the worker end after the call under way."""

    def kill(self) -> None:
        """End the worker at once."""


MakeWorker = Callable[..., Worker]
"""Makes a worker from ``factory``, ``arguments`` and ``name=`` of :class:`WorkerProcess`."""


def spare_file() -> int:
    """Return the descriptor of a new file in memory that no folder lists."""
    file, path = tempfile.mkstemp(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
    Path(path).unlink()
    return file


class WorkerProcess:
    """A process with an object that answers calls.

    Args:
        factory: ``"module:function"``, called in the process with ``arguments`` and a function
            that reports progress; returns an object with a method ``close()`` and
            methods ``(message, arrays) -> (answer, arrays)``.
        arguments: arguments of the factory; sent once, by cloudpickle.
        name: name of the worker in errors.

    Raises:
        WorkerError: the system does not support such processes.
    """

    def __init__(self, factory: str, arguments: tuple[Any, ...], *, name: str) -> None:
        if os.name != "posix":
            raise WorkerError(f"{name} needs a POSIX system to run in a process of its own")
        self.name = name
        work = dumps((factory, arguments))
        file = spare_file()
        ours, theirs = socket.socketpair()
        held, lifeline = os.pipe()
        try:
            given = (theirs.fileno(), held, file)
            code = "import sys; sys.path[:] = {}; from rlox.envs.workers.arena import main; main{}"
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and code
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
                    "-c",
                    code.format(json.dumps([path or os.getcwd() for path in sys.path]), given),
                ],
                env={"RLOX_NUM_THREADS": "1", **os.environ},  # the others have the other cores
                pass_fds=given,
                stdin=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
            os.close(held)
        self._lifeline, self._file = lifeline, file
        self._connection = Connection(ours.detach())
        self._arena = Arena(file)
        self._owed = 0
        """Number of answers not yet read."""
        try:
            self._send(work)
        except BaseException:
            self.kill()
            raise
        self._made = False

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def call(
        self, method: str, message: Any = None, arrays: Arrays | None = None, *, deadline: float
    ) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Call a method of the object and return its answer and arrays.

        Args:
            method: its name.
            message: plain values that JSON can hold.
            arrays: sent through shared memory.
            deadline: seconds until the answer, or between two progress reports of the method.

        Raises:
            WorkerLostError: the process died or was too slow; it is killed.
            Exception: the method failed; its own error is raised, with its traceback as the cause.
        """
        self.send(method, message, arrays)
        return self.receive(deadline)

    def send(self, method: str, message: Any = None, arrays: Arrays | None = None) -> None:
        """Begin a call; :meth:`receive` takes its answer."""
        if not self._made:
            self._receive(START)
            self._made = True
        while self._owed:  # answers to an interrupted call are discarded
            self._take(START)
        table = self._arena.write(arrays or {})
        self._send(json.dumps([method, message]).encode() + b"\n" + table)

    def receive(self, deadline: float) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        """Return the answer of the call under way; see :meth:`call`."""
        head, _, table = self._receive(deadline).partition(b"\n")
        return json.loads(head), self._arena.read(table)

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send_bytes(data)
        except OSError:
            raise self._lost(f"{self.name} has died{self._how()}") from None
        self._owed += 1

    def _receive(self, deadline: float) -> bytes:
        data = self._take(deadline)
        if data[:1] == b"!":
            # pickled by a child of this process, for an exception that it raised
            error, text = pickle.loads(data[1:])  # noqa: S301
            raise error from WorkerError(f"in {self.name}:\n{text}")
        return data[1:]

    def _take(self, deadline: float) -> bytes:
        """Return the next answer: a dot and the result, or an exclamation mark and the error."""
        try:
            beats = self._arena.beats
            while not self._connection.poll(deadline):
                before, beats = beats, self._arena.beats
                if before == beats:
                    raise self._lost(f"{self.name} has not answered in {deadline:g} s")
            data = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise self._lost(f"{self.name} has died{self._how()}") from None
        self._owed -= 1
        return data

    def _how(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(ENDING)
            return f" (signal {-code})" if code < 0 else f" (exit status {code})"
        return ""

    def _lost(self, reason: str) -> WorkerLostError:
        self.kill()
        return WorkerLostError(reason)

    def close(self) -> None:
        """Let the process end after the call under way, and kill it if it does not."""
        if self._file < 0:
            return
        with suppress(OSError):
            self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        self.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self._file < 0:
            return
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._connection.close()
        os.close(self._lifeline)
        os.close(self._file)
        self._file = -1


class Supervisor:
    """Decides whether lost workers are restarted, and logs it.

    Args:
        max_restarts: number of restarts per worker.
    """

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self._restarts: Counter[str] = Counter()

    @property
    def restarts(self) -> int:
        """Number of restarts of all workers so far."""
        return self._restarts.total()

    def lost(self, worker: str, error: WorkerLostError) -> int:
        """Record that a worker was lost, and return the number of its next restart.

        Args:
            worker: its name.
            error: the reason.

        Raises:
            WorkerLostError: no restart is left; the text says how it ended.
        """
        before = self._restarts[worker]
        if before >= self._max_restarts:
            _LOG.warning("%s given up: %s", worker, error)
            more = f" after {before} restarts" if before else ""
            raise WorkerLostError(f"{error}{more}") from error
        self._restarts[worker] += 1
        _LOG.warning("%s begins again: %s", worker, error)
        return before + 1
