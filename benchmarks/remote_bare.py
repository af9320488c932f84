"""Steps over bare gRPC streams and sockets, with which ``remote_envs.py`` compares env workers.

*Bare* is one bidirectional stream of bytes whose server only steps the same env and sends its
arrays. *Whole* adds all that a learner needs, laid out by hand for this one kind of env: a number
that both sides check, so that a repeated request is not stepped twice; the true last observations;
writable arrays; and a deadline. Without protobuf's messages, other spaces, masks and errors of
envs, it is a lower bound for a worker's step over grpcio. *Bytes in Rust* is the bare stream over
rlox's own, and *sockets* the same without gRPC.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from grpcio_stream import Stream
from rlox_distributed._transport import ClientStream, Server, ServerStream

ARRAYS = ("obs", "rewards", "terminated", "truncated")
NUMBER = np.dtype(np.uint64).itemsize
"""Bytes of the number of a request."""


def rows_of(size: int) -> np.dtype[Any]:
    """Return the layout of a step of some envs with 4 numbers each."""
    return np.dtype([("number", "u8"), ("obs", "f4", (size, 4)), ("rewards", "f8", size),
                     ("terminated", "?", size), ("truncated", "?", size)])  # fmt: skip


def serve_bare(env: Any, whole_env: Any = None) -> tuple[grpc.Server, int]:
    """Return a server that steps one env on ``Step`` and one on ``Whole``, and its port."""
    server = grpc.server(ThreadPoolExecutor(3))
    handlers = {
        name: grpc.stream_stream_rpc_method_handler(answer, bytes, bytes)
        for name, answer in (("Step", _step(env)), ("Whole", _step_whole(whole_env)))
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    return server, server.add_insecure_port("127.0.0.1:0")


def _packed(step: Any) -> bytes:
    return b"".join(step[key].tobytes() for key in ARRAYS)


def _step(env: Any) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
    def answer(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for request in requests:
            yield _packed(env.step_all(np.frombuffer(request, np.int64)))

    return answer


def _step_whole(env: Any) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
    lock = threading.Lock()

    def answer(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        done, last = 0, b""
        for request in requests:
            with lock:
                number = int.from_bytes(request[:NUMBER], "little")
                if number == done + 1:
                    step = env.step_all(np.frombuffer(request, np.int64, offset=NUMBER))
                    ended = (step["terminated"] | step["truncated"]).nonzero()[0]
                    final = step["final_obs"][ended].tobytes() if ended.size else b""
                    last = request[:NUMBER] + _packed(step) + ended.tobytes() + final
                    done = number
                elif number != done:
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"got request {number}")
                yield last

    return answer


def bare_client(ports: Sequence[int], size: int) -> Callable[[], Any]:
    """Return a call that steps the envs of bare servers, ``size`` each, at once."""
    actions = np.zeros(size, np.int64)
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}") for port in ports]
    requests: list[queue.SimpleQueue[bytes]] = [queue.SimpleQueue() for _ in ports]
    answers = [
        channel.stream_stream("/bare/Step")(iter(own.get, None))
        for channel, own in zip(channels, requests, strict=True)
    ]

    def call() -> Any:
        for own in requests:
            own.put(actions.tobytes())
        for answer in answers:
            obs = np.frombuffer(next(answer), np.float32, size * 4).reshape(size, 4)
        return obs

    call.channels = channels  # type: ignore[attr-defined]  # kept open
    return call


def whole_client(port: int, size: int) -> Callable[[], Any]:
    """Return a call that steps a server's envs and decodes the whole step."""
    actions, layout = np.zeros(size, np.int64), rows_of(size)
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    stream = Stream(channel.stream_stream("/bare/Whole"))
    number = 0

    def call() -> Any:
        nonlocal number
        number += 1
        stream.send(number.to_bytes(NUMBER, "little") + actions.tobytes())
        data = stream.receive(30.0)
        rows = np.ndarray((), layout, bytearray(data[: layout.itemsize]))
        assert rows["number"] == number
        step = {key: rows[key] for key in ARRAYS}
        step["final_obs"] = step["obs"]
        if len(data) > layout.itemsize:
            count = (len(data) - layout.itemsize) // 24  # a row's index and its 4 numbers
            ended = np.frombuffer(data, np.int64, count, layout.itemsize)
            final = np.frombuffer(data, np.float32, 4 * count, layout.itemsize + 8 * count)
            step["final_obs"] = step["obs"].copy()
            step["final_obs"][ended] = final.reshape(count, 4)
        return step

    call.channel = channel  # type: ignore[attr-defined]  # kept open
    return call


def serve_bytes(env: Any) -> Server:
    """Return a server over rlox's streams that steps an env."""

    def answer(stream: ServerStream) -> None:
        request = stream.receive(30.0)
        while request is not None:
            request = stream.exchange(_packed(env.step_all(np.frombuffer(request, np.int64))))

    return Server("127.0.0.1:0", answer, largest=1 << 20, most_streams=4)


def bytes_client(ports: Sequence[int], size: int) -> Callable[[], Any]:
    """Return the call of :func:`bare_client` over rlox's streams."""
    actions = np.zeros(size, np.int64)
    streams = [ClientStream(f"127.0.0.1:{port}", largest=1 << 24, seconds=30.0) for port in ports]

    def call() -> Any:
        for stream in streams:
            stream.send(actions.tobytes())
        for stream in streams:
            answer = stream.receive(30.0) or b""
            obs = np.frombuffer(answer, np.float32, size * 4).reshape(size, 4)
        return obs

    return call


def serve_sockets(env: Any) -> int:
    """Serve steps of an env, each client in a thread, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            connection = listener.accept()[0]
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as requests:
            while request := requests.read(8 * env.n_envs):
                connection.sendall(_packed(env.step_all(np.frombuffer(request, np.int64))))

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def socket_client(ports: Sequence[int], size: int) -> Callable[[], Any]:
    """Return the call of :func:`bare_client` over sockets."""
    actions, answer = np.zeros(size, np.int64), rows_of(size).itemsize - NUMBER
    connections = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    files = [connection.makefile("rb") for connection in connections]

    def call() -> Any:
        for connection in connections:
            connection.sendall(actions.tobytes())
        for file in files:
            obs = np.frombuffer(file.read(answer), np.float32, size * 4).reshape(size, 4)
        return obs

    return call
