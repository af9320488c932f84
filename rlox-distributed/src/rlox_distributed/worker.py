"""Env workers: one learner at a time, every request done once."""

from __future__ import annotations

import secrets
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import rlox
from google.protobuf.message import DecodeError
from rlox.envs.running import CheckedSteps
from rlox.errors import ConfigError
from rlox.protocols import StatefulVecEnv, VecEnv

from rlox_distributed._transport import Server, ServerStream
from rlox_distributed.link import HEADROOM, PROTOCOL_VERSION
from rlox_distributed.protocol import workers_pb2 as pb
from rlox_distributed.security import Credentials
from rlox_distributed.spaces import arguments_to_json, codec_of, space_to_json
from rlox_distributed.state import ServedState

MAX_STREAMS = 8
"""Simultaneous streams; one is the learner's, the others are being refused."""
HELLO_SECONDS = 10.0
"""Longest time in seconds until a stream's first request."""


class EnvWorker:
    """Serves a vector env.

    Args:
        env: the env, stepped by the learner of the session; closed by :meth:`stop`.
        env_id: its id.
        bind: ``host:port``; port 0 takes a free one.
        credentials: those of TLS and the token.
        env_kwargs: the arguments it was made with.

    Raises:
        ConfigError: other machines reach the address and TLS or the token is missing, or it cannot
            be bound.
        SpaceError: a space cannot be described.
    """

    def __init__(
        self,
        env: VecEnv,
        env_id: str,
        bind: str,
        credentials: Credentials | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._credentials = credentials or Credentials()
        self._credentials.require_for(bind, serving=True)
        self._env, self._env_id = env, env_id
        self._env_kwargs = arguments_to_json(env_kwargs or {})
        self._spaces = space_to_json(env.observation_space), space_to_json(env.action_space)
        self._steps = CheckedSteps(env)
        self._codec = codec_of(env.observation_space, env.action_space, env.n_envs)
        self._state = ServedState(env) if isinstance(env, StatefulVecEnv) else None
        self._lock = threading.Lock()
        self._learner = ""
        self._holder: object = None
        self._session = secrets.token_hex(16)
        self._done, self._last = 0, b""
        self._stopped = threading.Event()
        self._server = self._bind(bind)
        self.port = self._server.port
        """The port that it listens on."""

    def _bind(self, address: str) -> Server:
        me = weakref.ref(self)  # weak, because the worker owns the server

        def serve(stream: ServerStream) -> None:
            if (worker := me()) is not None:
                worker._serve(stream)

        try:
            return Server(
                address, serve, largest=self._codec.sizes[1] + HEADROOM, most_streams=MAX_STREAMS,
                token=self._credentials.token(), **self._credentials.files(),
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"'{address}' cannot be bound: {error}") from None
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def start(self) -> None:
        """Begin to serve, in threads."""
        self._server.start()

    def wait(self) -> None:
        """Wait until :meth:`stop`."""
        self._stopped.wait()

    def stop(self, grace: float = 5.0) -> None:
        """Refuse new streams, let the step under way end, and close the env."""
        self._server.stop(grace)
        with self._lock:
            self._env.close()
        self._stopped.set()

    def _serve(self, stream: ServerStream) -> None:
        """Answer the requests of one stream with the right token."""
        holder = object()
        data = stream.receive(HELLO_SECONDS)
        answer = self._welcome(_parse(data, stream), holder, stream)
        try:
            while (data := stream.exchange(answer)) is not None:
                answer = self._answer(data, holder, stream)
        finally:
            with self._lock:
                if self._holder is holder:
                    self._holder = None

    def _welcome(self, request: Any, holder: object, stream: ServerStream) -> bytes:
        """Give the session to a learner, or refuse it."""
        if request is None or request.WhichOneof("call") != "hello":
            stream.abort("FAILED_PRECONDITION", "the first request must be hello")
        hello = request.hello
        for name, theirs, ours in (
            ("protocol version", hello.protocol_version, PROTOCOL_VERSION),
            ("rlox version", hello.library_version, rlox.__version__),
            ("env", hello.env_id or self._env_id, self._env_id),
            ("env_kwargs", hello.env_kwargs or self._env_kwargs, self._env_kwargs),
        ):
            if theirs != ours:
                stream.abort(
                    "FAILED_PRECONDITION",
                    f"the worker has the {name} {ours!r}, the learner asks for {theirs!r}",
                )
        with self._lock:
            known = hello.learner == self._learner
            if self._holder is not None and not known:
                stream.abort("RESOURCE_EXHAUSTED", "another learner has this worker")
            self._holder = holder  # an older stream of the same learner loses it
            if not known:
                self._learner, self._session = hello.learner, secrets.token_hex(16)
                self._done, self._last = 0, b""
            welcome = pb.Welcome(
                protocol_version=PROTOCOL_VERSION,
                library_version=rlox.__version__,
                session=self._session,
                env_id=self._env_id,
                n_envs=self._env.n_envs,
                observation_space=self._spaces[0],
                action_space=self._spaces[1],
                done=self._done,
                has_state=self._state is not None,
            )
            data: bytes = pb.Reply(welcome=welcome).SerializeToString()
            return data

    def _answer(self, data: bytes, holder: object, stream: ServerStream) -> bytes:
        """Do a request unless it has been done."""
        with self._lock:
            if self._holder is not holder:
                stream.abort("ABORTED", "this stream lost its session")
            try:
                sequence, actions = self._codec.decode_request(data)
            except ValueError as error:
                stream.abort("INVALID_ARGUMENT", str(error))
            if sequence == self._done and self._last:
                return self._last
            if sequence != self._done + 1:
                stream.abort(
                    "FAILED_PRECONDITION", f"expected request {self._done + 1}, got {sequence}"
                )
            is_step = actions is not None
            call = partial(self._step, actions) if is_step else self._call(data, stream)
            try:
                answer = call(sequence)
            # the learner must see every exception of an env; a SystemExit would end the stream, and
            # the learner would repeat the request
            except BaseException as error:
                failure = pb.Failure(
                    kind=type(error).__name__, message=str(error), traceback=traceback.format_exc()
                )
                answer = pb.Reply(sequence=sequence, failure=failure).SerializeToString()
            self._done, self._last = sequence, answer
            return answer

    def _step(self, actions: Any, sequence: int) -> bytes:
        step = self._env.step_all(actions)
        self._steps.check(step)  # because sending casts arrays
        return self._codec.encode_outcome(sequence, step, self._steps.action_masks())

    def _call(self, data: bytes, stream: ServerStream) -> Callable[[int], bytes]:
        """Return the function that answers a valid request that is not a step; refuse others."""
        request = _parse(data, stream)
        kind = request.WhichOneof("call")
        if kind == "reset":
            seeds = list(request.reset.seeds)
            if seeds and len(seeds) != self._env.n_envs:
                text = f"expected {self._env.n_envs} seeds, got {len(seeds)}"
                stream.abort("INVALID_ARGUMENT", text)
            return partial(self._reset, seeds or None)
        state = self._state
        if state is None or kind not in {"save", "load"}:
            stream.abort("INVALID_ARGUMENT", f"no request is called {kind}")
        if kind == "save":
            return partial(_reply, state.save, request.save.offset)
        try:
            return partial(_reply, state.load, state.take(request.load))
        except ValueError as error:
            stream.abort("INVALID_ARGUMENT", str(error))

    def _reset(self, seeds: list[int] | None, sequence: int) -> bytes:
        obs = self._env.reset_all(seeds)
        self._steps.check_reset(obs)
        return self._codec.encode_observations(sequence, obs, self._steps.action_masks())


def _reply(call: Callable[[Any], Any], argument: Any, sequence: int) -> bytes:
    """Return the reply of a call under its number."""
    reply = call(argument)
    reply.sequence = sequence
    data: bytes = reply.SerializeToString()
    return data


def _parse(data: bytes | None, stream: ServerStream) -> Any:
    """Return a request; ``None`` without data."""
    try:
        return None if data is None else pb.Request.FromString(data)
    except DecodeError:
        stream.abort("INTERNAL", "the request is not a message of this protocol")
