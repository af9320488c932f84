"""Tools shared by workers and their parents: arrays in memory, specs of envs, the child's loop.

Arrays cross without names and without pickle.

The memory is an unlinked file, so nothing remains of it however its processes end.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import pickle
import pickletools
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

ALIGNMENT = 64
Arrays = Mapping[str, npt.NDArray[Any]]


class Arena:
    """A shared file that grows with the arrays written into it.

    One side writes and says so, then the other reads; they take turns.

    Args:
        file: descriptor of a file that both processes have open.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        if not os.fstat(file).st_size:
            os.ftruncate(file, mmap.PAGESIZE)
        self._map = mmap.mmap(file, os.fstat(file).st_size)
        self._beats: npt.NDArray[np.uint64] = np.ndarray((), np.uint64, self._map)

    @property
    def beats(self) -> int:
        """Number of times that the other side has reported progress."""
        return int(self._beats)

    def beat(self) -> None:
        """Report progress to the other side."""
        self._beats += np.uint64(1)

    def write(self, arrays: Arrays) -> bytes:
        """Copy arrays into the file and return the table that :meth:`read` takes.

        Raises:
            OSError: there is not enough memory.
        """
        table, offset = [], ALIGNMENT
        for name, array in arrays.items():
            table.append((name, array.dtype.str, array.shape, offset))
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self._grow(offset)
        for (_, _, _, start), array in zip(table, arrays.values(), strict=True):
            if array.nbytes:
                place = np.ndarray(array.shape, array.dtype, self._map, start)
                place[...] = array
        return json.dumps(table).encode()

    def read(self, table: bytes) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the arrays that were written."""
        rows = json.loads(table)
        arrays = {}
        for name, kind, shape, offset in rows:
            dtype = np.dtype(kind)
            size = int(np.prod(shape)) * dtype.itemsize
            self._map_up_to(offset + size)
            arrays[name] = np.empty(tuple(shape), dtype)
            if size:
                arrays[name][...] = np.ndarray(tuple(shape), dtype, self._map, offset)
        return arrays

    def _grow(self, size: int) -> None:
        if size > os.fstat(self._file).st_size:
            # more than is needed now, so that the file rarely grows
            larger = -(-size * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, larger)
            else:  # otherwise a full disk is noticed only when a page is written
                os.ftruncate(self._file, larger)
        self._map_up_to(size)

    def _map_up_to(self, size: int) -> None:
        if len(self._map) < size:
            self._map = mmap.mmap(self._file, os.fstat(self._file).st_size)


def dumps(value: Any) -> bytes:
    """Pickle by cloudpickle; members of modules that cannot be imported are pickled by value.

    Such modules are made by a notebook, a test runner or a custom loader.
    """
    data: bytes = cloudpickle.dumps(value)
    names = {given for _, given, _ in pickletools.genops(data) if isinstance(given, str)}
    foreign = [
        module
        for name in sorted(names)
        if (module := sys.modules.get(name)) is not None and not _is_found(name, module)
    ]
    if not foreign:
        return data
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        carried: bytes = cloudpickle.dumps(value)
    finally:
        for module in foreign:
            cloudpickle.unregister_pickle_by_value(module)
    return carried


def _is_found(name: str, module: ModuleType) -> bool:
    """Return whether importing ``name`` in another process loads the file of ``module``."""
    file = getattr(module, "__file__", None)
    if file is None or name == "__main__":
        return True  # built in, or pickled by value anyway
    parts = name.split(".")
    path: Any = None
    origin = None
    for end in range(1, len(parts) + 1):
        spec = next(_specs(".".join(parts[:end]), path), None)
        if spec is None:
            return False
        origin, path = spec.origin, spec.submodule_search_locations
    return bool(origin == file)


def _specs(name: str, path: Any) -> Iterator[Any]:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            yield spec


def spec_to_send(env: Any) -> EnvSpec | None:
    """Return gymnasium's spec of an id; ``None`` if ``env`` is not a registered id."""
    return gymnasium.registry.get(env) if isinstance(env, str) else None


def register_here(spec: EnvSpec | None) -> None:
    """Register a spec that :func:`spec_to_send` returned in another process."""
    if spec is not None:
        gymnasium.registry.setdefault(spec.id, spec)


def main(connection: int, lifeline: int, file: int) -> None:
    """Make the object, and answer calls until the parent closes the connection.

    Args:
        connection: descriptor of the socket.
        lifeline: descriptor of a pipe that ends with the parent.
        file: descriptor of the file with the shared arrays.
    """
    # a terminal sends Ctrl-C to workers too, and a worker that dies of it stops the training
    for name in ("SIGINT", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    calls, arena = Connection(connection), Arena(file)
    try:
        factory, arguments = pickle.loads(calls.recv_bytes())  # noqa: S301  # of our own parent
        module, _, function = factory.partition(":")
        worker = getattr(importlib.import_module(module), function)(*arguments, arena.beat)
        calls.send_bytes(b".null\n[]")
    except EOFError:
        return
    except Exception as error:
        _report(calls, error)
        return
    while True:
        try:
            head, _, table = calls.recv_bytes().partition(b"\n")
        except (EOFError, OSError):  # a parent that leaves an answer unread resets the connection
            break
        method, message = json.loads(head)
        try:
            answer, arrays = getattr(worker, method)(message, arena.read(table))
            calls.send_bytes(b"." + json.dumps(answer).encode() + b"\n" + arena.write(arrays))
        except OSError:
            break
        except Exception as error:
            _report(calls, error)
    worker.close()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _report(calls: Connection, error: Exception) -> None:
    text = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps((error, text))
        pickle.loads(data)  # noqa: S301  # some exceptions only fail here
    except Exception:
        data = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    try:
        calls.send_bytes(b"!" + data)
    except OSError:
        sys.exit(1)
