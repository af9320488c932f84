"""Collectors made, used, stopped and dropped at random: no growth, no hangs."""

import gc
import json
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rlox_candle import CandleCollector
from rlox_native import native_env_ids

SECONDS = float(os.environ.get("RLOX_SOAK_SECONDS", "600"))

ENVS = native_env_ids()

AT_ONCE = 4
"""Collectors that live side by side."""


def make(rng):
    """Return a collector of a random env, size and capacity."""
    return CandleCollector(
        rng.choice(ENVS),
        rng.choice([1, 3, 16]),
        n_steps=rng.choice([1, 8, 64]),
        hidden=rng.choice([4, 64]),
        seed=rng.getrandbits(32),
        capacity=rng.choice([0, 1, 2]),
    )


def use(collector, rng):
    """Receive, sync, save and restore in random order."""
    for _ in range(rng.randrange(6)):
        action = rng.randrange(4)
        if action == 0:
            batch = collector.recv()
            assert np.isfinite(batch["advantages"]).all()
        elif action == 1:
            collector.sync_weights(collector.get_weights() * np.float32(0.99))
        elif action == 2:
            collector.set_state(collector.state())
        else:
            time.sleep(rng.random() * 0.002)


def stop_under_a_wait(collector):
    """Stop while another thread receives, which must get a batch or the error."""
    caught = []

    def receive():
        try:
            collector.recv()
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=receive)
    thread.start()
    collector.stop()
    thread.join(120)
    assert not thread.is_alive()
    assert all("stopped" in text for text in caught)


def turn(alive, rng):
    """Use all collectors, end one of them in one of three ways, and return how many were made."""
    made = AT_ONCE - len(alive)
    alive += [make(rng) for _ in range(made)]
    for collector in alive:
        use(collector, rng)
    victim = alive.pop(rng.randrange(len(alive)))
    if rng.random() < 0.3:
        stop_under_a_wait(victim)
    elif rng.random() < 0.5:
        victim.stop()
    return made


def resident():
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def threads():
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


@pytest.mark.soak
def test_memory_and_threads_stay_as_they_are():
    """The last quarter of the time uses no more of either than the second."""
    rng, alive, made = random.Random(0), list[CandleCollector](), 0
    started, samples = time.monotonic(), list[tuple[float, float, int]]()
    before = threads()
    while (elapsed := time.monotonic() - started) < SECONDS:
        made += turn(alive, rng)
        if elapsed > len(samples) * SECONDS / 200:
            gc.collect()
            samples.append((round(elapsed, 1), round(resident(), 1), threads()))
    alive.clear()
    gc.collect()
    deadline = time.monotonic() + 120
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == before
    second, last = (
        [sample for sample in samples if begin <= sample[0] / SECONDS <= begin + 0.25]
        for begin in (0.25, 0.75)
    )
    figures = {
        "seconds": SECONDS,
        "collectors": made,
        "resident_mb": [max(s[1] for s in part) for part in (second, last)],
        "threads": [max(s[2] for s in part) for part in (second, last)],
    }
    print(json.dumps(figures))
    assert max(s[1] for s in last) <= max(s[1] for s in second) + 2
    # each collector has its own thread and its pool's, which ends later by itself
    assert max(s[2] for s in samples) <= before + 4 * AT_ONCE
