"""Streams to workers: requests are retried but never done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from rlox.errors import ConfigError, EnvError, WorkerError, WorkerLostError

from rlox_distributed._transport import ClientStream, StreamError
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials
from rlox_distributed.spaces import codec_of, space_from_json

PROTOCOL_VERSION = 3
HEADROOM = 1 << 16
"""Bytes of a message in addition to its arrays."""


CONNECT_SECONDS = 5.0
"""Longest time of one attempt to connect; within an attempt the system retries ever more rarely."""


class Stream:
    """A stream of requests and answers, on its own connection.

    Args:
        address: ``host:port``.
        credentials: those of TLS and the token.
        largest: bytes of the largest accepted answer.
        seconds: time limit of connecting.

    Raises:
        ConfigError: a file of the credentials is invalid.
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
        """Send a request; errors are raised by :meth:`receive` instead."""
        try:  # noqa: SIM105  # a context manager per request is slower
            self._stream.send(data)
        except StreamError:
            pass

    def receive(self, seconds: float) -> bytes:
        """Return the next answer.

        Raises:
            TimeoutError: it has not come after ``seconds``.
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


Decode: TypeAlias = Callable[[bytes, int], Any]
"""Takes an answer and a number, and returns the arrays, or ``None`` for another number."""

FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
"""Seconds before the first attempt to reconnect, and the longest wait before an attempt."""

BUSY_SECONDS = 20.0
"""Time of attempts while another learner has the worker: longer than its keepalive needs to notice
that the other has gone."""

CLOSE_SECONDS = 5.0
"""Time that a worker has to end a stream cleanly."""

MAX_WELCOME = 4 << 20
"""Bytes of the first answer, before the spaces are known."""

MAX_CHOICES = 1 << 20
"""Largest number of maskable actions of one env."""

PASSING = ("UNAVAILABLE", "CANCELLED", "ABORTED", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED")
"""Statuses after which another attempt may succeed; any other is a refusal."""


class NewSessionError(Exception):
    """The worker's envs are not those of the last request."""


