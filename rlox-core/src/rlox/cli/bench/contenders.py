"""Libraries compared by ``rlox bench``, each in its own process.

The process reads one line of JSON, ``{"contender", "algorithm", "env", "config", "env_steps"}``,
builds the training and answers ``{"env_steps": 0, "seconds": 0}`` when it is ready. For each
further line it trains for ``env_steps`` env steps and answers how many it did in how many seconds.
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

__all__ = ["CONTENDERS", "Contender", "Training", "main"]

Config = Mapping[str, Any]

CARRIED_OVER = {
    "n_envs", "n_steps", "n_epochs", "batch_size", "learning_rate", "gamma", "gae_lambda",
    "clip_eps", "vf_clip_eps", "target_kl", "vf_coef", "ent_coef", "max_grad_norm",
    "normalize_advantages", "hidden", "seed", "device", "torch_threads",
}  # fmt: skip
"""Options that :func:`sb3_model` sets there."""

RLOXS_OWN = {"backend", "env_backend"}
"""Options that say who does the work, and nothing of what is done."""

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


def sb3_model(library: str, algorithm: str, env: str, config: Config) -> Any:
    """Return a model with the networks, envs, batches and options of an rlox config.

    Raises:
        ValueError: an option that is not carried over has another value than its default, which
            is the value that the library has too.
    """
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    from rlox import registry

    defaults = registry.config_class(algorithm)().to_dict()
    for name, value in config.items():
        if name not in CARRIED_OVER | RLOXS_OWN and value != defaults[name]:
            raise ValueError(
                f"{name}={value!r} has no counterpart in {library}; leave it out, or pass "
                "--peers without it"
            )
    if config["torch_threads"]:
        torch.set_num_threads(config["torch_threads"])
    names = ("n_steps", "gamma", "gae_lambda", "vf_coef", "max_grad_norm", "seed", "device")
    options = {name: config[name] for name in names}
    options["learning_rate"] = _constant(config["learning_rate"])
    options["ent_coef"] = _constant(config["ent_coef"])
    options["normalize_advantage"] = config["normalize_advantages"]
    options["policy_kwargs"] = {"net_arch": [config["hidden"], config["hidden"]]}
    if algorithm == "ppo":
        options["clip_range"] = _constant(config["clip_eps"])
        options["clip_range_vf"] = config["vf_clip_eps"]
        options |= {name: config[name] for name in ("batch_size", "n_epochs", "target_kl")}
    model = getattr(importlib.import_module(library), algorithm.upper())
    envs = make_vec_env(env, config["n_envs"], seed=config["seed"])
    return model("MlpPolicy", envs, **options)


def _constant(value: Any) -> float:
    """Return a schedule's first value, which costs what any other costs."""
    if isinstance(value, Mapping):
        return float(value["start"] if "start" in value else value["points"][0][1])
    return float(value)


CONTENDERS = {
    "rlox": Contender("rlox", rlox_training),
    "rlox-gymnasium": Contender("rlox, gymnasium's envs", rlox_gymnasium_training),
    "sb3": Contender(
        "Stable-Baselines3",
        partial(sb3_training, "stable_baselines3"),
        module="stable_baselines3",
        distribution="stable-baselines3",
        algorithms=("a2c", "ppo"),
    ),
    "sbx": Contender(
        "SBX",
        partial(sb3_training, "sbx"),
        module="sbx",
        distribution="sbx-rl",
        algorithms=("ppo",),
    ),
}


def main() -> None:
    """Serve the parent process."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
    task = json.loads(sys.stdin.readline())
    build = CONTENDERS[task["contender"]].build
    train = build(task["algorithm"], task["env"], task["config"])
    print(json.dumps({"env_steps": 0, "seconds": 0.0}), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        env_steps = train(task["env_steps"])
        seconds = time.perf_counter() - started
        print(json.dumps({"env_steps": env_steps, "seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
