"""DreamerV3 on CartPole-v1: returns over env steps and time, rlox and sheeprl at equal sizes.

python benchmarks/dreamer_learning.py --sheeprl ENV/bin/python [--seeds 3] [--jobs 2]
[--env-steps 30000] [--runs FOLDER]

rlox has its defaults. sheeprl's is ``dreamer_v3_5``, in its own loop, with rlox's sizes, batch,
replay ratio, step size, warm-up, discount, KL scales, first training step, buffer and one thread.
Every 1,000 env steps the policy plays 100 deterministic episodes, and a run ends once their mean is
450. Seconds are the process's processor time without those episodes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dreamer_sizes import SIZES, sheeprl_options
from run_files import Point, append, points_of

ENV_ID, EPISODES, EVERY, SOLVED = "CartPole-v1", 100, 1_000, 450.0
RLOX, SHEEPRL = "rlox", "sheeprl"

Report = Callable[[int, Callable[[], float]], bool]
"""Takes the env steps so far and a function that plays the episodes; returns if the run is over."""


def learn_rlox(seed: int, env_steps: int, report: Report) -> None:
    """Train with rlox."""
    import rlox

    algorithm = rlox.make("dreamer_v3", env=ENV_ID, seed=seed, torch_threads=1)
    for done in range(EVERY, env_steps + 1, EVERY):
        algorithm.train(EVERY)
        if report(done, lambda: algorithm.evaluate(n_episodes=EPISODES).mean_return):
            return


def learn_sheeprl(seed: int, env_steps: int, report: Report) -> None:
    """Train with sheeprl, whose policy plays where it would save a checkpoint."""
    import sheeprl.utils.callback as callbacks
    import torch
    from sheeprl.cli import run

    def play_instead(_: Any, fabric: Any, ckpt_path: str, state: Any, replay_buffer: Any) -> None:
        done = int(Path(ckpt_path).name.split("_")[1])
        if report(done, lambda: play_sheeprl(fabric, options, state)):
            raise SystemExit  # hydra does not catch it

    callbacks.CheckpointCallback.on_checkpoint_coupled = play_instead
    torch.set_num_threads(1)
    equal = {
        "env.id": ENV_ID, "env.num_envs": 1, "env.sync_env": True, "env.capture_video": False,
        "seed": seed, "num_threads": 1, "algo.total_steps": env_steps,
        "algo.replay_ratio": 0.5, "algo.learning_starts": 1000, "buffer.size": 10_000,
        "buffer.checkpoint": False, "buffer.memmap": False, "buffer.online": True,
        "algo.optimizer.lr": 3e-4, "algo.optimizer.warmup": 100, "algo.gamma": 0.99,
        "algo.loss_scales.dynamic": 0.8, "algo.loss_scales.representation": 0.2,
        "checkpoint.every": EVERY, "checkpoint.save_last": False, "algo.run_test": False,
        "metric.log_level": 0, "metric.disable_timer": True,
    }  # fmt: skip
    options = sheeprl_options(SIZES["debug"], "state")
    options += [f"{name}={value}" for name, value in equal.items()]
    sys.argv[1:] = options
    run()


def play_sheeprl(fabric: Any, options: list[str], state: dict[str, Any]) -> float:
    """Return the mean return of sheeprl's deterministic policy, one episode in each env."""
    import gymnasium
    import numpy as np
    import torch
    from hydra import compose
    from omegaconf import OmegaConf
    from sheeprl.algos.dreamer_v3_5.agent import build_agent
    from sheeprl.utils.utils import dotdict

    drawn = torch.get_rng_state()
    config = dotdict(OmegaConf.to_container(compose("config", overrides=options), resolve=True))
    envs = gymnasium.make_vec(ENV_ID, EPISODES)
    space = gymnasium.spaces.Dict({"state": envs.single_observation_space})
    models = state["world_model"], state["actor"]
    *_, player = build_agent(fabric, (2,), False, config, space, *models)
    player.num_envs = EPISODES
    player.init_states()
    obs, _ = envs.reset(seed=10_000)
    returns, over = np.zeros(EPISODES), np.zeros(EPISODES, bool)
    while not over.all():
        with torch.inference_mode():
            (chosen,) = player.get_actions({"state": torch.as_tensor(obs)[None]}, greedy=True)
        obs, rewards, terminated, truncated, _ = envs.step(chosen[0].argmax(-1).numpy())
        returns += np.where(over, 0, rewards)
        over |= terminated | truncated
    envs.close()
    torch.set_rng_state(drawn)
    return float(returns.mean())


