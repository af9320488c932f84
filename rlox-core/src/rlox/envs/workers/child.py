"""The main function of worker processes."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from rlox.envs.workers.arena import Arena

__all__ = ["main"]


def main(connection: int, lifeline: int, file: int) -> None:
    """Make the object, and answer calls until the parent closes the connection.

    Args:
        connection: descriptor of the socket.
        lifeline: of a pipe that ends with the parent.
        file: of the shared arrays.
    """
    # a terminal sends Ctrl-C to workers too, and one that dies of it takes the training along
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
