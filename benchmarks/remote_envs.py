"""Steps of env workers over gRPC: against calls here, bare grpcio, more workers and slow links.

python benchmarks/remote_envs.py [--rounds 9]

The servers are a process of their own, and so is each worker whose env sleeps for 10 ms or
computes. *Bare grpcio*, a *whole step by hand* and *sockets* are those of ``remote_bare.py``: the
limits without protobuf's messages, and without gRPC. A slow link is a proxy in a process of its own
that delays every piece of data each way; its goal is the number of envs by the round trip. Other
programs use the processors too, so steps have both sides' processor time next to wall-clock time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rlox
from measure import interleave_calls, machine, on_one_core, ratio_summary, summary, write
from remote_bare import bare_client, bytes_client, socket_client, whole_client
from remote_servers import (
    ENV_ID,
    MANY,
    SIZES,
    SLEEP_OF_MANY,
    WORKERS,
    Sleeping,
)  # fmt: skip
from rlox.envs.make import make_vec_env
from rlox.networks.actor_critics import DiscretePolicy
from rlox.training.hooks import Hooks
from rlox_distributed.pool import RemoteEnvPool

CALLS, WARM_UP = 100, 50
STEP_ROUNDS = 3
"""Rounds of single steps for each round of slower calls."""
DELAYS = (0.0, 0.001, 0.005, 0.02)
BUSY_WORKERS = (1, 2)
"""Numbers of workers that compute at once."""
ACTORS = (1, 2, 4)
ACTING_DELAY, ACTING_SECONDS, ACTING_STEPS = 0.005, 0.01 / 64, 16
"""Seconds of delay each way, seconds of the policy per env, and steps of an unroll."""


def stepping(env: Any) -> Callable[[], Any]:
    """Return a call that steps a vector env."""
    actions = np.zeros(env.n_envs, np.int64)
    env.reset_all(0)
    return lambda: env.step_all(actions)


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/remote_envs.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with ExitStack() as stack:
        server, ports = start(stack, "all")
        # answers take another time on the same core than on another, and stay on either
        kept: list[Any] = []
        on_one_core(lambda: kept.append(steps(ports, options.rounds, server.pid)))
        result = {
            "steps": kept[0],
            "slow_envs": slow_envs(ports, options.rounds),
            "slow_links": slow_links(stack, ports, options.rounds),
            "workers": workers(stack, options.rounds),
            "busy_workers": busy_workers(stack, options.rounds),
            "parts_in_flight": parts_in_flight(stack, options.rounds),
        }
    where = machine(["rlox-distributed", "grpcio", "protobuf", "numpy"])
    print(write("remote_envs", {"rounds": options.rounds, "machine": where, **result}))


def start(stack: ExitStack, *what: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process that serves, to the end of the stack; return it and its ports."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("remote_servers.py")), *what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    stack.callback(server.communicate)
    assert server.stdout is not None
    return server, [int(text) for text in server.stdout.readline().split()]


def processor_seconds(pid: int) -> float:
    """Return a process's processor time."""
    return time.clock_gettime(~pid << 3 | 2)  # Linux's clock of another process


def processor_time(call: Callable[[], Any], calls: int, servers: Sequence[int]) -> float:
    """Return the processor microseconds of a call in this process and the servers."""
    pids = (os.getpid(), *servers)
    before = sum(map(processor_seconds, pids))
    for _ in range(calls):
        call()
    return (sum(map(processor_seconds, pids)) - before) / calls * 1e6


def steps(ports: list[int], rounds: int, server: int) -> list[dict[str, Any]]:
    """Return microseconds of a batched step: wall-clock, and both sides' processor time."""
    rows = []
    for i, size in enumerate(SIZES):
        bare, worker = ports[2 * i : 2 * i + 2]
        streams, sockets = ports[2 * (len(SIZES) + i) + 1 :][:2]
        pool = RemoteEnvPool([f"127.0.0.1:{worker}"])
        contenders = {
            "in process": stepping(make_vec_env(ENV_ID, n_envs=size)),
            "bare grpcio": bare_client([bare], size),
            "whole step by hand": whole_client(bare, size),
            "bytes in Rust": bytes_client([streams], size),
            "sockets": socket_client([sockets], size),
            "worker": stepping(pool),
        }
        interleave_calls(contenders, 1, WARM_UP)
        processor: dict[str, list[float]] = {name: [] for name in contenders}
        wall: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(STEP_ROUNDS * rounds):
            for name, call in contenders.items():
                processor[name].append(processor_time(call, CALLS, [server]))
            for name, seconds in interleave_calls(contenders, 1, CALLS).items():
                wall[name].append(float(np.median(seconds)) * 1e6)
        for name, medians in wall.items():
            took, used = summary(medians), summary(processor[name])
            times = ratio_summary(medians, wall["bare grpcio"])
            rows.append({"envs": size, "contender": name, "microseconds": took,
                         "processor_microseconds": used, "times_bare_grpcio": times})  # fmt: skip
            print(f"{size:5d} envs  {name:18s} {took['median']:6.0f} us, {used['median']:6.0f} us "
                  f"of processors, {times['median']:.2f} times bare grpcio")  # fmt: skip
        pool.close()
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


