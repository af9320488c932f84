"""Several threads of the Rust kernels over one, alone and beside another busy process.

python benchmarks/threads.py [--rounds 31] [--threads 2] [--busy 0]

``--busy`` is the number of other processes that compute meanwhile; the load average before and
after is part of the result, because the machine may have other work too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import rlox_native
from measure import interleave, machine, ratio_summary, summary, write

ENVS = (("Pendulum-v1", 4096), ("Acrobot-v1", 4096))
GAE_SIZE = (128, 4096)
CALLS = 20


def env_work(env_id: str, n_envs: int) -> Callable[[], Any]:
    """Return a function that steps envs a few times."""
    envs = rlox_native.VecEnv(n_envs, seed=0, env_id=env_id)
    envs.reset_all()
    rng = np.random.default_rng(0)
    if env_id == "Pendulum-v1":
        actions: Any = rng.uniform(-2, 2, (n_envs, 1)).astype(np.float32)
    else:
        actions = rng.integers(0, 3, n_envs)

    def work() -> None:
        for _ in range(CALLS):
            envs.step_all(actions)

    return work


def gae_work(layout: str) -> Callable[[], Any]:
    """Return a function that estimates the advantages of a rollout a few times."""
    rng = np.random.default_rng(0)
    shape = GAE_SIZE if layout == "time-major" else GAE_SIZE[::-1]
    rewards, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    ends, last = rng.random(shape) < 0.01, np.zeros(GAE_SIZE[1], np.float32)
    if layout == "time-major":
        arrays = (rewards, values, ends, np.zeros(shape, bool), np.zeros_like(rewards), last)
        out = (np.empty_like(rewards), np.empty_like(rewards))
        call = partial(rlox_native.compute_gae_time_major, *arrays, 0.99, 0.95, out=out)
    else:
        flat = [array.ravel() for array in (rewards, values, ends)]
        out = (np.empty_like(flat[0]), np.empty_like(flat[0]))
        call = partial(
            rlox_native.compute_gae_batched_f32, *flat, last, GAE_SIZE[0], 0.99, 0.95, out=out
        )

    def work() -> None:
        for _ in range(CALLS):
            call()

    return work


def on_threads(work: Callable[[], Any], threads: int) -> None:
    """Do the work with so many threads."""
    rlox_native.set_num_threads(threads)
    work()


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/threads[_busy].json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0)
    options = parser.parse_args()
    where, load = machine(["rlox-native", "numpy"]), [os.getloadavg()]
    works = {f"VecEnv {env_id}, {n} envs": env_work(env_id, n) for env_id, n in ENVS}
    size = f"{GAE_SIZE[1]} envs x {GAE_SIZE[0]} steps"
    works |= {f"GAE {layout}, {size}": gae_work(layout) for layout in ("time-major", "env-major")}
    rows = []
    with ExitStack() as stack:
        for _ in range(options.busy):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        for name, work in works.items():
            contenders = {n: partial(on_threads, work, n) for n in (1, options.threads)}
            interleave(contenders, 2)
            seconds = interleave(contenders, options.rounds)
            us = {n: summary([s / CALLS * 1e6 for s in seconds[n]]) for n in contenders}
            speedup = ratio_summary(seconds[1], seconds[options.threads])
            rows.append({"work": name, "us_per_call": us, "speedup": speedup})
            print(
                f"{name:40s} {us[1]['median']:9.1f} us, {us[options.threads]['median']:9.1f} us",
                speedup,
            )
    load.append(os.getloadavg())
    result = {"rounds": options.rounds, "threads": options.threads, "busy": options.busy}
    result |= {"machine": where, "load_average": load, "rows": rows}
    print(write("threads_busy" if options.busy else "threads", result))


if __name__ == "__main__":
    main()
