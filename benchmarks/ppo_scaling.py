"""Scaling of the native PPO learner: number of envs, width of networks, trainings at once.

Its arithmetic per second is compared with a large matrix product's on one core, measured in turn
with it. Trainings at once are threads of one process, first bare, then all of
``rlox train ppo --seeds``, with run folders, logs, checkpoints and evaluations.

Speeds in the picture are those of the fastest turns, as others measure other programs. Needs Linux.

    python benchmarks/ppo_scaling.py [--seconds 4]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import interleave, machine, summary, usable_cores, write
from rlox.batches.rollout import estimate_advantages
from rlox.cli.app import build_app
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks
from rlox_onpolicy.ppo import PPO

SETTINGS: dict[str, Any] = {"n_steps": 128, "n_epochs": 4, "batch_size": 256}

ENVS, WIDTHS = (8, 64, 256), (32, 64, 128, 256)

AT_ONCE = {(8, 64): 20, (64, 64): 3, (64, 256): 1}
"""Iterations of each training, by envs and width, if several run at once."""

FEWEST_ROUNDS, MOST_ROUNDS = 3, 40

RATES = {"learning_rate": 1e-9, "clip_eps": 0.2, "ent_coef": 0.01}

SWEEP = ("train", "ppo", "--env", "CartPole-v1", "--seeds", "4", "--total-timesteps", "50000")

PICTURE = Path(__file__).parents[1] / "docs" / "explanation" / "ppo-scaling.png"


def main() -> None:
    """Measure, write ``benchmarks/results/<processor>/ppo_scaling.json`` and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="to spend on each row")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    where = machine(["rlox-core", "rlox-native", "torch"])
    at_once = [measure_at_once(n_envs, width, seconds) for n_envs, width in AT_ONCE]
    result: dict[str, Any] = {
        "settings": SETTINGS,
        "machine": where,
        "trainings_at_once": at_once,
        "sweep": measure_sweep(seconds),
        "rows": [measure_size(n_envs, width, seconds) for width in WIDTHS for n_envs in ENVS],
    }
    print(write("ppo_scaling", result))
    draw(result["rows"], at_once)


def update_flop(rows: int, width: int, obs_dim: int = 4, n_actions: int = 2) -> float:
    """Return the floating-point operations of the matrix products of an epoch over ``rows``.

    Forward, and backward twice that without the gradient with respect to the observations.
    """
    first, second, last = 2 * obs_dim * width, 2 * width * width, (n_actions + 1) * width
    return 2.0 * rows * (2 * first + 3 * second + 3 * last)


