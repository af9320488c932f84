"""Several threads of the Rust kernels over one, alone and next to another busy process.

python benchmarks/threads.py [--rounds 31] [--threads 2 16] [--busy 0] [--only "64 rows"]

``--busy`` is the number of other processes that compute meanwhile; the load average before and
after is part of the result, because the machine may have other work too. Trainings are compared
with the matrix products of their acting and learning in torch on as many threads, and GAE with
copies of as many bytes as it reads and writes: the gain of more threads in products or memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import rlox
import rlox_native
import torch
from measure import interleave, kept, machine, ratio_summary, summary, write
from off_policy_end_to_end import HIDDEN, products_for
from products import multiply, products_of_acting, products_of_ppo
from rlox.nn import torch_threads

CALLS, CALLS_OF_MUCH = 100, 20
"""Calls in a turn: many, because a change of the number of threads makes the first build a pool."""
N_ENVS = {4096: CALLS, 65_536: CALLS_OF_MUCH}
GAE_SIZES = {(128, 4096): CALLS, (1024, 4096): CALLS_OF_MUCH}
VTRACE_SIZE = (64, 1024)
N_GROUPS = 32_768
SEQUENCES = (128, 1024)
DRAWN = 32_768

PPO: dict[str, Any] = {"n_envs": 64, "n_steps": 64, "batch_size": 512, "n_epochs": 10}
PPO_STEPS, UPDATES = 4096, 1000
REPLAY: dict[str, Any] = {"learning_starts": 100, "steps_per_iteration": UPDATES}
EACH_STEP: dict[str, Any] = {**REPLAY, "train_freq": 1, "gradient_steps": 1}
SAC_WORK = "SAC Pendulum-v1, 256 units, 256 rows"
TD3_WORK = "TD3 Pendulum-v1, 256 units, 256 rows"
PPO_WORK = "PPO Pendulum-v1, 64 envs, 256 units"
TRAININGS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    SAC_WORK: ("sac", "Pendulum-v1", UPDATES, REPLAY),
    TD3_WORK: ("td3", "Pendulum-v1", UPDATES, REPLAY),
    PPO_WORK: ("ppo", "Pendulum-v1", PPO_STEPS, PPO),
    "PPO Pendulum-v1, 64 envs, 256 units, 64 rows": (
        "ppo", "Pendulum-v1", PPO_STEPS, {**PPO, "batch_size": 64, "n_epochs": 2}
    ),
    "PPO Pendulum-v1, 32 envs, 256 units, 32 rows": (
        "ppo", "Pendulum-v1", PPO_STEPS, {**PPO, "n_envs": 32, "batch_size": 32, "n_epochs": 2}
    ),
    **{
        f"{algorithm.upper()} {env_id}, 256 units, {n} rows": (
            algorithm, env_id, UPDATES, {**EACH_STEP, "batch_size": n}
        )
        for algorithm, env_id in (("sac", "Pendulum-v1"), ("dqn", "CartPole-v1"))
        for n in (64, 32)
    },
}  # fmt: skip
"""Algorithm, env, env steps in a turn and options, by name."""


def times(n: int, call: Callable[[], Any]) -> None:
    """Call n times."""
    for _ in range(n):
        call()


def env_work(env_id: str, n_envs: int) -> Callable[[], Any]:
    """Return a function that steps envs a few times."""
    envs = rlox_native.VecEnv(n_envs, seed=0, env_id=env_id)
    obs = envs.reset_all()
    flags = [np.empty(n_envs, np.bool_) for _ in ("terminated", "truncated")]
    out: list[Any] = [obs, np.empty(n_envs), *flags, np.empty_like(obs)]
    rng = np.random.default_rng(0)
    if env_id == "Pendulum-v1":
        actions: Any = rng.uniform(-2, 2, (n_envs, 1)).astype(np.float32)
    else:
        actions = rng.integers(0, 3, n_envs)
    return partial(times, N_ENVS[n_envs], partial(envs.step_into, actions, *out))


def gae_work(layout: str, n_steps: int, n_envs: int) -> Callable[[], Any]:
    """Return a function that estimates the advantages of a rollout a few times."""
    rng = np.random.default_rng(0)
    shape = (n_steps, n_envs) if layout == "time-major" else (n_envs, n_steps)
    rewards, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    ends, last = rng.random(shape) < 0.01, np.zeros(n_envs, np.float32)
    if layout == "time-major":
        arrays = (rewards, values, ends, np.zeros(shape, bool), np.zeros_like(rewards), last)
        out = (np.empty_like(rewards), np.empty_like(rewards))
        call = partial(rlox_native.compute_gae_time_major, *arrays, 0.99, 0.95, out=out)
    else:
        batched: Any = rlox_native.compute_gae_batched_f32
        flat = [array.ravel() for array in (rewards, values, ends)]
        out = (np.empty_like(flat[0]), np.empty_like(flat[0]))
        call = partial(batched, *flat, last, n_steps, 0.99, 0.95, out=out)
    return partial(times, GAE_SIZES[n_steps, n_envs], call)


def gae_copies(layout: str, n_steps: int, n_envs: int, threads: int) -> Callable[[], None]:
    """Return copies in torch of as many bytes as :func:`gae_work` reads and writes.

    For each step it reads a reward, a value and the end of an episode, and writes two numbers; in
    time-major layout it also reads why the episode ended and the value of its last observation. A
    copy reads half of these bytes and writes the other half.
    """
    each = {"time-major": 22, "env-major": 17}[layout]
    source = torch.zeros(each * n_steps * n_envs // 2, dtype=torch.uint8)
    target = torch.zeros_like(source)

    def run() -> None:
        with torch_threads(threads):
            times(GAE_SIZES[n_steps, n_envs], partial(target.copy_, source))

    return run


def vtrace_work() -> Callable[[], Any]:
    """Return a function that corrects a rollout of another policy by V-trace."""
    rng = np.random.default_rng(0)
    log_rhos, rewards, values = rng.normal(size=(3, *VTRACE_SIZE)).astype(np.float32)
    ends, last = rng.random(VTRACE_SIZE) < 0.01, np.zeros(VTRACE_SIZE[1], np.float32)
    call = partial(rlox_native.compute_vtrace, log_rhos, rewards, values, ends, last, 0.99)
    return partial(times, CALLS, call)


def language_works() -> dict[str, Callable[[], Any]]:
    """Return functions that compute advantages of groups and divergences of tokens."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=N_GROUPS * 8).astype(np.float32)
    log_p, log_q = -rng.random((2, SEQUENCES[0] * SEQUENCES[1])).astype(np.float32)
    groups = partial(rlox_native.compute_batch_group_advantages, rewards, 8)
    kl = partial(rlox_native.compute_batch_token_kl_schulman, log_p, log_q, SEQUENCES[1])
    return {
        f"advantages of {N_GROUPS:,} groups of 8": partial(times, CALLS, groups),
        f"token KL, {SEQUENCES[0]} sequences of {SEQUENCES[1]}": partial(times, CALLS, kl),
    }


