"""Env steps of MuJoCo tasks and Atari games: rlox's backends, gymnasium and EnvPool.

python benchmarks/simulators.py [--rounds 9] [--envs 8] [--only Hopper-v5]

Random actions drawn beforehand, one process. ``physics alone`` is MuJoCo's own step for as many
substeps, along episodes that begin and end as the env's, with contact forces where the task
observes them, and without observations, rewards and ends: a lower bound for any env on as many
threads. Each of several threads steps its share of the envs without waiting for the others. EnvPool
takes part if it is installed; each step sends actions to all of its envs and waits for all. Atari's
frames are grey, 84 by 84 and stacked by four in all contenders.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from measure import interleave, interleave_counted, machine, ratio_summary, summary, write
from rlox.envs.gymnasium import GymVecEnv
from rlox_simulators.atari import AtariVecEnv
from rlox_simulators.mujoco import TASKS as TASKS_BY_ID
from rlox_simulators.mujoco import MujocoOptions, make_vec_env
from rlox_simulators.options import AtariOptions

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Walker2d-v5", "Humanoid-v5")
GAMES = ("ALE/Pong-v5", "ALE/Breakout-v5")
CALLS = 60
PLAYED = 1_200
"""Vector steps of the episodes along which physics is measured."""
PHYSICS = "physics alone, "
ONE = "1 thread"


def batches(space: Any, n_envs: int) -> list[Any]:
    """Return random actions of a space for each call."""
    space.seed(0)
    return [np.stack([space.sample() for _ in range(n_envs)]) for _ in range(CALLS)]


def stepping(env: Any) -> Callable[[], Any]:
    """Return a call that steps a vector env of rlox."""
    actions = batches(env.action_space, env.n_envs)
    env.reset_all(0)
    return lambda: [env.step_all(batch) for batch in actions]


def envpool(env_id: str, n_envs: int, threads: int, **options: Any) -> Callable[[], Any]:
    """Return a call that steps EnvPool's envs."""
    import envpool

    env = envpool.make_gymnasium(env_id, num_envs=n_envs, num_threads=threads, seed=0, **options)
    actions = batches(env.action_space, n_envs)
    env.reset()
    return lambda: [env.step(batch) for batch in actions]


def physics(env_id: str, n_envs: int, threads: int = 1) -> Callable[[], Any]:
    """Return a call of MuJoCo's steps alone, which release the interpreter lock."""
    plain: Any = gymnasium.make(env_id).unwrapped
    model, skip, forces = plain.model, plain.frame_skip, TASKS_BY_ID[env_id].contact_forces
    env = make_vec_env(env_id, n_envs=n_envs, options=MujocoOptions(physics_threads=1))
    env.reset_all(0)
    begun, played = np.ones(n_envs, np.bool_), []
    for batch in islice(cycle(batches(env.action_space, n_envs)), PLAYED):
        states = env.state()["simulations"]
        played.append((batch, [(i, states[i]) for i in np.flatnonzero(begun)]))
        step = env.step_all(batch)
        begun = step["terminated"] | step["truncated"]
    data, ahead = [mujoco.MjData(model) for _ in range(n_envs)], cycle(played)
    pool = ThreadPoolExecutor(threads)

    def move(steps: list[Any], share: range) -> None:
        for batch, starts in steps:
            for i, state in starts:
                if i in share:
                    mujoco.mj_setState(model, data[i], state, mujoco.mjtState.mjSTATE_INTEGRATION)
            for i in share:
                data[i].ctrl[:] = batch[i]
                mujoco.mj_step(model, data[i], nstep=skip)
                if forces:
                    mujoco.mj_rnePostConstraint(model, data[i])

    def call() -> None:
        steps = list(islice(ahead, CALLS))
        shares = [range(first, n_envs, threads) for first in range(threads)]
        list(pool.map(partial(move, steps), shares))

    return call


