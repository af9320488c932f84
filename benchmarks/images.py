"""PPO and DQN with a convolutional network on Atari's Pong: training with learning, against SB3.

python benchmarks/images.py [--algorithm dqn] [--rounds 5] [--threads 1]

Equal work in all contenders: 8 envs, frames stacked by four, the network of Mnih et al. 2015, Adam.
A turn of PPO is a rollout of 128 steps and 4 epochs of minibatches of 256 on a network that policy
and values share; one of DQN is 512 env steps and 128 gradient steps on 32 transitions each. rlox
steps ALE's vector env, Stable-Baselines3 its own wrappers. ``update`` is the part of a turn that
learns, drawing included; ``collecting`` is the rest. The emulator alone plays actions drawn
beforehand. The emulator and the network's passes alone, with parameters and frames already in the
precision, are a lower bound for any training in torch on as many threads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import ale_py  # noqa: F401  # gymnasium's ids
import numpy as np
import rlox
import stable_baselines3
import torch
from measure import machine, peak_mib, ratio_summary, summary, write
from rlox_simulators.atari import AtariVecEnv
from rlox_simulators.options import AtariOptions
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack
from torch import nn

GAME, N_ENVS = "ALE/Pong-v5", 8
STEPS = {"ppo": 1024, "dqn": 512}
"""Env steps of a turn."""
PPO: dict[str, Any] = {"n_steps": 128, "n_epochs": 4, "batch_size": 256, "learning_rate": 2.5e-4}
DQN: dict[str, Any] = {
    "batch_size": 32, "learning_rate": 1e-4, "buffer_size": 4096, "gradient_steps": 8,
    "learning_starts": 512,
}  # fmt: skip
EPSILON, EVERY = 0.05, 32
"""Probability of a uniform action, and env steps between DQN's gradient steps."""
EMULATOR, PASSES = "the emulator alone", "emulator and passes alone"
HALF_PASSES = f"{PASSES}, bfloat16"


@dataclass
class Training:
    """One contender: its turn, and the wall-clock and processor seconds of its updates."""

    train: Callable[[], Any]
    updates: list[tuple[float, float]] = field(default_factory=list)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, its time counted as the update's."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before = now()
            result = function(*args, **kwargs)
            self.updates.append(now() - before)
            return result

        return call

    def turn(self) -> dict[str, Any]:
        """Take a turn; return wall-clock and processor seconds of each part."""
        self.updates.clear()
        before = now()
        self.train()
        taken = now() - before
        update = np.sum(self.updates, axis=0) if self.updates else np.zeros(2)
        return {"end to end": taken, "update": update, "collecting": taken - update}


def now() -> Any:
    """Return wall-clock seconds, and processor seconds of this process's threads."""
    return np.array((time.perf_counter(), time.process_time()))


def ours(algorithm: str, threads: int, compute_dtype: str) -> Training:
    """Return a training of rlox."""
    common: dict[str, Any] = {
        "env": GAME, "env_backend": "ale", "n_envs": N_ENVS, "seed": 0, "clip_rewards": 1.0,
        "episodic_life": True, "torch_threads": threads, "emulator_threads": threads,
        "compute_dtype": compute_dtype,
    }  # fmt: skip
    if algorithm == "ppo":
        made: Any = rlox.make("ppo", **common, **PPO)
    else:
        # whole iterations are trained
        more: dict[str, Any] = {
            "train_freq": EVERY,
            "epsilon": EPSILON,
            "steps_per_iteration": STEPS["dqn"],
        }
        made = rlox.make("dqn", **{**common, **DQN, **more})
    training = Training(lambda: made.train(STEPS[algorithm]))
    learner, step = made.learner.learner, "update" if algorithm == "ppo" else "step"
    public = {name: getattr(learner, name) for name in dir(learner) if name[0] != "_"}
    public[step] = training.timed(public[step])
    made.learner = replace(made.learner, learner=SimpleNamespace(**public))
    if algorithm == "dqn":
        made.replay.draw = training.timed(made.replay.draw)
    return training


def theirs(algorithm: str, threads: int) -> Training:
    """Return a training of Stable-Baselines3."""
    plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # its wrappers repeat actions
    env = VecFrameStack(make_atari_env(GAME, N_ENVS, seed=0, env_kwargs=plain), n_stack=4)
    made: Any
    if algorithm == "ppo":
        made = stable_baselines3.PPO("CnnPolicy", env, seed=0, device="cpu", **PPO)
    else:
        constant: dict[str, Any] = {
            "exploration_initial_eps": EPSILON,
            "exploration_final_eps": EPSILON,
        }
        vector_steps = EVERY // N_ENVS
        made = stable_baselines3.DQN(
            "CnnPolicy", env, seed=0, device="cpu", train_freq=vector_steps, **constant, **DQN
        )

    torch.set_num_threads(threads)
    training = Training(lambda: made.learn(STEPS[algorithm], reset_num_timesteps=False))
    made.train = training.timed(made.train)
    return training