def draw_works() -> dict[str, Callable[[], Any]]:
    """Return functions that draw large batches from full buffers."""
    rng, n, obs_dim, act_dim = np.random.default_rng(0), 200_000, 17, 6
    obs, next_obs = rng.normal(size=(2, n, obs_dim)).astype(np.float32)
    actions = rng.normal(size=(n, act_dim)).astype(np.float32)
    rows = (obs, actions, np.zeros(n, np.float32), rng.random(n) < 0.01, np.zeros(n, bool))
    sizes = (n, obs_dim, act_dim)
    goals: dict[str, Any] = {"goal_dim": 3, "distance_threshold": 0.5, "seed": 0}
    buffers: dict[str, Any] = {
        "uniform": rlox_native.ReplayBuffer(*sizes, seed=0),
        "prioritized": rlox_native.PrioritizedReplayBuffer(*sizes, seed=0),
        "hindsight": rlox_native.HerReplayBuffer(*sizes, **goals),
    }
    works: dict[str, Callable[[], Any]] = {}
    for name, buffer in buffers.items():
        buffer.push_batch(*rows, next_obs)
        out = buffer.sample(DRAWN)
        draw = partial(buffer.sample, DRAWN, out=out)
        works[f"{name} draw, {DRAWN:,} of 17 + 6 numbers"] = partial(times, CALLS, draw)
    frames = rng.integers(0, 256, (1024, 4 * 84 * 84), dtype=np.uint8)
    images = rlox_native.ReplayBuffer(len(frames), frames.shape[1], 1, obs_dtype="uint8", seed=0)
    ones, no = np.ones(len(frames), np.float32), np.zeros(len(frames), bool)
    images.push_batch(frames, ones[:, None], ones, no, no, frames)
    draw = partial(images.sample, 256, out=images.sample(256))
    return works | {"uniform draw, 256 of 4 x 84 x 84 bytes": partial(times, CALLS, draw)}


def training_work(
    algorithm: str, env_id: str, steps: int, options: Mapping[str, Any]
) -> Callable[[], Any]:
    """Return a function that trains for some env steps with the native learner."""
    make: Any = rlox.make  # of any name
    algo = make(algorithm, env=env_id, seed=0, backend="native", hidden=256, **options)
    algo.train(2 * steps)
    return partial(algo.train, steps)


