"""Bidirectional grpcio streams with deadlines for answers, for steps laid out by hand."""

from __future__ import annotations

import math
import queue
import threading
import time
from typing import Any

import grpc


class Stream:
    """A bidirectional stream whose answers can be waited for with a deadline.

    The calling thread reads the stream. gRPC has no deadline for one answer, so another thread
    sleeps until the next deadline and then cancels the stream.
    """

    def __init__(self, method: Any) -> None:
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sooner = threading.Event()
        self._due = self._wakes = math.inf
        self._late = False
        self._call = method(iter(self._requests.get, None))
        threading.Thread(target=self._watch, daemon=True).start()

    def send(self, data: bytes) -> None:
        """Send a request."""
        self._requests.put(data)

    def receive(self, seconds: float) -> Any:
        """Return the next answer.

        Raises:
            TimeoutError: none within ``seconds``; the stream is cancelled.
            grpc.RpcError: the stream broke.
            StopIteration: the other side closed the stream.
        """
        with self._lock:
            self._due = time.monotonic() + seconds
            if self._due < self._wakes:
                self._sooner.set()
        try:
            answer = next(self._call)
        except grpc.RpcError as error:
            raise (TimeoutError() if self._late else error) from None
        finally:
            with self._lock:
                self._due = math.inf
        return answer

    def _watch(self) -> None:
        """Cancel the stream once an answer is late."""
        while True:
            with self._lock:
                now = time.monotonic()
                self._late = self._due <= now
                self._wakes = self._due
                self._sooner.clear()
            if self._late:
                self._call.cancel()
                return
            self._sooner.wait(None if self._wakes == math.inf else self._wakes - now)
