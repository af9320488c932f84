"""Bidirectional streams of grpcio whose answers have deadlines, for steps laid out by hand."""

from __future__ import annotations

import math
import queue
import threading
import time
from contextlib import suppress
from typing import Any

import grpc

__all__ = ["EndedError", "Stream"]


class Stream:
    """A bidirectional stream whose answers can be waited for with a deadline.

    Whoever waits reads the stream itself. gRPC has no deadline for one answer, so a thread that
    sleeps until the next deadline cancels the stream.
    """

    def __init__(self, method: Any, metadata: Any) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sooner = threading.Event()
        self._due = self._wakes = math.inf
        self._late = self._closed = False
        self._call = method(iter(self._requests.get, None), metadata=metadata)
        threading.Thread(target=self._watch, daemon=True).start()

    def send(self, data: bytes) -> None:
        """Send a request."""
        self._requests.put(data)

    def receive(self, seconds: float) -> Any:
        """Return the next answer.

        Raises:
            TimeoutError: it has not come after so many seconds; the stream is cancelled.
            grpc.RpcError: the stream broke, or the other side ended it.
        """
        with self._lock:
            self._due = time.monotonic() + seconds
            if self._due < self._wakes:
                self._sooner.set()
        answer, error = None, None
        try:
            answer = next(self._call, None)
        except grpc.RpcError as raised:
            error = raised
        finally:
            with self._lock:
                self._due = math.inf
        if self._late:
            raise TimeoutError
        if answer is None:
            raise error or EndedError()
        return answer

    def _watch(self) -> None:
        """Cancel the stream once an answer is late."""
        while not self._closed:
            with self._lock:
                now = time.monotonic()
                self._late = self._due <= now
                self._wakes = self._due
                self._sooner.clear()
            if self._late:
                self._call.cancel()
                return
            self._sooner.wait(None if self._wakes == math.inf else self._wakes - now)

    def end(self, seconds: float) -> None:
        """Send no more requests, and wait until the worker ends the stream."""
        self._requests.put(None)
        end = time.monotonic() + seconds
        with suppress(TimeoutError, grpc.RpcError):
            while True:
                self.receive(max(end - time.monotonic(), 0.0))

    def close(self) -> None:
        """Break the stream off."""
        self._requests.put(None)
        self._call.cancel()
        self._closed = True
        self._sooner.set()


class EndedError(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """The worker ended the stream in good order."""

    def code(self) -> grpc.StatusCode:
        """Return the status of one that may be opened again."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """Return what happened."""
        return "the worker ended the stream"
