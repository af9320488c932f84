"""How the native PPO learner scales: number of envs, width of the networks, trainings at once.

Its arithmetic per second is set against that of a large matrix product on one core, measured in
turn with it. Trainings at once are threads of one process, as in a sweep over seeds.

    python benchmarks/ppo_scaling.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from measure import interleave, machine, ratio_summary, summary, write
from rlox.cli.processes import usable_cores
from rlox.nn import torch_threads
from rlox.runner import Hooks
from rlox_onpolicy.ppo import PPO

SETTINGS: dict[str, Any] = {"n_steps": 128, "n_epochs": 4, "batch_size": 256}

ENVS, WIDTHS = (8, 64, 256), (32, 64, 128, 256)

AT_ONCE = {(8, 64): 20, (64, 64): 3, (64, 256): 1}
"""Iterations of each training, by envs and width, where several run beside each other."""

RATES = {"learning_rate": 1e-9, "clip_eps": 0.2, "ent_coef": 0.01}

PICTURE = Path(__file__).parent / "results" / "ppo_scaling.png"


def main() -> None:
    """Measure, write ``benchmarks/results/ppo_scaling.json`` and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    where = machine(["rlox-core", "rlox-native", "torch"])
    rows = [measure_size(n_envs, width, rounds) for width in WIDTHS for n_envs in ENVS]
    at_once = [measure_at_once(n_envs, width, rounds) for n_envs, width in AT_ONCE]
    result = {"settings": SETTINGS, "rounds": rounds, "machine": where}
    print(write("ppo_scaling", {**result, "rows": rows, "trainings_at_once": at_once}))
    draw(rows, at_once)


def update_flop(rows: int, width: int, obs_dim: int = 4, n_actions: int = 2) -> float:
    """Return the floating-point operations of the matrix products of an epoch over ``rows``.

    Forward, and backward twice that, but for the gradient with respect to the observations.
    """
    first, second, last = 2 * obs_dim * width, 2 * width * width, (n_actions + 1) * width
    return 2.0 * rows * (2 * first + 3 * second + 3 * last)


def measure_size(n_envs: int, width: int, rounds: int) -> dict[str, Any]:
    """Return the speed of an iteration and of its parts, and the share of the peak."""
    ppo = PPO("CartPole-v1", n_envs=n_envs, hidden=width, backend="native", **SETTINGS)
    hooks, n_steps = Hooks(ppo), SETTINGS["n_steps"]
    batch = ppo.learner.collect(n_steps, hooks)
    square = torch.rand(1024, 1024)
    contenders = {
        "iteration": lambda: ppo.train(1),
        "collect": lambda: ppo.learner.collect(n_steps, hooks),
        "update": lambda: ppo.learner.update(batch, RATES, hooks),
        "product": lambda: square @ square,
    }
    interleave(contenders, 1)
    seconds = interleave(contenders, rounds)
    flop = SETTINGS["n_epochs"] * update_flop(n_envs * n_steps, width)
    shares = [
        flop / update / (2 * 1024**3 / product)
        for update, product in zip(seconds["update"], seconds["product"], strict=True)
    ]
    row = {
        "n_envs": n_envs,
        "width": width,
        "env_steps_per_second": summary([n_envs * n_steps / s for s in seconds["iteration"]]),
        "update_gflop_per_second": summary([flop / s / 1e9 for s in seconds["update"]]),
        "share_of_sgemm": summary(shares),
        "milliseconds": {k: 1e3 * statistics.median(v) for k, v in seconds.items()},
    }
    ppo.close()
    print(
        f"{n_envs:4d} envs, width {width:4d} {row['env_steps_per_second']['median']:9,.0f} env "
        f"steps/s, {row['update_gflop_per_second']['median']:5.1f} GFLOP/s, "
        f"{row['share_of_sgemm']['median']:.2f} of a large product",
        flush=True,
    )
    return row


def measure_at_once(n_envs: int, width: int, rounds: int) -> dict[str, Any]:
    """Return the speed of one training, of as many as there are cores, and of twice as many."""
    counts = (1, usable_cores(), 2 * usable_cores())
    env_steps = AT_ONCE[n_envs, width] * n_envs * SETTINGS["n_steps"]
    trainings = [
        PPO("CartPole-v1", n_envs=n_envs, hidden=width, backend="native", seed=s, **SETTINGS)
        for s in range(max(counts))
    ]
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    busy: dict[int, list[float]] = {count: [] for count in counts}
    with torch_threads(1), ThreadPoolExecutor(max(counts)) as pool:
        for _ in range(rounds + 1):
            for count in counts:
                wall, processor = time.perf_counter(), time.process_time()
                list(pool.map(lambda ppo: ppo.train(env_steps), trainings[:count]))
                wall = time.perf_counter() - wall
                speeds[count].append(count * env_steps / wall)
                busy[count].append((time.process_time() - processor) / wall)
    row = {
        "n_envs": n_envs,
        "width": width,
        "by_trainings": {
            str(count): {
                "env_steps_per_second": summary(speeds[count][1:]),
                "times_one": ratio_summary(speeds[count][1:], speeds[1][1:]),
                "cores_busy": summary(busy[count][1:]),
            }
            for count in counts
        },
    }
    for count, figures in row["by_trainings"].items():
        print(
            f"{n_envs:4d} envs, width {width:4d}, {count} trainings: "
            f"{figures['env_steps_per_second']['median']:9,.0f} env steps/s in all, "
            f"{figures['times_one']['median']:.2f} times one, "
            f"{figures['cores_busy']['median']:.2f} cores busy",
            flush=True,
        )
    return row


def draw(rows: list[dict[str, Any]], at_once: list[dict[str, Any]]) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=130, layout="constrained")
    speed, share, beside = figure.subplots(1, 3)
    for n_envs in ENVS:
        mine = [row for row in rows if row["n_envs"] == n_envs]
        widths = [row["width"] for row in mine]
        for panel, key in ((speed, "env_steps_per_second"), (share, "share_of_sgemm")):
            panel.plot(widths, [row[key]["median"] for row in mine], "o-", label=f"{n_envs} envs")
    for panel, title in ((speed, "env steps per second"), (share, "share of a large product")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(WIDTHS, map(str, WIDTHS))
        panel.set_xlabel("units per hidden layer")
        panel.set_title(title)
        panel.legend()
    speed.set_yscale("log")
    share.set_ylim(0, 1)
    for row in at_once:
        counts = [int(count) for count in row["by_trainings"]]
        times = [figures["times_one"]["median"] for figures in row["by_trainings"].values()]
        beside.plot(counts, times, "o-", label=f"{row['n_envs']} envs, width {row['width']}")
    beside.plot([1, usable_cores()], [1, usable_cores()], ":", color="grey", label="all cores")
    beside.set_xlabel("trainings at once, in threads")
    beside.set_title("speed of all, times one")
    beside.legend()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