def ppo_products(threads: int) -> Callable[[], None]:
    """Return a run of the products of :data:`PPO_WORK` in torch."""
    acting = [products_of_acting(PPO["n_envs"], 3, *HIDDEN, 1) for _ in ("actions", "values")]
    learning = [products_of_ppo(3, 1, HIDDEN[0], PPO["batch_size"])]
    minibatches = PPO["n_epochs"] * PPO_STEPS // PPO["batch_size"]
    return partial(multiply, acting, PPO["n_steps"], learning, minibatches, threads=threads)


def on_threads(work: Callable[[], Any], threads: int) -> None:
    """Do the work with a number of threads."""
    rlox_native.set_num_threads(threads)
    work()


def compare(
    name: str, contenders: Mapping[tuple[str, int], Callable[[], Any]], rounds: int
) -> dict[str, Any]:
    """Return the gain of more threads for a work, and for its comparison if it has one.

    Args:
        name: of the work.
        contenders: by ``"rlox"`` or the comparison's name, and the number of threads.
        rounds: runs of each.
    """
    interleave(contenders, 2)
    seconds = interleave(contenders, rounds)
    found: dict[str, dict[str, Any]] = {}
    for who in dict.fromkeys(who for who, _ in contenders):
        taken = {n: seconds[other, n] for other, n in contenders if other == who}
        ms = {n: summary([s * 1e3 for s in each]) for n, each in taken.items()}
        speedup = {n: ratio_summary(taken[1], each) for n, each in taken.items() if n != 1}
        found[who] = {"ms": ms, "speedup": speedup}
        print(f"{name:44s} {who:9s}", *(f"{each['median']:9.1f} ms" for each in ms.values()),
              speedup, flush=True)  # fmt: skip
    result = found.pop("rlox")
    for who, beside in found.items():
        over = {n: ratio_summary(seconds["rlox", n], seconds[who, n]) for n in beside["ms"]}
        print(f"{name:44s} over the {who}", over, flush=True)
        result |= {who: beside, f"over_{who}": over}
    return result


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/threads[_busy].json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--only", default="", help="part of names; other works keep their rows")
    options = parser.parse_args()
    where, load = machine(["rlox-native", "numpy"]), [os.getloadavg()]
    works = {
        f"VecEnv {env_id}, {n_envs} envs": env_work(env_id, n_envs)
        for n_envs in N_ENVS
        for env_id in ("Pendulum-v1", "Acrobot-v1")
    }
    rollouts = {
        f"GAE {layout}, {n_envs} envs x {n_steps} steps": (layout, n_steps, n_envs)
        for n_steps, n_envs in GAE_SIZES
        for layout in ("time-major", "env-major")
    }
    works |= {name: gae_work(*rollout) for name, rollout in rollouts.items()}
    works[f"V-trace, {VTRACE_SIZE[1]} envs x {VTRACE_SIZE[0]} steps"] = vtrace_work()
    works |= language_works() | draw_works()
    works = {name: work for name, work in works.items() if options.only in name}
    trainings = {name: training for name, training in TRAININGS.items() if options.only in name}
    works |= {name: training_work(*training) for name, training in trainings.items()}
    floors: dict[str, tuple[str, Callable[[int], Callable[[], None]]]] = {
        SAC_WORK: ("products", partial(products_for, "SAC", env_steps=UPDATES)),
        TD3_WORK: ("products", partial(products_for, "TD3", env_steps=UPDATES)),
        PPO_WORK: ("products", ppo_products),
    }
    floors |= {name: ("copies", partial(gae_copies, *each)) for name, each in rollouts.items()}
    name_of_file = "threads_busy" if options.busy else "threads"
    others = kept(name_of_file).get("rows", []) if options.only else []
    rows, numbers = [row for row in others if row["work"] not in works], (1, *options.threads)
    with ExitStack() as stack:
        for _ in range(options.busy):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        for name, work in works.items():
            contenders: dict[tuple[str, int], Callable[[], Any]] = {
                ("rlox", n): partial(on_threads, work, n) for n in numbers
            }
            if name in floors:
                who, floor = floors[name]
                contenders |= {(who, n): floor(n) for n in numbers}
            rows.append({"work": name, **compare(name, contenders, options.rounds)})
    load.append(os.getloadavg())
    result = {
        "rounds": options.rounds,
        "threads": options.threads,
        "updates": UPDATES,
        "busy": options.busy,
    }
    result |= {"machine": where, "load_average": load, "rows": rows}
    print(write(name_of_file, result))


if __name__ == "__main__":
    main()
