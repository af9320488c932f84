"""gRPC streams of bytes between learners and env workers."""

from collections.abc import Callable
from typing import NoReturn, final

__all__ = ["ClientStream", "Server", "ServerStream", "StreamError", "__version__"]

__version__: str

class StreamError(Exception):
    """A stream broke, or was refused.

    ``args`` are gRPC's name of the status, as ``"UNAVAILABLE"``, and what happened.
    """

@final
class ClientStream:
    """A learner's stream to a worker, on a connection of its own.

    Any thread may close it; one at a time waits for it.

    Args:
        address: ``host:port``, or ``unix:path``.
        path: ``/service/method``.
        largest: bytes of the largest message that is taken.
        seconds: for connecting.
        token: sent as ``authorization: Bearer``.
        ca: certificates in PEM that the worker's must be signed by, or be one of; ``None``: no TLS.
        cert: one's own in PEM, for workers that ask for it.
        key: its private key in PEM.

    Raises:
        OSError: the system has no more files or threads.
        StreamError: the worker cannot be reached.
        TimeoutError: not in so many seconds.
        ValueError: the PEM is none.
    """

    def __new__(
        cls,
        address: str,
        path: str,
        *,
        largest: int,
        seconds: float,
        token: str | None = None,
        ca: bytes | None = None,
        cert: bytes | None = None,
        key: bytes | None = None,
    ) -> ClientStream: ...
    def send(self, data: bytes) -> None:
        """Send a message.

        Raises:
            StreamError: the stream has ended.
        """

    def end(self) -> None:
        """Send no more messages.

        Raises:
            StreamError: the stream has ended.
        """

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message; ``None`` where the worker ended the stream in good order.

        Raises:
            StreamError: the stream broke, or the worker ended it with a status.
            TimeoutError: no message has come in so many seconds; a later call may return it.
        """

    def close(self) -> None:
        """Break the stream off; whoever waits for it gets a StreamError."""

@final
class ServerStream:
    """A worker's side of a stream."""

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message; ``None`` at the end, also where the server is being stopped.

        Raises:
            StreamError: the stream broke, or no message has come in so many seconds.
        """

    def exchange(self, answer: bytes) -> bytes | None:
        """Send a message and return the next one, for as long as it may take.

        Raises:
            StreamError: the stream broke.
        """

    @staticmethod
    def abort(code: str, details: str) -> NoReturn:
        """Raise the StreamError with which the stream ends if it leaves the handler."""

@final
class Server:
    """A server of streams of one method, and of ``grpc.health.v1``.

    Args:
        address: ``host:port``, whose port 0 takes a free one, or ``unix:path``.
        service: name of the service.
        method: name of its method.
        handler: called for each stream, in a thread of its own; where it returns, the stream ends
            in good order, and where it raises, with a status.
        largest: bytes of the largest message that is taken.
        most_streams: at a time, of all connections.
        token: that streams must come with.
        ca: certificates in PEM that the learners' must be signed by, or be one of.
        cert: the worker's own in PEM; ``None``: no TLS.
        key: its private key in PEM.

    Raises:
        OSError: the address cannot be bound.
        ValueError: the PEM is none.
    """

    def __new__(
        cls,
        address: str,
        service: str,
        method: str,
        handler: Callable[[ServerStream], object],
        *,
        largest: int,
        most_streams: int,
        token: str | None = None,
        ca: bytes | None = None,
        cert: bytes | None = None,
        key: bytes | None = None,
    ) -> Server: ...
    @property
    def port(self) -> int:
        """Where it listens; 0 for a path."""

    def start(self) -> None:
        """Begin to accept connections, in a thread.

        Raises:
            OSError: the thread cannot be started.
        """

    def stop(self, grace: float) -> None:
        """Take no new streams, let the requests under way end for so long, then close all."""
