"""Learning curves of PPO on MuJoCo: rlox and Stable-Baselines3 at equal settings.

One run per call, so that several can be made side by side; the settings are those of
``examples/ppo-mujoco.yaml`` for both. Every run adds a file to ``results/ppo_mujoco``, and
``summarize`` prints what they come to and draws the curves.

    python benchmarks/ppo_mujoco.py run rlox HalfCheetah-v5 0
    python benchmarks/ppo_mujoco.py run stable-baselines3 HalfCheetah-v5 0
    python benchmarks/ppo_mujoco.py summarize

Needs gymnasium[mujoco].
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import rlox
import torch
from measure import RESULTS, machine
from rlox.logging import LoggerCallback, Metrics
from rlox.statistics import bootstrap_iqm

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples" / "ppo-mujoco.yaml"
PICTURE = ROOT / "docs" / "reference" / "algorithms" / "ppo-mujoco.png"
FOLDER = RESULTS / "ppo_mujoco"
ENV_STEPS = 1_000_000
EVERY = 10_240
"""Env steps between the points of a curve; five rollouts."""
EPISODES = 20
"""Deterministic ones after training."""

Curve = list[tuple[int, float]]


def main() -> None:
    """Make one run, or summarise those there are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train once")
    run.add_argument("contender", choices=CONTENDERS)
    run.add_argument("env")
    run.add_argument("seed", type=int)
    commands.add_parser("summarize", help="print a table and draw the curves")
    arguments = parser.parse_args()
    if arguments.command == "summarize":
        summarize()
        return
    torch.set_num_threads(1)
    started = time.process_time()
    curve, returns = CONTENDERS[arguments.contender](arguments.env, arguments.seed)
    result = {
        "contender": arguments.contender,
        "env": arguments.env,
        "seed": arguments.seed,
        "processor_seconds": round(time.process_time() - started, 1),
        "final_return": curve[-1][1],
        "evaluation": {"mean": float(np.mean(returns)), "std": float(np.std(returns))},
        "curve": curve,
        "machine": machine(
            ["rlox-core", "rlox-native", "stable-baselines3", "gymnasium", "mujoco", "torch"]
        ),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{arguments.contender}-{arguments.env}-{arguments.seed}.json"
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(path, result["final_return"], result["evaluation"], flush=True)


class CurveLogger(LoggerCallback):
    """Keeps the mean return of the last 100 episodes."""

    def __init__(self) -> None:
        self.curve: Curve = []

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Keep a point where one is due."""
        if np.isfinite(metrics["mean_reward"]) and (step % EVERY == 0 or step >= ENV_STEPS):
            self.curve.append((step, round(metrics["mean_reward"], 2)))


def train_rlox(env_id: str, seed: int) -> tuple[Curve, list[float]]:
    """Return the curve, and the returns of the evaluation."""
    logger = CurveLogger()
    algorithm = rlox.make("ppo", env=env_id, seed=seed, config=CONFIG, logger=logger)
    algorithm.train(ENV_STEPS)
    return logger.curve, list(algorithm.evaluate(n_episodes=EPISODES).returns)


def train_stable_baselines3(env_id: str, seed: int) -> tuple[Curve, list[float]]:
    """Return the curve, and the returns of the evaluation."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    class CurveCallback(BaseCallback):  # type: ignore[misc]  # the package has no types
        def __init__(self) -> None:
            super().__init__()
            self.curve: Curve = []

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            episodes = self.model.ep_info_buffer
            if episodes and (self.num_timesteps % EVERY == 0 or self.num_timesteps >= ENV_STEPS):
                mean = np.mean([episode["r"] for episode in episodes])
                self.curve.append((self.num_timesteps, round(float(mean), 2)))

    env = VecNormalize(make_vec_env(env_id, 1, seed=seed), gamma=0.99)
    callback = CurveCallback()
    model = PPO(
        "MlpPolicy",
        env,
        seed=seed,
        n_steps=2048,
        batch_size=64,
        n_epochs=10,
        learning_rate=lambda remaining: 3e-4 * remaining,
        gamma=0.99,
        gae_lambda=0.95,
        device="cpu",
    )
    model.learn(ENV_STEPS, callback=callback)
    env.training = env.norm_reward = False
    returns, _ = evaluate_policy(model, env, EPISODES, return_episode_rewards=True)
    return callback.curve, returns


CONTENDERS: dict[str, Any] = {
    "rlox": train_rlox,
    "stable-baselines3": train_stable_baselines3,
}


def summarize() -> None:
    """Print final returns with their intervals, and draw all curves."""
    import matplotlib.pyplot as plt

    runs: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(FOLDER.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        runs[run["env"]][run["contender"]].append(run)
    figure, axes = plt.subplots(1, len(runs), figsize=(4 * len(runs), 3.2), squeeze=False)
    for axis, (env_id, contenders) in zip(axes[0], runs.items(), strict=True):
        for name, of_contender in contenders.items():
            finals = [run["final_return"] for run in of_contender]
            spread = f" ± {np.std(finals, ddof=1):,.0f}" if len(finals) > 1 else ""
            print(
                f"| {env_id} | {name} | {len(finals)} | {np.mean(finals):,.0f}{spread} | "
                f"{', '.join(f'{final:,.0f}' for final in finals)} |"
            )
            steps = np.arange(EVERY, ENV_STEPS, EVERY)
            curves = [np.interp(steps, *np.transpose(run["curve"])) for run in of_contender]
            iqm = bootstrap_iqm([np.stack(curves)])
            axis.plot(steps, iqm.value, label=name)
            axis.fill_between(steps, iqm.low, iqm.high, alpha=0.2)
        axis.set(title=env_id, xlabel="env steps")
    axes[0][0].set_ylabel("mean return, last 100 episodes")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100)


if __name__ == "__main__":
    main()
