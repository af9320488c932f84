"""PPO with a convolutional network on Atari's Pong: training with learning, against SB3.

python benchmarks/images.py [--rounds 5] [--threads 1]

Equal work in all contenders: 8 envs, rollouts of 128 steps, 4 epochs of minibatches of 256 frames
stacked by four, the network of Mnih et al. 2015 shared by policy and values, Adam. A turn is one
rollout and its update. rlox steps ALE's vector env; Stable-Baselines3 the wrappers that it brings.
``update`` is the part of it that learns; ``collecting`` is the rest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import rlox
import torch
from measure import interleave, machine, ratio_summary, summary, write
from rlox.nn import torch_threads
from stable_baselines3 import PPO as SB3PPO  # beside rlox's
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

GAME = "ALE/Pong-v5"
N_ENVS, N_STEPS = 8, 128
EQUAL = {"n_steps": N_STEPS, "n_epochs": 4, "batch_size": 256, "learning_rate": 2.5e-4}
STEPS = N_ENVS * N_STEPS


@dataclass
class Training:
    """One contender: a call that trains for a rollout, and the seconds of each update in it."""

    train: Callable[[], Any]
    updates: list[float]


def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return the function, which then appends the seconds of each call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        result = function(*args, **kwargs)
        seconds.append(time.perf_counter() - started)
        return result

    return call


def ours(threads: int, compute_dtype: str) -> Training:
    """Return PPO of rlox."""
    ppo = rlox.make(
        "ppo", env=GAME, env_backend="ale", n_envs=N_ENVS, seed=0, clip_rewards=1.0,
        episodic_life=True, torch_threads=threads, emulator_threads=threads,
        compute_dtype=compute_dtype, **EQUAL,
    )  # fmt: skip
    updates: list[float] = []
    learner = ppo.learner.learner
    own = SimpleNamespace(
        **{name: getattr(learner, name) for name in dir(learner) if name[0] != "_"}
    )
    own.update = timed(learner.update, updates)
    ppo.learner = replace(ppo.learner, learner=own)
    return Training(lambda: ppo.train(STEPS), updates)


def theirs(threads: int) -> Training:
    """Return PPO of Stable-Baselines3."""
    plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # its wrappers repeat actions
    env = VecFrameStack(make_atari_env(GAME, N_ENVS, seed=0, env_kwargs=plain), n_stack=4)
    with torch_threads(threads):
        ppo = SB3PPO("CnnPolicy", env, seed=0, device="cpu", **EQUAL)

    def train() -> None:
        with torch_threads(threads):
            ppo.learn(STEPS, reset_num_timesteps=False)

    updates: list[float] = []
    ppo.train = timed(ppo.train, updates)
    return Training(train, updates)


def main() -> None:
    """Measure and write ``images_<threads>.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    contenders = {
        "rlox": ours(arguments.threads, "float32"),
        "rlox bfloat16": ours(arguments.threads, "bfloat16"),
        "stable-baselines3": theirs(arguments.threads),
    }
    for each in contenders.values():
        each.train()
        each.updates.clear()
    seconds = interleave({name: each.train for name, each in contenders.items()}, arguments.rounds)
    result: dict[str, Any] = {"machine": machine(["torch", "stable-baselines3", "ale-py"])}
    result["threads"] = arguments.threads
    updates = {name: each.updates for name, each in contenders.items()}
    rest = {name: np.subtract(seconds[name], updates[name]).tolist() for name in contenders}
    for part, measured in (("end to end", seconds), ("update", updates), ("collecting", rest)):
        base = measured["stable-baselines3"]
        result[part] = {
            name: {
                "seconds": summary(measured[name]),
                "over_stable_baselines3": ratio_summary(base, measured[name]),
            }
            for name in contenders
        }
        print(part, {name: row["over_stable_baselines3"] for name, row in result[part].items()})
    write(f"images_{arguments.threads}", result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
