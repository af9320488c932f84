"""SAC, TD3 and DQN, env steps per second with learning: rlox, Stable-Baselines3 and sbx.

Equal hyperparameters and networks, all in one process and in turn, so that a busy machine slows
all alike. All run on one thread and on all cores: rlox with its defaults, Rust env and learner;
with gymnasium's env, which the others step; with the torch learner; Stable-Baselines3; and, if
installed, sbx, which is Stable-Baselines3 in JAX, on one core for one thread. SAC and TD3 take a
gradient step per env step on batches of 256, with two layers of 256; DQN has the settings of the
Stable-Baselines3 zoo for CartPole, and in another case a step on 128 rows per env step. With eight
envs, eight gradient steps follow each vector step. "The products alone" are the matrix products of
acting and of all gradient steps in torch, without envs and replay. Memory is that of a process with
one contender.

    python benchmarks/off_policy_end_to_end.py [--rounds 15] [--only SAC]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from measure import (
    interleave,
    interleave_counted,
    kept,
    machine,
    on_one_core,
    peak_mib,
    peaks_alone,
    ratio_summary,
    summary,
    usable_cores,
    write,
)
from products import (
    multiply,
    products_of_acting,
    products_of_dqn,
    products_of_sac,
    products_of_td3,
)
from rlox import set_num_threads
from rlox.algorithms import DQN, SAC, TD3
from rlox.nn import flush_denormals, torch_threads
from rlox.training.hooks import Hooks

CONTINUOUS: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99, "tau": 0.005}
ZOO = {"learning_rate": 2.3e-3, "batch_size": 64, "gamma": 0.99, "train_freq": 256,
       "gradient_steps": 128}  # fmt: skip
EVERY_STEP = {**ZOO, "batch_size": 128, "train_freq": 1, "gradient_steps": 1}
EIGHT = {**CONTINUOUS, "train_freq": 8, "gradient_steps": 8}
WORKS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "SAC": ("SAC", CONTINUOUS, 150, 1),
    "TD3": ("TD3", CONTINUOUS, 150, 1),
    "DQN": ("DQN", ZOO, 1024, 1),
    "DQN, a gradient step per env step": ("DQN", EVERY_STEP, 256, 1),
    "SAC, 8 envs": ("SAC", EIGHT, 160, 8),
    "TD3, 8 envs": ("TD3", EIGHT, 160, 8),
    "DQN, 8 envs": ("DQN", {**EVERY_STEP, "train_freq": 8, "gradient_steps": 8}, 256, 8),
}
"""Algorithm, settings with frequencies in env steps, env steps per run, number of envs."""

PRODUCTS = "the products alone, "
"""A number of torch's threads follows, as in all names; ratios are at equal numbers."""
HIDDEN = [256, 256]


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/off_policy_end_to_end.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=[*WORKS, "parts"], help="the others keep their rows")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help='as "sbx, 1"; all')
    parser.add_argument("--peak", action="store_true", help="print the MiB of one contender")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        interleave({"one": contenders_for(asked.only)[asked.contenders[0]]()}, 3)
        print(peak_mib())
        return
    packages = ["rlox-core", "rlox-native", "stable-baselines3", "torch", "gymnasium"]
    result = kept("off_policy_end_to_end")
    result["settings"] = {"SAC, TD3": CONTINUOUS, "DQN": ZOO, "DQN, each step": EVERY_STEP}
    result["settings"]["SAC, TD3, 8 envs"] = EIGHT
    result["machine"] = machine(packages, sbx=["sbx-rl", "jax"])
    for work in [asked.only] if asked.only else [*WORKS, "parts"]:
        if work == "parts":
            breakdown, over_products = where_time_goes()
            print(breakdown, over_products)
            result["sac_native_env_milliseconds_per_env_step"] = breakdown
            result["sac_gradient_step_over_its_products"] = over_products
        else:
            others = [row for row in result.get("rows", []) if row["algorithm"] != work]
            result["rows"] = others + compare(work, asked.rounds, asked.contenders)
    print(write("off_policy_end_to_end", result))


def compare(work: str, rounds: int, asked: list[str] | None) -> list[dict[str, Any]]:
    """Return the speed of every contender, and its ratios to the peers on one thread and on all."""
    makers, load = contenders_for(work), os.getloadavg()
    names = asked or list(makers)
    measured = [name for name in names if not name.startswith(PRODUCTS)]
    peaks = peaks_alone(measured, "--only", work)
    contenders = {name: makers[name]() for name in names}
    env_steps = WORKS[work][2]
    interleave(contenders, 2)
    seconds, processor = interleave_counted(contenders, rounds)
    rows = []
    for name, taken in seconds.items():
        peers = [each for each in seconds if each != name and not each.startswith("rlox,")]
        row: dict[str, Any] = {
            "algorithm": work,
            "contender": name,
            "env_steps": env_steps,
            "rounds": rounds,
            "load_average": [load, os.getloadavg()],
            "env_steps_per_second": summary([env_steps / s for s in taken]),
            "env_steps_per_processor_second": summary([env_steps / s for s in processor[name]]),
            "times_as_fast_as": {each: ratio_summary(seconds[each], taken) for each in peers},
            "times_as_fast_as_by_processor_time": {
                each: ratio_summary(processor[each], processor[name]) for each in peers
            },
            "peak_mib": peaks.get(name),
        }
        floor = PRODUCTS + name.split(", ")[-1]
        if floor in seconds:
            row["over_products"] = ratio_summary(taken, seconds[floor])
            row["over_products_by_processor_time"] = ratio_summary(
                processor[name], processor[floor]
            )
        rows.append(row)
        by_processor = row["times_as_fast_as_by_processor_time"]
        ratios = [
            f"{each} {ratio['median']:.2f} ({by_processor[each]['median']:.2f})"
            for each, ratio in row["times_as_fast_as"].items()
        ]
        print(f"{work}  {name:30s} {env_steps / min(taken):7.0f}/s", *ratios, peaks.get(name),
              sep="  ", flush=True)  # fmt: skip
    return rows


