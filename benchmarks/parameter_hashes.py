"""Hashes of the parameters that short trainings of fixed seeds end with, as JSON.

Two versions of rlox that print the same hashes on one machine compute the same bits:
``python benchmarks/parameter_hashes.py > before.json``, change something, and compare.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from typing import Any

import numpy as np
import rlox

PPO = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
REPLAY = {"learning_starts": 100, "batch_size": 32}
RUNS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", 1024, PPO),
    "ppo-continuous": ("ppo", "Pendulum-v1", 1024, {**PPO, "ent_coef": 0.01, "vf_clip_eps": 0.2}),
    "ppo-lstm": ("ppo", "CartPole-v1", 512, {**PPO, "recurrent": "lstm", "batch_size": 64}),
    "ppo-normalized": (
        "ppo", "Pendulum-v1", 512,
        {**PPO, "normalize_observations": True, "normalize_rewards": True, "target_kl": 0.01},
    ),
    "a2c": ("a2c", "CartPole-v1", 1024, {}),
    "sac": ("sac", "Pendulum-v1", 300, REPLAY),
    "sac-prioritized": ("sac", "Pendulum-v1", 300, {**REPLAY, "buffer": "prioritized"}),
    "td3": ("td3", "Pendulum-v1", 300, REPLAY),
    "crossq": ("crossq", "Pendulum-v1", 300, {**REPLAY, "critic_hidden": 16}),
    "ddpg": ("ddpg", "Pendulum-v1", 300, REPLAY),
    "discrete-sac": ("discrete_sac", "CartPole-v1", 300, REPLAY),
    "dqn": ("dqn", "CartPole-v1", 600, {**REPLAY, "train_freq": 4}),
    "dqn-rainbow": (
        "dqn", "CartPole-v1", 400,
        {**REPLAY, "train_freq": 4, "buffer": "prioritized", "n_step": 3, "noisy": True,
         "distributional": "c51", "dueling": True},
    ),
}  # fmt: skip
OFFLINE = ("bc", "td3_bc", "awac", "iql", "cql")


def dataset() -> Any:
    """Return transitions of a made-up continuous task."""
    from rlox_offline.datasets import Dataset

    rng = np.random.default_rng(0)
    n = 2_000
    obs = rng.normal(size=(n + 1, 3)).astype(np.float32)
    ends = np.arange(1, n + 1) % 100 == 0
    columns = {
        "obs": obs[:-1], "next_obs": obs[1:], "rewards": rng.normal(size=n).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, 1)).astype(np.float32),
        "terminated": np.zeros(n, bool), "truncated": ends,
    }  # fmt: skip
    return Dataset(columns)


def digest(state: Any) -> str:
    """Return the SHA-256 of all arrays of a state."""
    found = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}.{key}")
        elif isinstance(value, np.ndarray):
            found.update(np.ascontiguousarray(value).tobytes())

    add(state, "")
    return found.hexdigest()[:16]


def parameters(algorithm: Any) -> str:
    """Return the hash of the parameters of all that learns."""
    return digest(
        {name: opt.parameters.numpy() for name, opt in sorted(algorithm.optimizers.items())}
    )


def main() -> None:
    """Print the hashes by run and learner backend."""
    wanted = sys.argv[1:]
    make: Any = rlox.make  # of any name
    found: dict[str, str] = {}
    for name, (algorithm, env, steps, options) in RUNS.items():
        for backend in ("torch", "native"):
            if wanted and not any(name.startswith(word) for word in wanted):
                continue
            try:
                made = make(algorithm, env=env, seed=0, backend=backend, **options)
            except (rlox.errors.BackendError, rlox.errors.ConfigError) as error:
                found[f"{name} {backend}"] = type(error).__name__
                continue
            with made:
                made.train(steps)
                found[f"{name} {backend}"] = parameters(made)
    for name in OFFLINE:
        for backend in ("torch", "native"):
            if wanted and not any(name.startswith(word) for word in wanted):
                continue
            options = {} if name in ("bc", "awac") else {"backend": backend}
            try:
                made = make(name, dataset=dataset(), seed=0, batch_size=32, **options)
            except (rlox.errors.BackendError, rlox.errors.ConfigError) as error:
                found[f"{name} {backend}"] = type(error).__name__
                continue
            with made:
                made.train(60)
                found[f"{name} {backend}"] = parameters(made)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import rlox.errors

    main()
