"""Libraries compared by ``rlox bench``, each in its own process.

The process reads one line of JSON, ``{"contender", "algorithm", "env", "config", "env_steps"}``,
builds the training and answers ``{}`` when it is ready. For each further line it trains for
``env_steps`` env steps and answers ``{"env_steps", "seconds", "processor"}``: how many it did in
how many seconds, and in how many of the processor, all threads of the process together.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlox.cli.bench.stable_baselines3 import ALGORITHMS, sb3_model

__all__ = ["CONTENDERS", "Contender", "Training", "main"]

Config = Mapping[str, Any]

Training = Callable[[int], int]
"""Trains for a number of env steps, rounded up to whole iterations, and returns how many it did."""


@dataclass(frozen=True)
class Contender:
    """A library that trains the same algorithm with the same options."""

    title: str
    build: Callable[[str, str, Config], Training]
    """From algorithm, env id and rlox config to a training."""
    module: str | None = None
    """The module to import; ``None`` is rlox itself."""
    distribution: str | None = None
    """What ``pip install`` brings it."""
    algorithms: tuple[str, ...] = ()
    """What it can train; empty: whatever is registered."""
    is_limit: bool = False
    """Whether it learns nothing: it does a part of a training that no library can leave out."""


def rlox_training(algorithm: str, env: str, config: Config) -> Training:
    """Return a training with rlox."""
    from rlox import api

    learner = api.make(algorithm, env, config=config)

    def train(env_steps: int) -> int:
        before = learner.clock.env_steps
        learner.train(env_steps)
        return learner.clock.env_steps - before

    return train


def rlox_gymnasium_training(algorithm: str, env: str, config: Config) -> Training:
    """Return a training with rlox on the envs that the others step."""
    return rlox_training(algorithm, env, {**config, "env_backend": "gymnasium"})


def sb3_training(library: str, algorithm: str, env: str, config: Config) -> Training:
    """Return a training with Stable-Baselines3, or with SBX, which has its interface."""
    model = sb3_model(library, algorithm, env, config)

    def train(env_steps: int) -> int:
        before = model.num_timesteps
        model.learn(env_steps, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return train


def limit(name: str, algorithm: str, env: str, config: Config) -> Training:
    """Return a function of :mod:`rlox.cli.bench.limits`, which needs torch, for a training."""
    limits = importlib.import_module("rlox.cli.bench.limits")
    found: Training = getattr(limits, name)(algorithm, env, config)
    return found


CONTENDERS = {
    "rlox": Contender("rlox", rlox_training),
    "rlox-gymnasium": Contender("rlox, gymnasium's envs", rlox_gymnasium_training),
    "sb3": Contender(
        "Stable-Baselines3",
        partial(sb3_training, "stable_baselines3"),
        module="stable_baselines3",
        distribution="stable-baselines3",
        algorithms=tuple(ALGORITHMS),
    ),
    "sbx": Contender(
        "SBX",
        partial(sb3_training, "sbx"),
        module="sbx",
        distribution="sbx-rl",
        algorithms=tuple(name for name in ALGORITHMS if name != "a2c"),
    ),
    "env": Contender("env steps alone", partial(limit, "env_alone"), is_limit=True),
    "products": Contender(
        "env steps and products in torch", partial(limit, "env_and_products"), is_limit=True
    ),
}


def main() -> None:
    """Serve the parent process."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    task = json.loads(sys.stdin.readline())
    build = CONTENDERS[task["contender"]].build
    train = build(task["algorithm"], task["env"], task["config"])
    print("{}", file=answers, flush=True)
    for _ in sys.stdin:
        started, busy = time.perf_counter(), time.process_time()
        env_steps = train(task["env_steps"])
        answer = {
            "env_steps": env_steps,
            "seconds": time.perf_counter() - started,
            "processor": time.process_time() - busy,
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
