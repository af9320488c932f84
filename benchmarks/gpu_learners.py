"""Trainings with the learner on a GPU: rlox in torch and compiled, and Stable-Baselines3.

    python benchmarks/gpu_learners.py [--cases sac td3 dqn ppo images dreamer] [--rounds 7]
        [--device cuda]

Each contender has a process of its own, where it trains as a user would and is idle during others'
turns; clocks are read after waiting for the GPU. ``rlox, compiled`` has the backend
``torch-compile``, which replays CUDA graphs. Envs are on the CPU: rlox steps its own Pendulum and
CartPole and ALE's vector env, Stable-Baselines3 gymnasium's. One thread each.

    sac, td3, dqn   an env step and a gradient step on 256 transitions, layers of 256 units
    ppo             8 envs, rollouts of 128 steps, 4 epochs of minibatches of 256, layers of 256
    images          the same on Pong with four frames and the network of Mnih et al. 2015
    dreamer         gradient steps of DreamerV3's size 12m on 16 sequences of 64 images
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from clocks import gpu_of
from dreamer_programs import RLOX
from dreamer_sizes import TWELVE_M
from measure import Side, kept, machine, ratio_summary, run_in_turns, summary, write

SB3 = "stable-baselines3"
BACKENDS = {"rlox": "torch", "rlox, compiled": "torch-compile"}
REPLAY: dict[str, Any] = {
    "learning_rate": 1e-3, "batch_size": 256, "train_freq": 1, "gradient_steps": 1,
    "learning_starts": 300, "buffer_size": 20_000,
}  # fmt: skip
ROLLOUTS: dict[str, Any] = {"n_steps": 128, "n_epochs": 4, "batch_size": 256}
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "sac": ("Pendulum-v1", REPLAY, 300),
    "td3": ("Pendulum-v1", REPLAY, 300),
    "dqn": ("CartPole-v1", REPLAY, 300),
    "ppo": ("CartPole-v1", ROLLOUTS, 4096),
    "images": ("ALE/Pong-v5", ROLLOUTS, 1024),
    "dreamer": ("images", {}, 5),
}
"""Env, options that both libraries have, and the env or gradient steps of a turn."""
WIDE = [256, 256]
"""For Stable-Baselines3; rlox's option for it is ``hidden=256``."""


def ours(case: str, device: str, backend: str) -> Callable[[int], Any]:
    """Return a function that trains rlox for a number of steps."""
    import rlox

    env, options, _ = CASES[case]
    make: Any = partial(rlox.make, seed=0, device=device, backend=backend, torch_threads=1)
    if case == "images":
        more = {"n_envs": 8, "env_backend": "ale", "clip_rewards": 1.0, "episodic_life": True}
        return make("ppo", env=env, **more, **options).train  # type: ignore[no-any-return]
    more = {"n_envs": 8} if case == "ppo" else {"steps_per_iteration": CASES[case][2]}
    return make(case, env=env, hidden=256, **more, **options).train  # type: ignore[no-any-return]


def theirs(case: str, device: str) -> Callable[[int], Any]:
    """Return a function that trains Stable-Baselines3 for a number of steps."""
    sb3 = importlib.import_module("stable_baselines3")
    env_util = importlib.import_module("stable_baselines3.common.env_util")
    vectors = importlib.import_module("stable_baselines3.common.vec_env")
    env_id, options, _ = CASES[case]
    if case == "images":
        importlib.import_module("ale_py")  # gymnasium's ids
        plain = {"frameskip": 1, "repeat_action_probability": 0.0}  # its wrappers repeat actions
        env = env_util.make_atari_env(env_id, 8, seed=0, env_kwargs=plain)
        made = sb3.PPO("CnnPolicy", vectors.VecFrameStack(env, 4), device=device, **options)
    else:
        env = env_util.make_vec_env(env_id, 8 if case == "ppo" else 1, seed=0)
        kind = getattr(sb3, case.upper())
        made = kind("MlpPolicy", env, device=device, policy_kwargs={"net_arch": WIDE}, **options)
    return partial(made.learn, reset_num_timesteps=False)


def contender(who: str, case: str, device: str) -> Callable[[int], int]:
    """Return a function that takes n steps, waits for the device, and returns their number."""
    torch.set_num_threads(1)
    train = theirs(case, device) if who == SB3 else ours(case, device, BACKENDS[who])

    def turn(steps: int) -> int:
        train(steps)
        if device == "cuda":
            torch.cuda.synchronize()
        return steps

    return turn


PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from importlib.metadata import version
from gpu_learners import contender
train = contender({who!r}, {case!r}, {device!r})
versions = {{"torch": version("torch")}}
"""


def compare(case: str, device: str, rounds: int) -> dict[str, Any]:
    """Return steps per second of each contender, and ratios between them."""
    names = [*BACKENDS] + ([] if case == "dreamer" else [SB3])
    folder, steps = str(Path(__file__).resolve().parent), CASES[case][2]
    warm_up = 5 if case == "dreamer" else max(2 * steps, 600)

    def begin(who: str) -> Side:
        if case == "dreamer":
            program = RLOX.replace("DEVICE", repr(device)).replace("SIZE", repr(TWELVE_M))
            program = program.replace("BACKEND", repr(BACKENDS[who]))
        else:
            program = PROGRAM.format(folder=folder, who=who, case=case, device=device)
        return Side(program, sys.executable, steps, warm_up=warm_up)

    with ThreadPoolExecutor() as pool:  # compiling takes a minute and more
        sides = dict(zip(names, pool.map(begin, names), strict=True))
    run_in_turns(sides, rounds)
    speeds = {name: side.speeds for name, side in sides.items()}
    base = "rlox" if case == "dreamer" else SB3
    over = {name: ratio_summary(speeds[name], speeds[base]) for name in names if name != base}
    for name in names:
        ratio = f"{over[name]['median']:6.2f}" if name in over else ""
        print(f"{case:8s} {name:18s} {np.median(speeds[name]):9.1f} steps/s {ratio}", flush=True)
    each = {name: summary(found) for name, found in speeds.items()}
    return {"rounds": rounds, "steps_per_second": each, f"over {base}": over}


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/gpu_learners.json`` after each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda", help="cpu is for testing the script")
    given = parser.parse_args()
    libraries = ["rlox-core", "torch", "stable-baselines3"]
    result: dict[str, Any] = {
        "machine": {**machine(libraries), **gpu_of(given.device)},
        "clock": "wall-clock time",
        "cases": kept("gpu_learners").get("cases", {}),
    }
    for case in given.cases:
        result["cases"][case] = compare(case, given.device, given.rounds)
        write("gpu_learners", result)


if __name__ == "__main__":
    main()