def contenders_for(work: str) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Return functions that make a contender's runs, which explore in the first one."""
    name, settings, env_steps, n_envs = WORKS[work]
    env = "CartPole-v1" if name == "DQN" else "Pendulum-v1"
    settings = dict(settings, learning_starts=env_steps, buffer_size=100_000, seed=0)
    extra = {"target_update_interval": 256} if name == "DQN" else {}

    def theirs(library: str) -> Any:
        from stable_baselines3.common.env_util import make_vec_env

        module: Any = importlib.import_module(library)
        counted: dict[str, Any] = dict(settings)  # its frequencies are in vector steps
        if "train_freq" in counted:
            counted["train_freq"] //= n_envs
        more = {"device": "cpu"} if library == "stable_baselines3" else {}
        envs = make_vec_env(env, n_envs, seed=0)
        networks = {"policy_kwargs": {"net_arch": HIDDEN}}
        return getattr(module, name)("MlpPolicy", envs, **more, **counted, **networks, **extra)

    def learn(model: Any, threads: int = 1) -> None:
        with torch_threads(threads):
            model.learn(env_steps, reset_num_timesteps=False)

    def ours(threads: int, **options: Any) -> Callable[[], None]:
        algorithm: Any = {"SAC": SAC, "TD3": TD3, "DQN": DQN}[name]
        given = {"env_backend": "native", "steps_per_iteration": env_steps, "n_envs": n_envs}
        made = algorithm(env, **{**given, **settings, **options})

        def run() -> None:
            set_num_threads(threads)
            made.train(env_steps)

        return run

    cores = usable_cores()
    runs: dict[str, Callable[[], Callable[[], Any]]] = {}
    for threads in sorted({1, cores}):
        runs[f"stable-baselines3, {threads}"] = partial(
            lambda threads: partial(learn, theirs("stable_baselines3"), threads), threads
        )
    if importlib.util.find_spec("sbx") is not None:
        runs["sbx, 1"] = lambda: partial(on_one_core, partial(learn, theirs("sbx")))
        runs[f"sbx, {cores}"] = lambda: partial(learn, theirs("sbx"))
    for threads in sorted({1, cores}):
        runs[f"rlox, {threads}"] = partial(ours, threads)
    runs["rlox, gymnasium env, 1"] = partial(ours, 1, env_backend="gymnasium")
    runs["rlox, torch learner, 1"] = partial(ours, 1, backend="torch")
    return runs | {f"{PRODUCTS}{n}": partial(products_for, work, n) for n in sorted({1, cores})}


def products_for(work: str, threads: int, env_steps: int | None = None) -> Callable[[], None]:
    """Return a run of the matrix products alone of a work's acting and gradient steps.

    Args:
        work: one of :data:`WORKS`.
        threads: of torch.
        env_steps: by default the work's.
    """
    name, settings, usual, n_envs = WORKS[work]
    env_steps = usual if env_steps is None else env_steps
    rows, hidden = settings["batch_size"], HIDDEN[0]
    updates = env_steps * settings.get("gradient_steps", 1) // settings.get("train_freq", 1)
    if name == "DQN":
        acting = products_of_acting(n_envs, 4, *HIDDEN, 2)
        learning = [products_of_dqn(4, 2, hidden, rows)]
    else:
        acting = products_of_acting(n_envs, 3, *HIDDEN, 2 if name == "SAC" else 1)
        learning = [products_of_sac(3, 1, hidden, rows)]
    if name == "TD3":
        learning = [
            products_of_td3(3, 1, hidden, rows, moves_policy=moves) for moves in (False, True)
        ]
    return partial(multiply, [acting], env_steps // n_envs, learning, updates, threads=threads)


def where_time_goes(repeats: int = 50) -> tuple[dict[str, float], dict[str, float]]:
    """Return median milliseconds of the parts of SAC's env step, gradient step included.

    And the gradient step's time over that of its matrix products.
    """
    sac = SAC("Pendulum-v1", env_backend="native", learning_starts=300, **CONTINUOUS)
    sac.train(1_000)
    replay, learner = sac.replay, sac.learner
    batch, obs = replay.draw(learner), np.zeros((1, 3), np.float32)

    def milliseconds(run: Callable[[], Any]) -> float:
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            runs.append((time.perf_counter() - started) * 1e3)
        return summary(runs)["median"]

    products = products_of_sac(3, 1, hidden=256, batch_size=CONTINUOUS["batch_size"])
    with flush_denormals():
        with torch.no_grad():
            act = milliseconds(lambda: sac._act(obs))
        step = milliseconds(lambda: replay.step(sac._act, Hooks(sac), learner))
        draw = milliseconds(lambda: replay.draw(learner))
        learn, floor = [], []
        # in turn, as their ratio is what counts
        for _ in range(9):
            learn.append(milliseconds(lambda: learner.step("learn", batch, 1e-9)))
            floor.append(milliseconds(products.run))
    learnt, multiplied = summary(learn)["median"], summary(floor)["median"]
    parts = {
        "act": act,
        "step the env and store": step - act,
        "draw a batch": draw,
        "learn: the products": multiplied,
        "learn: everything else": learnt - multiplied,
    }
    return parts, ratio_summary(learn, floor)


if __name__ == "__main__":
    main()