def gymnasium_games(env_id: str, n_envs: int) -> Callable[[], Any]:
    """Return a call that steps gymnasium's env with its own preprocessing."""

    def make() -> Any:
        env = AtariPreprocessing(gymnasium.make(env_id, frameskip=1))
        return FrameStackObservation(env, 4)

    env = SyncVectorEnv([make] * n_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    actions = batches(env.single_action_space, n_envs)
    env.reset(seed=0)
    return lambda: [env.step(batch) for batch in actions]


def contenders_of(
    env_id: str, n_envs: int, threads_of: Sequence[int]
) -> dict[str, Callable[[], Any]]:
    """Return the contenders for an id."""
    has_envpool = importlib.util.find_spec("envpool") is not None
    found: dict[str, Callable[[], Any]] = {}
    for threads in threads_of:
        name = f"{threads} thread" + "s" * (threads > 1)
        if env_id in TASKS:
            found[f"{PHYSICS}{name}"] = physics(env_id, n_envs, threads)
            options = MujocoOptions(physics_threads=threads)
            env: Any = make_vec_env(env_id, n_envs=n_envs, options=options)
        else:
            env = AtariVecEnv(env_id, n_envs, options=AtariOptions(emulator_threads=threads))
        found[f"rlox, {name}"] = stepping(env)
        if has_envpool and env_id in TASKS:
            found[f"EnvPool, {name}"] = envpool(env_id, n_envs, threads)
        elif has_envpool:
            games = {"repeat_action_probability": 0.25, "max_episode_steps": 27_000}
            task = env_id.removeprefix("ALE/")
            found[f"EnvPool, {name}"] = envpool(task, n_envs, threads, **games)
    if env_id in TASKS:
        found["gymnasium"] = stepping(GymVecEnv(env_id, n_envs))
    else:
        found["gymnasium"] = gymnasium_games(env_id, n_envs)
    return found


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/simulators.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--only", nargs="+", choices=(*TASKS, *GAMES), default=(*TASKS, *GAMES))
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2))
    asked = parser.parse_args()
    rows = []
    for env_id in asked.only:
        contenders = contenders_of(env_id, asked.envs, asked.threads)
        interleave(contenders, 1)
        load = os.getloadavg()
        seconds, processor = interleave_counted(contenders, asked.rounds)
        for name, taken in seconds.items():
            per_step = summary([s / CALLS / asked.envs * 1e6 for s in taken])
            ratio = ratio_summary(seconds["gymnasium"], taken)
            counted = ratio_summary(processor["gymnasium"], processor[name])
            row = {"env": env_id, "contender": name, "us_per_env_step": per_step,
                   "times_gymnasium": ratio, "times_gymnasium_by_processor_time": counted,
                   "load_average": load}  # fmt: skip
            who, _, threads = name.partition(", ")
            one = f"{who}, {ONE}"
            if name != one and one in seconds:
                row["times_one_thread"] = ratio_summary(seconds[one], taken)
                print(f"{row['times_one_thread']['median']:.2f} times one thread", end="  ")
            floor = PHYSICS + (threads or ONE)
            if floor in seconds:
                row["over_physics"] = ratio_summary(taken, seconds[floor])
                row["over_physics_by_processor_time"] = ratio_summary(
                    processor[name], processor[floor]
                )
                print(f"{row['over_physics_by_processor_time']['median']:.2f} times physics",
                      end="  ")  # fmt: skip
            rows.append(row)
            print(f"{env_id:16s} {name:20s} {per_step['median']:8.1f} us, {ratio['median']:.2f}, "
                  f"by processor time {counted['median']:.2f}", flush=True)  # fmt: skip
    packages = ["rlox-core", "mujoco", "ale-py", "gymnasium", "numpy"]
    where = machine(packages, envpool=["envpool"])
    result = {"rounds": asked.rounds, "n_envs": asked.envs, "machine": where, "envs": rows}
    print(write("simulators", result))


if __name__ == "__main__":
    main()
