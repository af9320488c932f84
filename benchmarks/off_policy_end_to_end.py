"""SAC, TD3 and DQN, env steps per second with learning: rlox, Stable-Baselines3 and sbx.

Equal hyperparameters and networks, all in one process and in turn, so that a busy machine slows
all alike. rlox runs as it comes, with Rust env and learner, on one thread and on all cores, as the
others do; with gymnasium's env, which is what they step; and with the torch learner. sbx, which is
Stable-Baselines3 in JAX, takes part if it is installed; one thread of it is one core. SAC and TD3
take a gradient step per env step on batches of 256, with two layers of 256; DQN has the settings of
the Stable-Baselines3 zoo for CartPole, and once more takes a step on 128 rows per env step.

    python benchmarks/off_policy_end_to_end.py [--rounds 15] [--only SAC]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import stable_baselines3
import torch
from measure import (
    interleave,
    interleave_counted,
    kept,
    machine,
    on_one_core,
    ratio_summary,
    summary,
    write,
)
from products import Products, network
from rlox import set_num_threads
from rlox.algorithms import DQN, SAC, TD3
from rlox.cli.sweeps.processes import usable_cores
from rlox.learners.transitions import Learn
from rlox.nn import flush_denormals, torch_threads
from rlox.training.hooks import Hooks

CONTINUOUS: dict[str, Any] = {"learning_rate": 1e-3, "batch_size": 256, "gamma": 0.99, "tau": 0.005}
ZOO = {"learning_rate": 2.3e-3, "batch_size": 64, "gamma": 0.99, "train_freq": 256,
       "gradient_steps": 128}  # fmt: skip
EVERY_STEP = {**ZOO, "batch_size": 128, "train_freq": 1, "gradient_steps": 1}
WORKS: dict[str, tuple[str, dict[str, Any], int]] = {
    "SAC": ("SAC", CONTINUOUS, 150),
    "TD3": ("TD3", CONTINUOUS, 150),
    "DQN": ("DQN", ZOO, 1024),
    "DQN, a gradient step per env step": ("DQN", EVERY_STEP, 256),
}
"""Algorithm, settings and env steps per run."""

HIDDEN = [256, 256]


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/off_policy_end_to_end.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=[*WORKS, "parts"], help="the others keep their rows")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help='as "sbx, 1"; all')
    asked = parser.parse_args()
    torch.set_num_threads(1)
    packages = ["rlox-core", "rlox-native", "stable-baselines3", "sbx-rl", "jax", "torch"]
    result = kept("off_policy_end_to_end")
    result["settings"] = {"SAC, TD3": CONTINUOUS, "DQN": ZOO, "DQN, each step": EVERY_STEP}
    result["machine"] = machine([*packages, "gymnasium"])
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
    contenders, load = contenders_for(work), os.getloadavg()
    contenders = {name: contenders[name] for name in asked or contenders}
    env_steps = WORKS[work][2]
    interleave(contenders, 2)
    seconds, processor = interleave_counted(contenders, rounds)
    rows = []
    for name, taken in seconds.items():
        row: dict[str, Any] = {
            "algorithm": work,
            "contender": name,
            "env_steps": env_steps,
            "rounds": rounds,
            "load_average": [load, os.getloadavg()],
            "env_steps_per_second": summary([env_steps / s for s in taken]),
            "env_steps_per_processor_second": summary([env_steps / s for s in processor[name]]),
            "times_as_fast_as": {
                peer: ratio_summary(seconds[peer], taken)
                for peer in seconds
                if peer != name and not peer.startswith("rlox,")
            },
            "times_as_fast_as_by_processor_time": {
                peer: ratio_summary(processor[peer], processor[name])
                for peer in processor
                if peer != name and not peer.startswith("rlox,")
            },
        }
        rows.append(row)
        medians = {peer: ratio["median"] for peer, ratio in row["times_as_fast_as"].items()}
        by_processor = row["times_as_fast_as_by_processor_time"]
        ratios = [
            f"{peer} {median:.2f} ({by_processor[peer]['median']:.2f})"
            for peer, median in medians.items()
        ]
        print(f"{work}  {name:30s} {env_steps / min(taken):7.0f}/s", *ratios, sep="  ", flush=True)
    return rows


def contenders_for(work: str) -> dict[str, Callable[[], Any]]:
    """Return the runs of some env steps each, which explore in the first one."""
    name, settings, env_steps = WORKS[work]
    env = "CartPole-v1" if name == "DQN" else "Pendulum-v1"
    settings = dict(settings, learning_starts=env_steps, buffer_size=100_000, seed=0)
    extra = {"target_update_interval": 256} if name == "DQN" else {}
    networks = {"policy_kwargs": {"net_arch": HIDDEN}}
    theirs: Any = getattr(stable_baselines3, name)(
        "MlpPolicy", env, device="cpu", **settings, **networks, **extra
    )

    def ours(**options: Any) -> Any:
        algorithm: Any = {"SAC": SAC, "TD3": TD3, "DQN": DQN}[name]
        made = algorithm(
            env,
            **{"env_backend": "native", "steps_per_iteration": env_steps, **settings, **options},
        )
        return partial(made.train, env_steps)

    def learn(model: Any, threads: int = 1) -> None:
        with torch_threads(threads):
            model.learn(env_steps, reset_num_timesteps=False)

    def on_threads(threads: int, run: Callable[[], Any]) -> None:
        set_num_threads(threads)
        run()

    cores, native = usable_cores(), ours()
    runs: dict[str, Callable[[], Any]] = {}
    for threads in sorted({1, cores}):
        runs[f"stable-baselines3, {threads}"] = partial(learn, theirs, threads)
    if importlib.util.find_spec("sbx") is not None:
        import sbx

        jax_model = getattr(sbx, name)("MlpPolicy", env, **settings, **networks, **extra)
        runs["sbx, 1"] = partial(on_one_core, partial(learn, jax_model))
        runs[f"sbx, {cores}"] = partial(learn, jax_model)
    for threads in sorted({1, cores}):
        runs[f"rlox, {threads}"] = partial(on_threads, threads, native)
    for label, options in (
        ("rlox, gymnasium env, 1", {"env_backend": "gymnasium"}),
        ("rlox, torch learner, 1", {"backend": "torch"}),
    ):
        runs[label] = partial(on_threads, 1, ours(**options))
    return runs


def where_time_goes(repeats: int = 50) -> tuple[dict[str, float], dict[str, float]]:
    """Return the median milliseconds of each part of SAC's env step with its gradient step.

    And how many times as long as its matrix products the gradient step takes.
    """
    sac = SAC("Pendulum-v1", env_backend="native", learning_starts=300, **CONTINUOUS)
    sac.train(1_000)
    replay, batch = sac.replay, sac.replay.draw()
    obs = torch.zeros(1, 3)

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
        step = milliseconds(lambda: replay.step(sac._act, Hooks(sac)))
        draw = milliseconds(replay.draw)
        learn, floor = [], []
        # in turn, as their ratio is what counts
        for _ in range(9):
            learn.append(milliseconds(lambda: sac.learner.step(Learn.ALL, batch, 1e-9)))
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


def products_of_sac(obs_dim: int, act_dim: int, hidden: int, batch_size: int) -> Products:
    """Return all matrix products of SAC's gradient step, sixteen of them hidden × hidden."""
    products = Products(batch_size)
    policy = network(obs_dim, hidden, hidden, 2 * act_dim)
    critics, targets = (
        [network(obs_dim + act_dim, hidden, hidden, 1) for _ in range(2)] for _ in range(2)
    )
    for weights in (policy, *targets):
        products.forward(weights)
    for critic in critics:
        products.learn(critic)
    values = products.forward(policy)
    for critic in critics:
        products.backward(critic, products.forward(critic), to_inputs=True)
    products.backward(policy, values)
    return products


if __name__ == "__main__":
    main()
