"""Servers and slow links of ``remote_envs.py``.

``python benchmarks/remote_servers.py WHAT`` serves until its input ends, where WHAT is ``all``,
``busy CORE``, ``sleeping WORKERS``, ``workers SIZE ...`` or ``links SECONDS PORT ...``.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from remote_bare import serve_bare, serve_bytes, serve_sockets
from rlox.envs.make import make_vec_env
from rlox_distributed.worker import EnvWorker

ENV_ID = "CartPole-v1"
SIZES = (64, 1024)
WORKERS = (1, 2, 4, 8, 16)
SLEEP, SLEEP_OF_MANY = 0.01, 0.001
MANY = 64
BUSY = 0.01
"""Processor seconds of a step."""


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


class Busy(Sleeping):
    """An env whose step takes processor time."""

    def step_all(self, actions: Any) -> Any:
        """Compute."""
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return Sleeping(self.n_envs, 0.0).step_all(actions)


def serve_busy() -> None:
    """Serve one env that computes, and print its port, until the input ends.

    The process stays on one core, given by its number: where other programs use all cores, the
    scheduler leaves all workers on the core of the learner that wakes them.
    """
    os.sched_setaffinity(0, {int(sys.argv[2]) % (os.cpu_count() or 1)})
    worker = EnvWorker(Busy(1, BUSY), "Busy", "127.0.0.1:0")
    worker.start()
    print(worker.port, flush=True)
    sys.stdin.read()
    worker.stop(0.1)


def serve() -> None:
    """Serve everything on the last core, and print the ports, until the input ends."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    ports: list[int] = []
    kept: list[Any] = []
    for size in SIZES:
        envs = [make_vec_env(ENV_ID, n_envs=size) for _ in range(2)]
        for env in envs:
            env.reset_all(0)
        bare, port = serve_bare(*envs)
        ports.append(port)
        kept.append(bare)
        kept.append(EnvWorker(make_vec_env(ENV_ID, n_envs=size), ENV_ID, "127.0.0.1:0"))
        ports.append(kept[-1].port)
    kept.append(EnvWorker(Sleeping(MANY, SLEEP_OF_MANY), "Sleeping", "127.0.0.1:0"))
    ports.append(kept[-1].port)
    for size in SIZES:
        envs = [make_vec_env(ENV_ID, n_envs=size) for _ in range(2)]
        for env in envs:
            env.reset_all(0)
        kept.append(serve_bytes(envs[0]))
        ports += kept[-1].port, serve_sockets(envs[1])
    for server in kept:
        server.start()
    print(*ports, flush=True)
    sys.stdin.read()
    for server in kept:
        server.stop(0.1)


def serve_sleeping() -> None:
    """Serve bare streams, a socket and workers of an env that sleeps; print the ports."""
    bare, port = serve_bare(Sleeping(1, SLEEP))
    streams = serve_bytes(Sleeping(1, SLEEP))
    ports = [port, serve_sockets(Sleeping(1, SLEEP)), streams.port]
    workers = [
        EnvWorker(Sleeping(1, SLEEP), "Sleeping", "127.0.0.1:0") for _ in range(int(sys.argv[2]))
    ]
    for server in (bare, streams, *workers):
        server.start()
    print(*ports, *(worker.port for worker in workers), flush=True)
    sys.stdin.read()
    for server in (bare, streams, *workers):
        server.stop(0.1)


def serve_workers() -> None:
    """Serve workers by numbers of envs, and print the ports, until the input ends."""
    sizes = map(int, sys.argv[2:])
    workers = [
        EnvWorker(make_vec_env(ENV_ID, n_envs=size), ENV_ID, "127.0.0.1:0") for size in sizes
    ]
    for worker in workers:
        worker.start()
    print(*(worker.port for worker in workers), flush=True)
    sys.stdin.read()
    for worker in workers:
        worker.stop(0.1)


def serve_links() -> None:
    """Serve proxies that delay each way, and print the ports, until the input ends.

    One thread reads and sends for all of them, because hand-overs would add to the delay.
    """
    delay, ports = float(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    Path("/proc/self/timerslack_ns").write_text("1", "ascii")  # else waits end up to 50 us late
    behind = {socket.create_server(("127.0.0.1", 0)): port for port in ports}
    print(*(listener.getsockname()[1] for listener in behind), flush=True)
    targets: dict[socket.socket, socket.socket] = {}
    held: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        wait = max(held[0][0] - time.perf_counter(), 0.0) if held else None
        watched: list[Any] = [sys.stdin, *behind, *targets]
        readable, _, _ = select.select(watched, [], [], wait)
        if sys.stdin in readable:
            return
        for source in readable:
            if source in behind:
                near = source.accept()[0]
                far = socket.create_connection(("127.0.0.1", behind[source]))
                targets |= {near: far, far: near}
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                continue
            data = source.recv(1 << 16)
            held.append((time.perf_counter() + delay, targets[source], data))
            if not data:
                del targets[source]
        while held and held[0][0] <= time.perf_counter():
            _, target, data = held.popleft()
            if data:
                target.sendall(data)
            else:
                target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    serving = {"all": serve, "busy": serve_busy, "sleeping": serve_sleeping,
               "workers": serve_workers, "links": serve_links}  # fmt: skip
    serving[sys.argv[1]]()
