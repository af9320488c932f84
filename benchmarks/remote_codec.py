"""The cost of an env worker's batched step without a network.

python benchmarks/remote_codec.py [--rounds 9]

Learner and worker are in this process, and a call hands each request over as bytes: no stream, no
thread and no switch between processes. The time beyond the envs' own is encoding, checking and
decoding on both sides. *Bare grpcio* and *worker* are as in ``remote_envs.py``, with their servers
in a process of its own.

Each side waits while the other works, and then finds caches that others have filled. *After rests*
are the calls without a network again, each after a sleep as long as such a wait.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from measure import interleave_calls, machine, summary, write
from remote_bare import bare_client
from remote_envs import start, stepping
from remote_servers import ENV_ID, SIZES
from rlox.envs.make import make_vec_env
from rlox_distributed.pool import RemoteEnvPool
from rlox_distributed.worker import EnvWorker

CALLS, WARM_UP = 500, 50
REST = 3e-4
"""Seconds between two calls."""


class Loop:
    """Replaces a stream: the worker answers in the call.

    Args:
        worker: one with which a learner has begun a session.
    """

    def __init__(self, worker: EnvWorker) -> None:
        self._worker, self._data = worker, b""

    def send(self, data: bytes) -> None:
        """Keep a request."""
        self._data = data

    def receive(self, seconds: float) -> bytes:
        """Return its answer."""
        stream: Any = None  # unused unless the request is refused
        return self._worker._answer(self._data, self._worker._holder, stream)


def after_rests(call: Callable[[], Any], rounds: int) -> list[float]:
    """Return the median seconds of calls with rests between, by round."""
    medians = []
    for _ in range(rounds):
        seconds = []
        for _ in range(CALLS):
            time.sleep(REST)
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
        medians.append(float(np.median(seconds)))
    return medians


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/remote_codec.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    rows = []
    with ExitStack() as stack:
        _, ports = start(stack, "all")
        for i, size in enumerate(SIZES):
            worker = EnvWorker(make_vec_env(ENV_ID, n_envs=size), ENV_ID, "127.0.0.1:0")
            worker.start()
            stack.callback(worker.stop, 0.1)
            networked = RemoteEnvPool([f"127.0.0.1:{ports[2 * i + 1]}"])
            pool = RemoteEnvPool([f"127.0.0.1:{worker.port}"])
            contenders = {
                "in process": stepping(make_vec_env(ENV_ID, n_envs=size)),
                "worker without a network": stepping(pool),
                "bare grpcio": bare_client([ports[2 * i]], size),
                "worker": stepping(networked),
            }
            stream, pool._links[0]._call = pool._links[0]._call, Loop(worker)
            interleave_calls(contenders, 1, WARM_UP)
            found = {
                name: np.median(seconds, axis=1)
                for name, seconds in interleave_calls(contenders, rounds, CALLS).items()
            }
            for name in ("in process", "worker without a network"):
                found[f"{name}, after rests"] = np.array(after_rests(contenders[name], rounds))
            for name, seconds in found.items():
                microseconds = summary(seconds * 1e6)
                rows.append({"envs": size, "contender": name, "microseconds": microseconds})
                print(f"{size:5d} envs  {name:37s} {microseconds['median']:9.1f} us "
                      f"({microseconds['min']:.1f} to {microseconds['max']:.1f})")  # fmt: skip
            pool._links[0]._call = stream
            pool.close()
            networked.close()
    where = machine(["rlox-distributed", "grpcio", "protobuf", "numpy"])
    print(write("remote_codec", {"rounds": rounds, "machine": where, "steps": rows}))


if __name__ == "__main__":
    main()