def slow_links(stack: ExitStack, ports: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return milliseconds of a batched step through a proxy that delays each way."""
    rows = []
    for delay in DELAYS:
        _, (bare, worker) = start(stack, "links", str(delay), *map(str, ports[:2]))
        pool = RemoteEnvPool([f"127.0.0.1:{worker}"])
        contenders = {"bare grpcio": bare_client([bare], SIZES[0]), "worker": stepping(pool)}
        interleave_calls(contenders, 1, WARM_UP)
        for name, seconds in interleave_calls(contenders, rounds, 20).items():
            milliseconds = summary(np.median(seconds, axis=1) * 1e3)
            rows.append({"delay_milliseconds": delay * 1e3, "envs": SIZES[0], "contender": name,
                         "milliseconds": milliseconds})  # fmt: skip
            share = 2e3 * delay / milliseconds["median"]
            print(f"{delay * 1e3:5.0f} ms each way  {name:12s} {milliseconds['median']:7.2f} ms, "
                  f"{share:4.0%} of envs by round trip")  # fmt: skip
        pool.close()
    return rows


def workers(stack: ExitStack, rounds: int) -> list[dict[str, Any]]:
    """Return env steps per second, by number of workers whose env sleeps for 10 ms."""
    started = [
        start(stack, "sleeping", str(sum(count > i for count in WORKERS)))
        for i in range(max(WORKERS))
    ]
    ports = [each for _, each in started]
    calls: dict[tuple[str, int], Callable[[], Any]] = {}
    for i, count in enumerate(sorted(WORKERS, reverse=True)):
        served = list(zip(*(each[: 4 + i] for each in ports[:count]), strict=True))
        pool = RemoteEnvPool([f"127.0.0.1:{port}" for port in served[-1]])
        stack.callback(pool.close)
        calls["worker", count] = stepping(pool)
        if count in (min(WORKERS), max(WORKERS)):
            calls["bare grpcio", count] = bare_client(served[0], 1)
            calls["sockets", count] = socket_client(served[1], 1)
            calls["bytes in Rust", count] = bytes_client(served[2], 1)
    pids = [server.pid for server, _ in started]
    return speeds(dict(reversed(calls.items())), rounds, pids)


def busy_workers(stack: ExitStack, rounds: int) -> list[dict[str, Any]]:
    """Return env steps per second, by number of workers whose env computes for 10 ms."""
    calls, pids = {}, []
    for count in BUSY_WORKERS:
        started = [start(stack, "busy", str(core)) for core in range(count)]
        pids += [server.pid for server, _ in started]
        pool = RemoteEnvPool([f"127.0.0.1:{ports[0]}" for _, ports in started])
        stack.callback(pool.close)
        calls["worker", count] = stepping(pool)
    return speeds(calls, rounds, pids)


class Waiting(DiscretePolicy):
    """A policy on an accelerator that actors use one at a time, for a while per env."""

    accelerator = threading.Lock()

    def encode(self, obs: Any) -> Any:
        """Return the observations' features after the accelerator's time."""
        with self.accelerator:
            time.sleep(len(obs) * ACTING_SECONDS)
        return super().encode(obs)


def parts_in_flight(stack: ExitStack, rounds: int) -> list[dict[str, Any]]:
    """Return env steps per second of IMPALA's actors that share workers behind slow links.

    Acting for all envs takes as long as the round trip; there is no learning.
    """
    calls = {}
    sizes = [str(SIZES[0] // ACTORS[-1])] * ACTORS[-1]
    for actors in ACTORS:
        _, ports = start(stack, "workers", *sizes)
        _, ports = start(stack, "links", str(ACTING_DELAY), *map(str, ports))
        addresses = [f"127.0.0.1:{port}" for port in ports]
        impala: Any = rlox.make(
            "impala", ENV_ID, seed=0, n_actors=actors, n_envs=SIZES[0] // actors, order="fixed",
            n_steps=ACTING_STEPS, worker_addresses=addresses, policy=Waiting(4, 2),
        )  # fmt: skip
        stack.callback(impala.close)
        gather, weights = impala.actors.gather, impala.optimizer.parameters
        calls[str(actors)] = partial(gather, weights, Hooks(impala))
    interleave_calls(calls, 1, 2)
    rows = []
    for name, seconds in interleave_calls(calls, rounds, 5).items():
        speed = summary(SIZES[0] * ACTING_STEPS / np.median(seconds, axis=1))
        share = speed["median"] * 2 * ACTING_DELAY / SIZES[0]
        setting = {"envs": SIZES[0], "delay_milliseconds": ACTING_DELAY * 1e3,
                   "acting_milliseconds": SIZES[0] * ACTING_SECONDS * 1e3}  # fmt: skip
        rows.append({"actors": int(name), **setting, "env_steps_per_second": speed})
        print(f"{name:>5s} actors {speed['median']:9.1f} env steps/s ({speed['min']:.1f} to "
              f"{speed['max']:.1f}), {share:4.0%} of envs by round trip")  # fmt: skip
    return rows


def speeds(
    calls: Mapping[tuple[str, int], Callable[[], Any]], rounds: int, servers: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the env steps per second of contenders by number of envs, and ratios to one's.

    With the processor time of a step on both sides, on all cores together.
    """
    interleave_calls(calls, 1, 2)
    found = {
        key: key[1] / np.median(seconds, axis=1)
        for key, seconds in interleave_calls(calls, rounds, 10).items()
    }
    rows = []
    for (name, count), medians in found.items():
        speed, times = summary(medians), ratio_summary(medians, found[name, 1])
        used = processor_time(calls[name, count], CALLS, servers) / 1e3
        rows.append({"workers": count, "contender": name, "env_steps_per_second": speed,
                     "times_one_worker": times, "processor_milliseconds": used})  # fmt: skip
        print(f"{count:5d} {name:12s} {speed['median']:9.1f} env steps/s, {times['median']:.1f} "
              f"times one, {used:.1f} ms of processors for each step of all")  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