def take_turns(contenders: dict[str, Any], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each call, in as many rounds as fit into ``seconds``."""
    interleave(contenders, 1)
    first = interleave(contenders, 1)
    rounds = int(seconds / sum(times[0] for times in first.values()))
    others = interleave(contenders, max(FEWEST_ROUNDS, min(MOST_ROUNDS, rounds)) - 1)
    return {name: [*times, *others[name]] for name, times in first.items()}


def measure_size(n_envs: int, width: int, budget: float) -> dict[str, Any]:
    """Return the speed of an iteration and of its parts, and the share of the peak."""
    ppo = PPO("CartPole-v1", n_envs=n_envs, hidden=width, backend="native", **SETTINGS)
    hooks, n_steps = Hooks(ppo), SETTINGS["n_steps"]
    unroll = ppo.learner.collect(n_steps, hooks)
    batch = estimate_advantages(unroll, ppo.policy, ppo.config.gamma, ppo.config.gae_lambda)
    objective = ppo._objective(RATES)
    square = torch.rand(1024, 1024)
    contenders = {
        "iteration": lambda: ppo.train(1),
        "collect": lambda: ppo.learner.collect(n_steps, hooks),
        "update": lambda: ppo.learner.update(batch, objective, RATES["learning_rate"], hooks),
        "product": lambda: square @ square,
    }
    seconds = take_turns(contenders, budget)
    flop = SETTINGS["n_epochs"] * update_flop(n_envs * n_steps, width)
    peak = 2 * 1024**3 / min(seconds["product"])
    row: dict[str, Any] = {
        "n_envs": n_envs,
        "width": width,
        "env_steps_per_second": summary([n_envs * n_steps / s for s in seconds["iteration"]]),
        "update_gflop_per_second": summary([flop / s / 1e9 for s in seconds["update"]]),
        "share_of_sgemm": flop / min(seconds["update"]) / peak,
        "milliseconds": {k: summary([1e3 * s for s in v]) for k, v in seconds.items()},
    }
    ppo.close()
    print(
        f"{n_envs:4d} envs, width {width:4d} {row['env_steps_per_second']['max']:9,.0f} env "
        f"steps/s, {row['update_gflop_per_second']['max']:5.1f} GFLOP/s, "
        f"{row['share_of_sgemm']:.2f} of a large product",
        flush=True,
    )
    return row


def measure_at_once(n_envs: int, width: int, budget: float) -> dict[str, Any]:
    """Return how one training, one per core, and two per core use the cores.

    Linux reports how long a thread ran and how long it waited for a core. The rest of the time it
    waited for the other trainings, which is for Python's lock.
    """
    counts = (1, usable_cores(), 2 * usable_cores())
    env_steps = AT_ONCE[n_envs, width] * n_envs * SETTINGS["n_steps"]
    trainings = [
        PPO("CartPole-v1", n_envs=n_envs, hidden=width, backend="native", seed=s, **SETTINGS)
        for s in range(max(counts))
    ]
    turns: dict[str, list[tuple[float, float]]] = {str(count): [] for count in counts}
    with torch_threads(1), ThreadPoolExecutor(max(counts)) as pool:

        def train(ppo: PPO) -> tuple[float, float]:
            before = running_and_ready()
            ppo.train(env_steps)
            running, ready = running_and_ready()
            return running - before[0], ready - before[1]

        def turn(count: int) -> None:
            started = time.perf_counter()
            running, ready = zip(*pool.map(train, trainings[:count]), strict=True)
            wall = time.perf_counter() - started
            asked = (sum(running) + sum(ready)) / wall
            turns[str(count)].append((asked, count * env_steps / sum(running)))

        seconds = take_turns({str(count): partial(turn, count) for count in counts}, budget)
    row: dict[str, Any] = {"n_envs": n_envs, "width": width, "by_trainings": {}}
    for count, figures in seconds.items():
        asked, per_second = zip(*turns[count][1:], strict=True)
        row["by_trainings"][count] = {
            "env_steps_per_second": summary([int(count) * env_steps / s for s in figures]),
            "env_steps_per_processor_second": summary(per_second),
            "cores_asked_for": summary(asked),
        }
        print(
            f"{n_envs:4d} envs, width {width:4d}, {count} trainings at once ask for "
            f"{statistics.median(asked):.2f} cores, {statistics.median(per_second):9,.0f} env "
            "steps per processor second",
            flush=True,
        )
    return row


def running_and_ready() -> tuple[float, float]:
    """Return the seconds that this thread has run, and those that it has waited for a core."""
    running, ready, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    return int(running) / 1e9, int(ready) / 1e9


def measure_sweep(budget: float) -> dict[str, Any]:
    """Return the runs per minute of a sweep in one thread and in as many as there are cores."""
    counts = (1, usable_cores())
    used: dict[str, list[float]] = {str(count): [] for count in counts}

    def turn(count: int) -> None:
        before = time.process_time()
        sweep(count)
        used[str(count)].append(time.process_time() - before)

    seconds = take_turns({str(count): partial(turn, count) for count in counts}, budget)
    n_runs = int(SWEEP[SWEEP.index("--seeds") + 1])
    by_threads = {
        count: {
            "runs_per_minute": summary([60 * n_runs / s for s in figures]),
            "processor_seconds_per_run": summary([s / n_runs for s in used[count][1:]]),
        }
        for count, figures in seconds.items()
    }
    for count, figures in by_threads.items():
        runs = figures["runs_per_minute"]["median"]
        each = figures["processor_seconds_per_run"]["median"]
        line = f"{runs:.0f} runs a minute, {each:.2f} processor seconds each"
        print(f"a sweep in {count} threads: {line}", flush=True)
    return {"command": " ".join(("rlox", *SWEEP)), "by_threads": by_threads}


def sweep(n_threads: int) -> None:
    """Train every seed of the sweep."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        options = ("--jobs", str(n_threads), "--run-dir", folder + "/sweep")
        code = build_app()(args=[*SWEEP, *options], prog_name="rlox", standalone_mode=False)
    if code:
        raise RuntimeError(f"the sweep ended with exit code {code}")


def draw(rows: list[dict[str, Any]], at_once: list[dict[str, Any]]) -> None:
    """Write the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=130, layout="constrained")
    speed, share, beside = figure.subplots(1, 3)
    for n_envs in ENVS:
        mine = [row for row in rows if row["n_envs"] == n_envs]
        widths = [row["width"] for row in mine]
        speeds = [row["env_steps_per_second"]["median"] for row in mine]
        speed.plot(widths, speeds, "o-", label=f"{n_envs} envs")
        share.plot(widths, [row["share_of_sgemm"] for row in mine], "o-", label=f"{n_envs} envs")
    for panel, title in ((speed, "env steps per second"), (share, "share of a large product")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(WIDTHS, map(str, WIDTHS))
        panel.set_xlabel("units per hidden layer")
        panel.set_title(title)
        panel.legend()
    speed.set_yscale("log")
    share.set_ylim(bottom=0)
    for row in at_once:
        counts = [int(count) for count in row["by_trainings"]]
        cores = [each["cores_asked_for"]["median"] for each in row["by_trainings"].values()]
        beside.plot(counts, cores, "o-", label=f"{row['n_envs']} envs, width {row['width']}")
    ends = [1, 2 * usable_cores()]
    beside.plot(ends, ends, ":", color="grey", label="one each")
    beside.set_xticks([1, usable_cores(), 2 * usable_cores()])
    beside.set_xlabel("trainings at once, in threads")
    beside.set_title("cores that all together ask for")
    beside.legend()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
