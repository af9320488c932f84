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
    """A stream broke, or was refused.

    ``args`` are gRPC's name of the status, as ``"UNAVAILABLE"``, and what happened.
    """

@final
class ClientStream:
    """A learner's stream to a worker, on a connection of its own.

    Any thread may close it; one at a time waits for it.

    Args:
        address: ``host:port``, or ``unix:path``.
        largest: bytes of the largest message that is taken.
        seconds: for connecting.
        token: sent as ``authorization: Bearer``.
        ca: certificates in PEM that the worker's must be signed by, or be one of; ``None``: no TLS.
        cert: one's own in PEM, for workers that ask for it.
        key: its private key in PEM.
        ping_every: seconds between questions whether the worker is there.
        ping_patience: seconds after which a question without an answer breaks the stream.

    Raises:
        OSError: the system has no more files or threads.
        StreamError: the worker cannot be reached.
        TimeoutError: not in so many seconds.
        ValueError: the PEM is none.
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
    """A server of the service of ``workers.proto``, and of ``grpc.health.v1``.

    Args:
        address: ``host:port``, whose port 0 takes a free one, or ``unix:path``.
        handler: called for each stream, in a thread of its own; where it returns, the stream ends
            in good order, and where it raises, with a status.
        largest: bytes of the largest message that is taken.
        most_streams: at a time, of all connections.
        token: that streams must come with.
        ca: certificates in PEM that the learners' must be signed by, or be one of; it is then not a
            CA's.
        cert: the worker's own in PEM; ``None``: no TLS.
        key: its private key in PEM.
        ping_every: seconds between questions whether the other side of a connection is there.
        ping_patience: seconds after which a question without an answer breaks the connection.
        unused: seconds for which a connection may be open without a stream; twice that, if there
            has been one.

    Raises:
        OSError: the address cannot be bound.
        ValueError: the PEM is none.
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
        """Where it listens; 0 for a path."""

    def start(self) -> None:
        """Begin to accept connections, in a thread.

        Raises:
            OSError: the thread cannot be started.
        """

    def stop(self, grace: float) -> None:
        """Take no new streams, let the requests under way end for so long, then close all."""

@final
class StepCodec:
    """The messages of ``workers.proto`` that hold arrays, of the N envs of one worker.

    Observations and actions are an array of N rows each, or dicts of them by leaf. All arrays that
    it returns are new ones, to be written to.

    Args:
        observations: whether the space of one env's observation is nested, and the name, dtype and
            shape of each of its leaves.
        actions: of one env's action.
        n_envs: N.

    Raises:
        OverflowError: a row has more bytes than there is memory for.
        TypeError: a dtype is none of numbers.
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
            rows: of all workers.

        Raises:
            KeyError: an array is missing.
            ValueError: they have not as many rows, or rows of another shape.
        """

    def decode_request(self, data: bytes) -> tuple[int, Any]:
        """Return the number of a ``Request`` and its actions; ``None`` if it is no step.

        Raises:
            StreamError: the bytes are no message.
            ValueError: the arrays have not the bytes that the space says.
        """

    def encode_observations(
        self, sequence: int, obs: Any, masks: npt.NDArray[np.bool_] | None
    ) -> bytes:
        """Return the ``Reply`` to a reset; arguments and errors as of :meth:`encode_outcome`."""

    def encode_outcome(
        self, sequence: int, step: VecEnvStep, masks: npt.NDArray[np.bool_] | None
    ) -> bytes:
        """Return the ``Reply`` to a step.

        Args:
            sequence: number of the request.
            step: what the envs returned.
            masks: (N, choices) of the next actions.

        Raises:
            KeyError: an array is missing.
            ValueError: an array has not N rows, or rows of another shape.
        """

    def decode_observations(
        self, data: bytes, sequence: int
    ) -> tuple[dict[str, Any], npt.NDArray[np.bool_] | None] | None:
        """Return what envs show after a reset as ``obs``, and masks; see :meth:`decode_outcome`."""

    def decode_outcome(
        self, data: bytes, sequence: int
    ) -> tuple[VecEnvStep, npt.NDArray[np.bool_] | None] | None:
        """Return the step of a ``Reply``, and the masks of the next actions.

        Args:
            data: the reply.
            sequence: number of the request; ``None`` is returned for another one's reply, and for
                one that holds something else.

        Raises:
            StreamError: the bytes are no message.
            ValueError: a field has not the bytes that the spaces say, flags are neither 0 nor 1, or
                an env that ended is none of the worker's.
        """
