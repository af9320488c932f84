"""Steps of env workers over gRPC: against calls here, bare grpcio, more workers and slow links.

python benchmarks/remote_envs.py [--rounds 9]

The servers are a process of their own. *Bare grpcio* is one bidirectional stream of bytes whose
server does nothing but step the same env and send its arrays. A slow link is a proxy that holds
every piece of data for a while each way.
"""

from __future__ import annotations

import argparse
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
from gymnasium import spaces
from measure import interleave_calls, machine, summary, write
from rlox.envs.make import make_vec_env
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.worker import EnvWorker

ENV_ID = "CartPole-v1"
SIZES = (64, 1024)
WORKERS = (1, 2, 4, 8, 16)
CALLS, WARM_UP = 100, 50
SLEEP, SLEEP_OF_MANY = 0.01, 0.001
MANY = 64
DELAYS = (0.0, 0.001, 0.005, 0.02)


class Sleeping:
    """Envs that sleep one after the other."""

    observation_space: Any = spaces.Box(0, 1, (4,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, n_envs: int, seconds: float) -> None:
        self.n_envs, self._seconds = n_envs, seconds

    def reset_all(self, seed: Any = None) -> Any:
        """Begin."""
        return np.zeros((self.n_envs, 4), np.float32)

    def step_all(self, actions: Any) -> Any:
        """Sleep."""
        time.sleep(self.n_envs * self._seconds)
        obs, no = np.zeros((self.n_envs, 4), np.float32), np.zeros(self.n_envs, bool)
        return {"obs": obs, "rewards": np.ones(self.n_envs), "terminated": no, "truncated": no,
                "final_obs": obs}  # fmt: skip

    def close(self) -> None:
        """Do nothing."""


def serve() -> None:
    """Serve all that is measured, and print where, until the input ends."""
    ports: list[int] = []
    kept: list[Any] = []
    for size in SIZES:
        env = make_vec_env(ENV_ID, n_envs=size)
        env.reset_all(0)
        bare = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.stream_stream_rpc_method_handler(_stepper(env), bytes, bytes)
        service = grpc.method_handlers_generic_handler("bare", {"Step": handler})
        bare.add_generic_rpc_handlers((service,))
        ports.append(bare.add_insecure_port("127.0.0.1:0"))
        kept.append(bare)
        kept.append(EnvWorker(make_vec_env(ENV_ID, n_envs=size), ENV_ID, "127.0.0.1:0"))
        ports.append(kept[-1].port)
    kept.append(EnvWorker(Sleeping(MANY, SLEEP_OF_MANY), "Sleeping", "127.0.0.1:0"))
    ports.append(kept[-1].port)
    for _ in range(max(WORKERS)):
        kept.append(EnvWorker(Sleeping(1, SLEEP), "Sleeping", "127.0.0.1:0"))
        ports.append(kept[-1].port)
    for server in kept:
        server.start()
    print(*ports, flush=True)
    sys.stdin.read()


def _stepper(env: Any) -> Callable[[Iterator[bytes], Any], Iterator[bytes]]:
    def answer(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for request in requests:
            step = env.step_all(np.frombuffer(request, np.int64))
            yield b"".join(step[key].tobytes() for key in ("obs", "rewards", "terminated",
                                                           "truncated"))  # fmt: skip

    return answer


def bare_client(port: int, size: int) -> Callable[[], Any]:
    """Return a call that steps the bare server's envs."""
    actions = np.zeros(size, np.int64)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    answers = channel.stream_stream("/bare/Step")(iter(requests.get, None))

    def call() -> Any:
        requests.put(actions.tobytes())
        data = next(answers)
        return np.frombuffer(data, np.float32, size * 4).reshape(size, 4)

    call.channel = channel  # type: ignore[attr-defined]  # kept open
    return call


def stepping(env: Any) -> Callable[[], Any]:
    """Return a call that steps a vector env."""
    actions = np.zeros(env.n_envs, np.int64)
    env.reset_all(0)
    return lambda: env.step_all(actions)


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/remote_envs.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    ports = [int(text) for text in server.stdout.readline().split()]
    try:
        result = {
            measure.__name__: measure(ports, options.rounds)
            for measure in (steps, slow_envs, slow_links, workers)
        }
    finally:
        server.communicate()
    where = machine(["rlox-distributed", "grpcio", "protobuf", "numpy"])
    print(write("remote_envs", {"rounds": options.rounds, "machine": where, **result}))


def steps(ports: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return microseconds of a batched step."""
    rows = []
    for i, size in enumerate(SIZES):
        bare, worker = ports[2 * i : 2 * i + 2]
        contenders = {
            "in process": stepping(make_vec_env(ENV_ID, n_envs=size)),
            "bare grpcio": bare_client(bare, size),
            "worker": stepping(RemoteEnvPool([f"127.0.0.1:{worker}"])),
        }
        interleave_calls(contenders, 1, WARM_UP)
        for name, seconds in interleave_calls(contenders, rounds, CALLS).items():
            microseconds = summary(np.median(seconds, axis=1) * 1e6)
            rows.append({"envs": size, "contender": name, "microseconds": microseconds})
            print(f"{size:5d} envs  {name:12s} {microseconds['median']:9.0f} us")
    return rows


def slow_envs(ports: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return milliseconds of a batched step of 64 envs that take 1 ms each."""
    port = ports[2 * len(SIZES)]
    contenders = {
        "in process": stepping(Sleeping(MANY, SLEEP_OF_MANY)),
        "worker": stepping(RemoteEnvPool([f"127.0.0.1:{port}"])),
    }
    rows = []
    for name, seconds in interleave_calls(contenders, rounds, 5).items():
        milliseconds = summary(np.median(seconds, axis=1) * 1e3)
        rows.append({"envs": MANY, "contender": name, "milliseconds": milliseconds})
        print(f"{MANY:5d} envs of 1 ms  {name:12s} {milliseconds['median']:6.1f} ms")
    return rows


def slow_links(ports: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return milliseconds of a batched step through a proxy that delays each way."""
    rows = []
    for delay in DELAYS:
        bare, worker = (slow_link(port, delay) for port in ports[:2])
        contenders = {
            "bare grpcio": bare_client(bare, SIZES[0]),
            "worker": stepping(RemoteEnvPool([f"127.0.0.1:{worker}"])),
        }
        interleave_calls(contenders, 1, WARM_UP)
        for name, seconds in interleave_calls(contenders, rounds, 20).items():
            milliseconds = summary(np.median(seconds, axis=1) * 1e3)
            rows.append({"delay_milliseconds": delay * 1e3, "envs": SIZES[0], "contender": name,
                         "milliseconds": milliseconds})  # fmt: skip
            print(f"{delay * 1e3:5.0f} ms each way  {name:12s} {milliseconds['median']:7.2f} ms")
    return rows


def slow_link(port: int, delay: float) -> int:
    """Return the port of a proxy before another port that delays each way; it runs to the end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for source, target in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                for run in (_hold, _release):
                    threading.Thread(
                        target=run, args=(source, target, held, delay), daemon=True
                    ).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def _hold(source: socket.socket, _: Any, held: Any, delay: float) -> None:
    while data := source.recv(1 << 16):
        held.put((time.perf_counter() + delay, data))
    held.put((0.0, b""))


def _release(_: Any, target: socket.socket, held: Any, delay: float) -> None:
    while True:
        due, data = held.get()
        if not data:
            target.shutdown(socket.SHUT_WR)
            return
        time.sleep(max(due - time.perf_counter(), 0.0))
        target.sendall(data)


def workers(ports: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return env steps per second of numbers of workers whose env sleeps for 10 ms."""
    sleeping = ports[-max(WORKERS) :]
    rows = []
    for count in WORKERS:
        pool = RemoteEnvPool([f"127.0.0.1:{port}" for port in sleeping[:count]])
        seconds = interleave_calls({"pool": stepping(pool)}, rounds, 10)["pool"]
        pool.close()
        speed = summary(count / np.median(seconds, axis=1))
        rows.append({"workers": count, "env_steps_per_second": speed})
        print(f"{count:5d} workers {speed['median']:9.1f} env steps/s")
    return rows


if __name__ == "__main__":
    main()
