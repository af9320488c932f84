"""Calls that may wait for a server or a disk, made on a separate thread."""

from __future__ import annotations

import atexit
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from rlox.errors import LoggerError

Call = Callable[[], Any]

PATIENCE = 15.0
"""Seconds without an answer until the caller is warned; at the end, limit for pending calls."""

RETRY_SECONDS = 5.0
"""Seconds between two tries of a call that failed."""


class Sender:
    """Makes calls in turn, each until it succeeds; the caller neither waits nor fails.

    Args:
        name: the name in the warning of a server or a disk that does not answer.
        passes: whether an error is temporary; a call that fails otherwise is dropped.
    """

    def __init__(self, name: str, passes: Callable[[Exception], bool]) -> None:
        self._name, self._passes = name, passes
        self._calls: SimpleQueue[tuple[Call, Future[Any]] | None] = SimpleQueue()
        self._refusal: Exception | None = None
        self._failure: Exception | None = None
        self._since: float | None = None
        self._warned = False
        self._given_up = Event()
        # a daemon, because a library that waits for its server cannot be interrupted
        self._thread = Thread(target=self._run, name=f"rlox-{name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # for loggers that are never closed

    def push(self, call: Call) -> Future[Any]:
        """Queue a call, and warn once if the calls before it make no progress.

        Raises:
            LoggerError: it was closed, so that the call would never be made.
        """
        if self._given_up.is_set():
            raise LoggerError(f"{self._name}: the logger was closed; log before close()")
        result: Future[Any] = Future()
        self._calls.put((call, result))
        since = self._since
        late = since is not None and time.monotonic() - since > PATIENCE
        if late or self._failure or self._refusal:
            self.warn()
        return result

    def warn(
        self, consequence: str = "the run goes on, and what can be sent later will be"
    ) -> None:
        """Warn once that calls do not succeed, and why."""
        if not self._warned:
            self._warned = True
            reason = self._refusal or self._failure or "no answer"
            warnings.warn(f"{self._name}: {reason}; {consequence}", RuntimeWarning, stacklevel=3)

    def close(self, last: Call | None = None) -> None:
        """Give pending calls and a last one a little time; does nothing if called again."""
        if self._given_up.is_set():
            return
        atexit.unregister(self.close)
        if last is not None:
            self.push(last)
        self._calls.put(None)
        self._thread.join(PATIENCE)
        self._given_up.set()
        if self._thread.is_alive():
            self.warn("not all that was logged is there")

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, result = item
            self._since = time.monotonic()
            while not result.done():
                try:
                    result.set_result(call())
                except Exception as error:  # noqa: PERF203
                    if not self._passes(error):
                        self._refusal = error
                        result.set_exception(error)
                        break
                    self._failure = error
                    if self._given_up.wait(RETRY_SECONDS):
                        return
            self._failure = self._since = None
