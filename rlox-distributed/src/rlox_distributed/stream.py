"""Streams to workers whose answers have deadlines."""

from __future__ import annotations

import time
from contextlib import suppress

from rlox.errors import ConfigError

from rlox_distributed._transport import ClientStream, StreamError
from rlox_distributed.security import Credentials

__all__ = ["Stream"]

CONNECT_SECONDS = 5.0
"""For which one attempt to connect may take; the system asks ever more rarely in a longer one."""


class Stream:
    """A stream of requests and answers, on a connection of its own.

    Args:
        address: ``host:port``.
        credentials: of TLS and the token.
        largest: bytes of the largest answer that is taken.
        seconds: for connecting.

    Raises:
        ConfigError: a file of the credentials is not what it should be.
        StreamError: the worker cannot be reached.
    """

    def __init__(
        self, address: str, credentials: Credentials, largest: int, seconds: float
    ) -> None:
        seconds = min(seconds, CONNECT_SECONDS)
        try:
            self._stream = ClientStream(
                address, largest=largest, seconds=seconds, token=credentials.token(),
                **credentials.files(),
            )  # fmt: skip
        except TimeoutError:
            raise StreamError("UNAVAILABLE", f"no connection in {seconds:g} s") from None
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def send(self, data: bytes) -> None:
        """Send a request; what keeps it from arriving is raised where its answer is awaited."""
        try:  # noqa: SIM105  # a context manager for each request takes longer
            self._stream.send(data)
        except StreamError:
            pass

    def receive(self, seconds: float) -> bytes:
        """Return the next answer.

        Raises:
            TimeoutError: it has not come after so many seconds.
            StreamError: the stream broke, or the other side ended it.
        """
        data = self._stream.receive(seconds)
        if data is None:
            raise StreamError("UNAVAILABLE", "the worker ended the stream")
        return data

    def end(self, seconds: float) -> None:
        """Send no more requests, and wait until the worker ends the stream."""
        end = time.monotonic() + seconds
        with suppress(TimeoutError, StreamError):
            self._stream.end()
            while self._stream.receive(max(end - time.monotonic(), 0.0)) is not None:
                pass

    def close(self) -> None:
        """Break the stream off."""
        self._stream.close()