LEARN = {RLOX: learn_rlox, SHEEPRL: learn_sheeprl}


def train(name: str, seed: int, env_steps: int, file: Path) -> None:
    """Train a contender with a seed, and append a line of JSON to a file at every point."""
    file.unlink(missing_ok=True)
    learning, since = 0.0, time.process_time()

    def report(done: int, play: Callable[[], float]) -> bool:
        nonlocal learning, since
        learning += time.process_time() - since
        mean = round(play(), 1)
        point = {"env_steps": done, "mean_return": mean, "processor_seconds": round(learning, 1)}
        append(file, point)
        print(name, seed, point, flush=True)
        since = time.process_time()
        return mean >= SOLVED or done >= env_steps

    LEARN[name](seed, env_steps, report)


def points(name: str, python: str, seed: int, env_steps: int, folder: Path) -> list[Point]:
    """Return the points of a run, made in a process of its own unless its file is complete."""
    file = folder / f"{name}-{seed}.jsonl"

    def is_over(found: list[Point]) -> bool:
        last = found[-1:]
        return any(p["mean_return"] >= SOLVED or p["env_steps"] >= env_steps for p in last)

    command = [python, __file__, "--contender", name, "--seed", str(seed)]
    return points_of(
        file, is_over, [*command, "--env-steps", str(env_steps), "--file", file], cwd=folder
    )


def main() -> None:
    """Train, play, and write ``benchmarks/results/<processor>/dreamer_learning.json``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sheeprl", help="interpreter that has sheeprl")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=30_000, help="maximum of a run")
    parser.add_argument("--jobs", type=int, default=2, help="processes that train at once")
    parser.add_argument("--runs", type=Path, help="folder of runs; complete ones are not repeated")
    parser.add_argument("--contender", choices=LEARN, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender is not None:
        return train(given.contender, given.seed, given.env_steps, given.file.absolute())

    from measure import machine, write

    folder = (given.runs or Path(tempfile.mkdtemp())).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    pythons = {RLOX: sys.executable, SHEEPRL: given.sheeprl}
    with ThreadPoolExecutor(given.jobs) as pool:
        started: dict[str, list[Future[list[Point]]]] = {}
        for seed in range(given.seeds):  # both contenders at once, under the same load
            for name, python in pythons.items():
                if python:
                    run = pool.submit(points, name, python, seed, given.env_steps, folder)
                    started.setdefault(name, []).append(run)
    contenders = {}
    for name, runs in started.items():
        found = [run.result() for run in runs]
        last = [run[-1] for run in found]
        contenders[name] = {
            "curves": found,
            "solved": sum(point["mean_return"] >= SOLVED for point in last),
            "median_env_steps": statistics.median(point["env_steps"] for point in last),
            "median_processor_seconds": statistics.median(
                point["processor_seconds"] for point in last
            ),
        }
        print(name, {k: v for k, v in contenders[name].items() if k != "curves"})
    print(write("dreamer_learning", {
        "machine": machine(["rlox-dreamer", "torch"]), "env": ENV_ID,
        "env_steps": given.env_steps, "solved_at": SOLVED, "episodes": EPISODES,
        "sizes": SIZES["debug"], "sheeprl": "0.8.4",
        "contenders": contenders,
    }))  # fmt: skip
    return None


if __name__ == "__main__":
    main()