class Link:
    """A connection to one worker.

    Args:
        address: ``host:port``.
        hello: the first request, with the learner's name and the env that the worker must serve.
        credentials: those of TLS and the token.
    """

    def __init__(self, address: str, hello: Any, credentials: Credentials) -> None:
        credentials.require_for(address, serving=False)
        self.address = address
        self._hello = hello
        self._credentials = credentials
        self._largest = MAX_WELCOME
        self._call: Any = None  # a stream, while there is one
        self._sent = 0
        self._request: bytes = b""
        self.welcome: Any = None
        """The worker's answer to ``hello``."""
        self.codec: Any = None
        """Conversion between arrays and messages, once there is a welcome."""

    def connect(self, seconds: float) -> None:
        """Connect, with attempts for ``seconds``.

        Raises:
            EnvError: the worker refuses this learner.
            WorkerLostError: it cannot be reached.
            NewSessionError: its envs are not the previous ones.
        """
        begun = time.monotonic()
        end, wait = begun + seconds, FIRST_WAIT
        while True:
            try:
                self._open(max(end - time.monotonic(), FIRST_WAIT))
                return
            except TimeoutError:
                raise self._silent_for(seconds) from None
            except StreamError as error:
                self._hang_up()
                code, details = error.args
                busy = code == "RESOURCE_EXHAUSTED"
                waits = busy and time.monotonic() + wait < min(end, begun + BUSY_SECONDS)
                if "certificate" in details.lower():  # another attempt would fail too
                    raise EnvError(f"no TLS with the worker {self.address}: {details}") from None
                if code not in PASSING and not waits:
                    raise EnvError(f"the worker {self.address} refuses: {details}") from None
                if time.monotonic() + wait > end:
                    raise WorkerLostError(
                        f"the worker {self.address} cannot be reached in {seconds:g} s: {details}"
                    ) from None
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _open(self, seconds: float) -> None:
        welcome = self._greet(seconds)
        before, self.welcome = self.welcome, welcome
        largest = self._largest_answer(welcome)
        if largest > self._largest:
            self._largest = largest
            self._hang_up()
            welcome = self._greet(seconds)
        if before is None or before.session == welcome.session:
            return
        self._sent = welcome.done
        same = (before.env_id, before.n_envs, before.observation_space, before.action_space)
        if same != (
            welcome.env_id,
            welcome.n_envs,
            welcome.observation_space,
            welcome.action_space,
        ):
            raise EnvError(f"the worker {self.address} came back with other envs or spaces")
        raise NewSessionError

    def _greet(self, seconds: float) -> Any:
        """Open a stream and return the worker's welcome."""
        end = time.monotonic() + seconds
        self._call = Stream(self.address, self._credentials, self._largest, seconds)
        self._call.send(pb.Request(hello=self._hello).SerializeToString())
        reply = _parse(self._call.receive(max(end - time.monotonic(), 0.0)))
        if reply.WhichOneof("answer") != "welcome":
            raise EnvError(f"the worker {self.address} does not speak this protocol")
        return reply.welcome

    def _largest_answer(self, welcome: Any) -> int:
        """Return the size in bytes of the largest valid answer, and set the codec of its arrays."""
        if not 1 <= welcome.n_envs <= 1 << 16:
            raise EnvError(f"the worker {self.address} says it has {welcome.n_envs} envs")
        actions = space_from_json(welcome.action_space)
        codec = codec_of(space_from_json(welcome.observation_space), actions, welcome.n_envs)
        choices = np.max(getattr(actions, "nvec", getattr(actions, "n", 0)), initial=0)
        masks = welcome.n_envs * min(max(int(choices), 1 << 10), MAX_CHOICES)
        obs, acts = codec.sizes
        largest: int = 2 * obs + masks + 32 * welcome.n_envs + HEADROOM
        for what, size in (("answers", largest), ("actions", acts)):
            if size >= 1 << 31:
                raise EnvError(f"{self.address} has {what} of {size:,} bytes; gRPC takes < 2 GiB")
        self.codec = codec
        return largest

    def send(self, request: Any) -> None:
        """Begin a request; :meth:`receive` takes its answer."""
        request.sequence = self._sent + 1
        self._begin(request.SerializeToString())

    def send_actions(self, actions: Any, first: int, rows: int) -> None:
        """Begin a step.

        Args:
            actions: array of the actions of ``rows`` envs, or a dict of arrays by leaf.
            first: the row of the worker's first env.
            rows: number of envs of all workers.
        """
        self._begin(self.codec.encode_request(self._sent + 1, actions, first, rows))

    def _begin(self, request: bytes) -> None:
        self._sent += 1
        self._request = request
        if self._call is not None:
            self._call.send(request)

    def receive(self, seconds: float, decode: Decode | None = None) -> Any:
        """Return the answer to the request under way.

        A broken stream is opened again, and the request repeated under its number.

        Args:
            seconds: time limit of the answer, including attempts to reconnect.
            decode: a method of :attr:`codec`; ``None``: the answer is a ``Reply`` without arrays.

        Raises:
            NewSessionError: the worker has restarted; the request is void.
            WorkerLostError: it did not answer in time, or cannot be reached.
            WorkerError: its env raised an exception; with the traceback.
            EnvError: the answer does not match the request.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                if self._call is None:
                    self.connect(max(end - time.monotonic(), FIRST_WAIT))
                    self._repeat()
                answer = self._read(self._call.receive(max(end - time.monotonic(), 0.0)), decode)
            except TimeoutError:
                raise self._silent_for(seconds) from None
            except StreamError as error:
                self._hang_up()
                code, details = error.args
                if code not in PASSING:
                    raise EnvError(f"the worker {self.address} refuses: {details}") from None
                continue
            if answer is not None:
                return answer

    def _read(self, data: bytes, decode: Decode | None) -> Any:
        """Return the answer to the request under way; ``None`` if it answers another."""
        if decode is not None:
            try:
                part = decode(data, self._sent)
            except ValueError as error:
                raise EnvError(f"the worker {self.address} sent {error}") from None
            if part is not None:
                return part
        reply = _parse(data)
        if reply.sequence != self._sent:
            return None
        kind = reply.WhichOneof("answer")
        if kind == "failure":
            failure = reply.failure
            raise WorkerError(
                f"an env of the worker {self.address} raised {failure.kind}: {failure.message}\n"
                f"{failure.traceback}"
            )
        if decode is not None:
            raise EnvError(f"the worker {self.address} sent {kind}, which was not requested")
        return reply

    def _repeat(self) -> None:
        self._call.send(self._request)

    def _silent_for(self, seconds: float) -> WorkerLostError:
        self._hang_up()
        return WorkerLostError(f"the worker {self.address} has not answered in {seconds:g} s")

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.close()
            self._call = None

    def close(self) -> None:
        """End the stream, cleanly if the worker answers; it is then free for the next learner."""
        if self._call is not None:
            self._call.end(CLOSE_SECONDS)
        self._hang_up()


def _parse(data: bytes) -> Any:
    try:
        return pb.Reply.FromString(data)
    except DecodeError:
        raise StreamError("INTERNAL", "the answer is not a message of this protocol") from None


def require_same_envs(links: Sequence[Link]) -> None:
    """Check that all links have different workers, which serve the same env.

    Raises:
        EnvError: two links lead to the same worker, or two workers differ; the text names both.
    """
    first = links[0]
    by_session: dict[str, Link] = {}
    for link in links:
        other = by_session.setdefault(link.welcome.session, link)
        if other is not link:
            raise EnvError(
                f"{other.address} and {link.address} are the same worker; name each worker once"
            )
        for name in ("env_id", "observation_space", "action_space"):
            if getattr(link.welcome, name) != getattr(first.welcome, name):
                raise EnvError(
                    f"all workers must serve one env: {link.address} has the {name} "
                    f"{getattr(link.welcome, name)}, {first.address} "
                    f"{getattr(first.welcome, name)}"
                )
