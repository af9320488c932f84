"""Streams to workers: requests are retried, and never done twice."""

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
"""Bytes of a message beside its arrays."""


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


Decode: TypeAlias = Callable[[bytes, int], Any]
"""Takes an answer and its number, and returns the arrays, or ``None`` if it is another."""

FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
"""Seconds before the first attempt to connect again, and most seconds before one."""

BUSY_SECONDS = 20.0
"""For which a worker that another learner has is asked again: longer than its keepalive takes to
notice that the other has gone."""

CLOSE_SECONDS = 5.0
"""For which a worker may end a stream in good order."""

MAX_WELCOME = 4 << 20
"""Bytes of the first answer, before the spaces are known."""

MAX_CHOICES = 1 << 20
"""Actions of one env that can be masked."""

PASSING = ("UNAVAILABLE", "CANCELLED", "ABORTED", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED")
"""After which another attempt may succeed; any other status is a refusal."""


class NewSessionError(Exception):
    """The worker's envs are not those that the last request was for."""


class Link:
    """A connection to one worker.

    Args:
        address: ``host:port``.
        hello: the first request: who the learner is, and what the worker must serve.
        credentials: of TLS and the token.
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
        """What the worker said it is."""
        self.codec: Any = None
        """What makes messages of arrays, and arrays of messages, once there is a welcome."""

    def connect(self, seconds: float) -> None:
        """Connect, with attempts for so long.

        Raises:
            EnvError: the worker refuses this learner.
            WorkerLostError: it cannot be reached.
            NewSessionError: its envs are not those of before.
        """
        begun = time.monotonic()
        end, wait = begun + seconds, FIRST_WAIT
        while True:
            try:
                self._open(max(end - time.monotonic(), FIRST_WAIT))
                return
            except TimeoutError:
                self._hang_up()
                raise WorkerLostError(
                    f"the worker {self.address} has not answered in {seconds:g} s"
                ) from None
            except StreamError as error:
                self._hang_up()
                code, details = error.args
                busy = code == "RESOURCE_EXHAUSTED"
                waits = busy and time.monotonic() + wait < min(end, begun + BUSY_SECONDS)
                if "certificate" in details.lower():  # which is the same at the next attempt
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
        """Return the bytes of the largest honest answer, and take the codec of its arrays."""
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
            rows: of all workers.
        """
        self._begin(self.codec.encode_request(self._sent + 1, actions, first, rows))

    def _begin(self, request: bytes) -> None:
        self._sent += 1
        self._request = request
        if self._call is not None:
            self._call.send(request)

    def receive(self, seconds: float, decode: Decode | None = None) -> Any:
        """Return the answer to the request under way.

        A stream that breaks is opened again, and the request repeated under its number.

        Args:
            seconds: for the answer, attempts to connect again included.
            decode: of :attr:`codec`, for an answer of arrays; ``None``: it is a ``Reply``.

        Raises:
            NewSessionError: the worker has begun again; the request is void.
            WorkerLostError: it did not answer in time, or cannot be reached.
            WorkerError: its env raised; with the traceback.
            EnvError: the answer is not what was asked for.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                if self._call is None:
                    self.connect(max(end - time.monotonic(), FIRST_WAIT))
                    self._repeat()
                answer = self._read(self._call.receive(max(end - time.monotonic(), 0.0)), decode)
            except TimeoutError:
                self._hang_up()
                raise WorkerLostError(
                    f"the worker {self.address} has not answered in {seconds:g} s"
                ) from None
            except StreamError as error:
                self._hang_up()
                code, details = error.args
                if code not in PASSING:
                    raise EnvError(f"the worker {self.address} refuses: {details}") from None
                continue
            if answer is not None:
                return answer

    def _read(self, data: bytes, decode: Decode | None) -> Any:
        """Return the answer to the request under way, ``None`` if it is another's."""
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
            raise EnvError(f"the worker {self.address} sent {kind}, which was not asked for")
        return reply

    def _repeat(self) -> None:
        self._call.send(self._request)

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.close()
            self._call = None

    def close(self) -> None:
        """End the stream, in good order if the worker answers; it is then free for the next."""
        if self._call is not None:
            self._call.end(CLOSE_SECONDS)
        self._hang_up()


def _parse(data: bytes) -> Any:
    try:
        return pb.Reply.FromString(data)
    except DecodeError:
        raise StreamError("INTERNAL", "the answer is no message of this protocol") from None


def require_same_envs(links: Sequence[Link]) -> None:
    """Check that the workers of links are several, and serve one env.

    Raises:
        EnvError: two links lead to one worker, or two workers differ; the text names both.
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
