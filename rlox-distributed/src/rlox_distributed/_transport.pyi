"""gRPC streams of bytes between learners and env workers, and the arrays in their messages."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

import numpy as np
import numpy.typing as npt
from rlox.protocols import VecEnvStep

__all__ = ["ClientStream", "Server", "ServerStream", "StepCodec", "StreamError", "__version__"]

_Leaves = tuple[bool, Sequence[tuple[str, np.dtype[Any], Sequence[int]]]]

__version__: str

class StreamError(Exception):
    """A stream broke or was refused.

    ``args`` are gRPC's name of the status, such as ``"UNAVAILABLE"``, and a description.
    """

@final
class ClientStream:
    """A learner's stream to a worker, on its own connection.

    Any thread may close it; one thread at a time may wait for it.

    Args:
        address: ``host:port``, or ``unix:path``.
        largest: bytes of the largest accepted message.
        seconds: time limit of connecting.
        token: sent as ``authorization: Bearer``.
        ca: certificates in PEM that must include or have signed the worker's; ``None``: no TLS.
        cert: own certificate in PEM, for workers that require one.
        key: its private key in PEM.
        ping_every: seconds between pings.
        ping_patience: seconds after which an unanswered ping breaks the stream.

    Raises:
        OSError: the system has no more files or threads.
        StreamError: the worker cannot be reached.
        TimeoutError: there is no connection after ``seconds``.
        ValueError: the PEM is invalid.
    """

    def __new__(
        cls,
        address: str,
        *,
        largest: int,
        seconds: float,
        token: str | None = None,
        ca: bytes | None = None,
        cert: bytes | None = None,
        key: bytes | None = None,
        ping_every: float = 10.0,
        ping_patience: float = 5.0,
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
        """Return the next message; ``None`` if the worker ended the stream cleanly.

        Raises:
            StreamError: the stream broke, or the worker ended it with a status.
            TimeoutError: no message has come after ``seconds``; a later call may return it.
        """

    def close(self) -> None:
        """Break the stream off; a waiting thread gets a StreamError."""

@final
class ServerStream:
    """A worker's side of a stream."""

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message; ``None`` at the end or when the server is being stopped.

        Raises:
            StreamError: the stream broke, or no message has come after ``seconds``.
        """

    def exchange(self, answer: bytes) -> bytes | None:
        """Send a message and wait for the next one without a time limit.

        Raises:
            StreamError: the stream broke.
        """

    @staticmethod
    def abort(code: str, details: str) -> NoReturn:
        """Raise a StreamError; if it leaves the handler, the stream ends with its status."""

@final
class Server:
    """A server of the service of ``workers.proto``, and of ``grpc.health.v1``.

    Args:
        address: ``host:port``, where port 0 takes a free one, or ``unix:path``.
        handler: called for each stream, in a separate thread; if it returns, the stream ends
            cleanly, and if it raises, with a status.
        largest: bytes of the largest accepted message.
        most_streams: largest number of simultaneous streams of all connections.
        token: the token required of streams.
        ca: certificates in PEM that must have signed the learners', or include them if they are not
            a CA's.
        cert: the worker's certificate in PEM; ``None``: no TLS.
        key: its private key in PEM.
        ping_every: seconds between pings of a connection.
        ping_patience: seconds after which an unanswered ping breaks the connection.
        unused: most seconds of a connection without a stream; twice that if it has had one.

    Raises:
        OSError: the address cannot be bound.
        ValueError: the PEM is invalid.
    """

    def __new__(
        cls,
        address: str,
        handler: Callable[[ServerStream], object],
        *,
        largest: int,
        most_streams: int,
        token: str | None = None,
        ca: bytes | None = None,
        cert: bytes | None = None,
        key: bytes | None = None,
        ping_every: float = 10.0,
        ping_patience: float = 5.0,
        unused: float = 30.0,
    ) -> Server: ...
    @property
    def port(self) -> int:
        """The port that it listens on; 0 for a path."""

    def start(self) -> None:
        """Begin to accept connections, in a thread.

        Raises:
            OSError: the thread cannot be started.
        """

    def stop(self, grace: float) -> None:
        """Refuse new streams, give the requests under way ``grace`` seconds, then close all."""

@final
class StepCodec:
    """The messages with arrays in ``workers.proto``, for the N envs of one worker.

    Observations and actions are an array of N rows each, or dicts of such arrays by leaf. All
    returned arrays are new and writeable.

    Args:
        observations: whether the space of one env's observation is nested, and the name, dtype and
            shape of each of its leaves.
        actions: the same for one env's action.
        n_envs: N.

    Raises:
        OverflowError: a row has more bytes than the address space.
        TypeError: a dtype is not numeric.
    """

    def __new__(cls, observations: _Leaves, actions: _Leaves, n_envs: int) -> StepCodec: ...
    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the observations and of the actions of N envs."""

    def encode_request(self, sequence: int, actions: Any, first: int, rows: int) -> bytes:
        """Return the ``Request`` of a step.

        Args:
            sequence: its number.
            actions: arrays of the actions of ``rows`` envs.
            first: the row of the worker's first env.
            rows: number of envs of all workers.

        Raises:
            KeyError: an array is missing.
            ValueError: they have another number of rows, or rows of another shape.
        """

    def decode_request(self, data: bytes) -> tuple[int, Any]:
        """Return the number of a ``Request`` and its actions; ``None`` if it is not a step.

        Raises:
            StreamError: the bytes are not a message.
            ValueError: the arrays' sizes do not match the space.
        """

    def encode_observations(
        self, sequence: int, obs: Any, masks: npt.NDArray[np.bool_] | None
    ) -> bytes:
        """Return the ``Reply`` to a reset; arguments and errors as in :meth:`encode_outcome`."""

    def encode_outcome(
        self, sequence: int, step: VecEnvStep, masks: npt.NDArray[np.bool_] | None
    ) -> bytes:
        """Return the ``Reply`` to a step.

        Args:
            sequence: number of the request.
            step: the envs' result.
            masks: those of the next actions, (N, choices).

        Raises:
            KeyError: an array is missing.
            ValueError: an array does not have N rows, or rows of another shape.
        """

    def decode_observations(
        self, data: bytes, sequence: int
    ) -> tuple[dict[str, Any], npt.NDArray[np.bool_] | None] | None:
        """Return the observations of a reset as ``obs``, and masks; see :meth:`decode_outcome`."""

    def decode_outcome(
        self, data: bytes, sequence: int
    ) -> tuple[VecEnvStep, npt.NDArray[np.bool_] | None] | None:
        """Return the step of a ``Reply``, and the masks of the next actions.

        Args:
            data: the reply.
            sequence: number of the request; the result is ``None`` for the reply to another request
                or with other content.

        Raises:
            StreamError: the bytes are not a message.
            ValueError: a field's size does not match the spaces, flags are neither 0 nor 1, or an
                env that ended is not the worker's.
        """
