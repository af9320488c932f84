"""From the start of a process to a solved CartPole-v1: rlox and Stable-Baselines3.

Each contender is a fresh process that imports, trains PPO and evaluates ten episodes every 4096 env
steps, until their mean return is at least 475. Hyperparameters are the same. Processor seconds
measure the work even on a busy machine, wall-clock seconds the time that it took there.

    python benchmarks/time_to_solve.py [--seeds 5] [--settings zoo]
"""

from __future__ import annotations

import argparse
from typing import Any

import ppo_end_to_end
from measure import kept, machine, ratio_summary, run_process, summary, write

ZOO: dict[str, Any] = {
    "n_steps": 32,
    "n_epochs": 20,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
QUICK = {**ZOO, "n_steps": 64, "n_epochs": 4, "batch_size": 64, "learning_rate": 4e-3}
SETTINGS = {"zoo": ZOO, "throughput": ppo_end_to_end.SETTINGS, "quick": QUICK}
"""Hyperparameters of both: RL Baselines3 Zoo's with constant rates, which learn from few env steps;
those of ``ppo_end_to_end.py``; and one of the fastest three of 24 (medians of 0.18 to 0.19 s) with
seeds 10 to 21, none of which is measured here."""

ENVS, STEPS_BETWEEN, MOST_STEPS, EPISODES, SOLVED = 8, 4096, 200_000, 10, 475.0

RLOX = """
from rlox.algorithms import PPO

ppo = PPO("CartPole-v1", n_envs=ENVS, seed=SEED, **SETTINGS)
while ppo.clock.env_steps < MOST_STEPS:
    ppo.train(STEPS_BETWEEN)
    if ppo.evaluate(n_episodes=EPISODES).mean_return >= SOLVED:
        break
print(ppo.clock.env_steps)
"""

STABLE_BASELINES3 = """
import torch

torch.set_num_threads(1)
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

env = make_vec_env("CartPole-v1", ENVS, seed=SEED)
test = make_vec_env("CartPole-v1", EPISODES, seed=SEED + 1000)
ppo = PPO("MlpPolicy", env, device="cpu", seed=SEED, **SETTINGS)
while ppo.num_timesteps < MOST_STEPS:
    ppo.learn(STEPS_BETWEEN, reset_num_timesteps=False)
    if evaluate_policy(ppo, test, EPISODES)[0] >= SOLVED:
        break
print(ppo.num_timesteps)
"""

TORCH = "python, torch imported"

CONTENDERS = {
    TORCH: "import torch; print(0)",
    "rlox": RLOX,
    "stable-baselines3": STABLE_BASELINES3,
}


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/time_to_solve.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--settings", choices=SETTINGS, help="the others keep their rows")
    arguments = parser.parse_args()
    where = machine(["rlox-core", "rlox-native", "stable-baselines3", "torch", "gymnasium"])
    result = kept("time_to_solve")
    result |= {"n_envs": ENVS, "seeds": arguments.seeds, "machine": where}
    for name in [arguments.settings] if arguments.settings else SETTINGS:
        result[name] = {"settings": SETTINGS[name], "rows": measure(name, arguments.seeds)}
    print(write("time_to_solve", result))


def measure(settings: str, seeds: int) -> list[dict[str, Any]]:
    """Run all contenders in turn, seed by seed, and return a row of figures for each."""
    for code in CONTENDERS.values():
        run(code, 0, settings)
    runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in CONTENDERS}
    for seed in range(seeds):
        for name, code in CONTENDERS.items():
            runs[name].append(run(code, seed, settings))
    rows = []
    for name, figures in runs.items():
        wall, processor, env_steps = zip(*figures, strict=True)
        peer_wall, peer_processor, _ = zip(*runs["stable-baselines3"], strict=True)
        torch_wall, torch_processor, _ = zip(*runs[TORCH], strict=True)
        row: dict[str, Any] = {
            "contender": name,
            "wall_seconds": summary(wall),
            "processor_seconds": summary(processor),
            "env_steps": env_steps,
            "times_as_fast_as_stable_baselines3": {
                "wall": ratio_summary(peer_wall, wall),
                "processor": ratio_summary(peer_processor, processor),
            },
            "times_as_long_as_importing_torch": {
                "wall": ratio_summary(wall, torch_wall),
                "processor": ratio_summary(processor, torch_processor),
            },
        }
        rows.append(row)
        print(
            f"{settings}, {name:24s} {row['wall_seconds']['median']:7.2f} s, of the processor "
            f"{row['processor_seconds']['median']:7.2f} s, env steps {env_steps}, importing torch "
            f"times {row['times_as_long_as_importing_torch']['processor']['median']:.2f}"
        )
    return rows


def run(code: str, seed: int, settings: str) -> tuple[float, float, int]:
    """Return seconds of wall-clock and processor time, and the env steps that were needed."""
    names = ("ENVS", "STEPS_BETWEEN", "MOST_STEPS", "EPISODES", "SOLVED")
    constants = f"SETTINGS = {SETTINGS[settings]!r}\n"
    constants += "".join(f"{name} = {globals()[name]!r}\n" for name in names)
    wall, processor, printed = run_process(f"{constants}SEED = {seed}\n{code}")
    return wall, processor, int(printed.split()[-1])


if __name__ == "__main__":
    main()