def emulator(algorithm: str, threads: int) -> Training:
    """Return a contender with the games and their preprocessing alone."""
    options = AtariOptions(emulator_threads=threads, episodic_life=True)
    envs: Any = AtariVecEnv(GAME, N_ENVS, options=options)
    envs.reset_all(seed=0)
    actions = np.random.default_rng(0).integers(0, 6, (STEPS[algorithm] // N_ENVS, N_ENVS))
    return Training(lambda: [envs.step_all(row) for row in actions])


def passes(algorithm: str, threads: int, compute_dtype: str) -> Training:
    """Return a contender with the games and the network's passes over random frames alone.

    PPO has a forward pass for each vector step, and forward and backward passes for each minibatch;
    DQN's learning has another forward pass, of the target network.
    """
    torch.set_num_threads(threads)
    dtype = getattr(torch, compute_dtype)
    network = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(True), nn.Conv2d(32, 64, 4, 2), nn.ReLU(True),
        nn.Conv2d(64, 64, 3), nn.ReLU(True), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(True),
        nn.Linear(512, 7),
    ).to(dtype).to(memory_format=torch.channels_last)  # fmt: skip

    def frames(n: int) -> torch.Tensor:
        return torch.rand(n, 4, 84, 84).to(dtype=dtype, memory_format=torch.channels_last)

    sizes = PPO if algorithm == "ppo" else DQN
    repeats = {
        "ppo": PPO["n_epochs"] * STEPS["ppo"] // PPO["batch_size"],
        "dqn": STEPS["dqn"] * DQN["gradient_steps"] // EVERY,
    }[algorithm]
    seen, batch = frames(N_ENVS), frames(sizes["batch_size"])

    def update() -> None:
        for _ in range(repeats):
            if algorithm == "dqn":
                with torch.no_grad():
                    network(batch)
            network(batch).sum().backward()
            network.zero_grad()

    games = emulator(algorithm, threads)

    def train() -> None:
        games.train()
        with torch.no_grad():
            for _ in range(STEPS[algorithm] // N_ENVS):
                network(seen)
        timed_update()

    training = Training(train)
    timed_update = training.timed(update)
    return training


CONTENDERS: dict[str, Callable[[str, int], Training]] = {
    "rlox": partial(ours, compute_dtype="float32"),
    "rlox bfloat16": partial(ours, compute_dtype="bfloat16"),
    "stable-baselines3": theirs,
    EMULATOR: emulator,
    PASSES: partial(passes, compute_dtype="float32"),
    HALF_PASSES: partial(passes, compute_dtype="bfloat16"),
}
FLOORS = {"rlox": PASSES, "rlox bfloat16": HALF_PASSES}
HERE: list[Training] = []
"""The contender of this process."""


def begin(name: str, algorithm: str, threads: int) -> None:
    """Make a contender in this process."""
    torch.set_num_threads(1)
    HERE.append(CONTENDERS[name](algorithm, threads))


def turn() -> dict[str, Any]:
    """Take a turn of this process's contender."""
    return HERE[0].turn()


def main() -> None:
    """Measure and write ``images[_dqn]_<threads>.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=list(STEPS), help="left out: both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    for algorithm in [asked.algorithm] if asked.algorithm else STEPS:
        name = f"images{'' if algorithm == 'ppo' else '_dqn'}_{asked.threads}"
        print(write(name, measure(algorithm, asked.threads, asked.rounds)))


def measure(algorithm: str, threads: int, rounds: int) -> dict[str, Any]:
    """Return seconds of each part of a turn, and Stable-Baselines3's over them."""
    spawn = multiprocessing.get_context("spawn")
    turns: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                ProcessPoolExecutor(1, spawn, begin, (name, algorithm, threads))
            )
            for name in CONTENDERS
        }
        for process in processes.values():
            process.submit(turn).result()
        load = [os.getloadavg()]
        for _ in range(rounds):
            for name, process in processes.items():
                turns[name].append(process.submit(turn).result())
        peaks = {name: process.submit(peak_mib).result() for name, process in processes.items()}
    load.append(os.getloadavg())
    result: dict[str, Any] = {"machine": machine(["torch", "stable-baselines3", "ale-py"])}
    result |= {"threads": threads, "rounds": rounds, "load_average": load}
    result |= {"env_steps": STEPS[algorithm], "peak_mib": peaks}
    for part in ("end to end", "update", "collecting"):
        result[part] = {}
        for name in CONTENDERS:
            if name == EMULATOR and part != "collecting":
                continue
            row = result[part][name] = {}
            for i, clock in enumerate(("", "_by_processor_time")):
                seconds = [turn[part][i] for turn in turns[name]]
                base = [turn[part][i] for turn in turns["stable-baselines3"]]
                row[f"seconds{clock}"] = summary(seconds)
                row[f"over_stable_baselines3{clock}"] = ratio_summary(base, seconds)
                if name in FLOORS:
                    floor = [turn[part][i] for turn in turns[FLOORS[name]]]
                    row[f"over_floor{clock}"] = ratio_summary(seconds, floor)
            print(f"{part:12s} {name:20s}", *(f"{v['median']:.3f}" for v in row.values()))
    return result


if __name__ == "__main__":
    main()
