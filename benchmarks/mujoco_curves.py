"""Learning curves of PPO, SAC and TD3 on MuJoCo: rlox and Stable-Baselines3 at equal settings.

One run per call, so that several can run at once. PPO has the settings of
``examples/ppo-mujoco.yaml``, SAC and TD3 their defaults with :data:`SETTINGS`. Every run adds a
file to ``results/mujoco``; ``summarize`` prints final returns and draws the curves: the mean return
of the last 100 episodes for PPO, and of deterministic evaluation episodes for SAC and TD3, which
finish far fewer.

    python benchmarks/mujoco_curves.py run ppo rlox HalfCheetah-v5 0
    python benchmarks/mujoco_curves.py run ppo stable-baselines3 HalfCheetah-v5 0
    python benchmarks/mujoco_curves.py run td3 rlox HalfCheetah-v5 0 --env-steps 1000000
    python benchmarks/mujoco_curves.py summarize ppo

Needs gymnasium[mujoco].
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rlox
import stable_baselines3
import torch
from measure import RESULTS, machine
from rlox.callbacks import EvalCallback
from rlox.logging import LoggerCallback, Metrics
from rlox_offpolicy.configs import SACConfig, TD3Config
from rlox_tools.analysis import bootstrap_iqm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "reference" / "algorithms"
FOLDER = RESULTS / "mujoco"
EPISODES = 20
"""Deterministic episodes after training."""
EVALUATED = 5
"""Episodes for a point of SAC's and TD3's curves."""

SETTINGS: dict[str, dict[str, Any]] = {"sac": {}, "td3": {"learning_starts": 25_000}}
"""Other than the defaults, in both libraries. TD3's 25,000 are its authors' (sfujim/TD3)."""

PACKAGES = ["rlox-core", "rlox-native", "stable-baselines3", "gymnasium", "mujoco", "torch"]
"""Distributions whose versions are recorded."""

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Length:
    """Env steps of a training, and between two points of its curve."""

    env_steps: int
    every: int


LENGTHS = {
    "ppo": defaultdict(lambda: Length(1_000_000, 10_240)),
    "sac": {
        "InvertedPendulum-v5": Length(20_000, 1_000),
        "HalfCheetah-v5": Length(50_000, 2_500),
    },
    "td3": defaultdict(lambda: Length(300_000, 10_000)),
}
"""PPO has a point every five rollouts."""


def main() -> None:
    """Make one run, or summarise all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train once")
    run.add_argument("algorithm", choices=LENGTHS)
    run.add_argument("contender", choices=["rlox", "stable-baselines3"])
    run.add_argument("env")
    run.add_argument("seed", type=int)
    summary = commands.add_parser("summarize", help="print a table and draw the curves")
    summary.add_argument("algorithm", choices=LENGTHS)
    for command in (run, summary):
        command.add_argument("--env-steps", type=int, help="length of runs, if not the usual one")
    arguments = parser.parse_args()
    if arguments.command == "summarize":
        summarize(arguments.algorithm, arguments.env_steps)
        return
    torch.set_num_threads(1)
    algorithm, contender = arguments.algorithm, arguments.contender
    train = TRAINERS[algorithm, contender]
    started = time.process_time()
    length = length_of(algorithm, arguments.env, arguments.env_steps)
    curve, returns = train(arguments.env, arguments.seed, length)
    result = {
        "algorithm": algorithm,
        "contender": contender,
        "env": arguments.env,
        "seed": arguments.seed,
        "processor_seconds": round(time.process_time() - started, 1),
        "final_return": curve[-1][1],
        "evaluation": {"mean": float(np.mean(returns)), "std": float(np.std(returns))},
        "curve": curve,
        "machine": machine(PACKAGES),
    }
    folder = folder_of(arguments.env_steps)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{algorithm}-{contender}-{arguments.env}-{arguments.seed}.json"
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(path, result["final_return"], result["evaluation"], flush=True)


def length_of(algorithm: str, env_id: str, env_steps: int | None) -> Length:
    """Return the usual length, or one of ``env_steps`` with a point every 10,000."""
    return Length(env_steps, 10_000) if env_steps else LENGTHS[algorithm][env_id]


def folder_of(env_steps: int | None) -> Path:
    """Return the folder of runs of one length."""
    return FOLDER / f"{env_steps}" if env_steps else FOLDER


class CurveLogger(LoggerCallback):
    """Keeps the mean return of the last 100 episodes."""

    def __init__(self, length: Length) -> None:
        self.length, self.curve = length, list[tuple[int, float]]()

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Record a point if one is due."""
        due = step % self.length.every == 0 or step >= self.length.env_steps
        if due and np.isfinite(metrics["mean_reward"]):
            self.curve.append((step, round(metrics["mean_reward"], 2)))


def train_ppo(env_id: str, seed: int, length: Length) -> tuple[Curve, list[float]]:
    """Return the curve of rlox's PPO, and the evaluation's returns."""
    logger = CurveLogger(length)
    config = ROOT / "examples" / "ppo-mujoco.yaml"
    algorithm = rlox.make("ppo", env=env_id, seed=seed, config=config, logger=logger)
    algorithm.train(length.env_steps)
    return logger.curve, list(algorithm.evaluate(n_episodes=EPISODES).returns)


def train_off_policy(
    name: str, env_id: str, seed: int, length: Length
) -> tuple[Curve, list[float]]:
    """Return the curve of rlox's SAC or TD3, and the evaluation's returns."""
    callback = EvalCallback(None, length.every, EVALUATED, verbose=False)
    config = {"seed": seed, **SETTINGS[name]}
    algorithm = rlox.make(name, env=env_id, config=config, callbacks=[callback])
    algorithm.train(length.env_steps)
    return callback.eval_results, list(algorithm.evaluate(n_episodes=EPISODES).returns)


class TheirCurve(BaseCallback):
    """Records a curve of Stable-Baselines3."""

    def __init__(self, length: Length) -> None:
        super().__init__()
        self.length, self.curve = length, list[tuple[int, float]]()

    def _on_step(self) -> bool:
        return True

    def _keep(self, mean: Any) -> None:
        self.curve.append((self.num_timesteps, round(float(mean), 2)))


class EpisodesCurve(TheirCurve):
    """Keeps the mean return of the last 100 episodes."""

    def _on_rollout_end(self) -> None:
        episodes, step = self.model.ep_info_buffer, self.num_timesteps
        if episodes and (step % self.length.every == 0 or step >= self.length.env_steps):
            self._keep(np.mean([episode["r"] for episode in episodes]))


class EvaluationsCurve(TheirCurve):
    """Keeps the mean return of deterministic episodes."""

    def __init__(self, length: Length, env: Any) -> None:
        super().__init__(length)
        self.env = env

    def _on_step(self) -> bool:
        if self.num_timesteps % self.length.every == 0:
            self._keep(evaluate_policy(self.model, self.env, EVALUATED)[0])
        return True


def train_their_ppo(env_id: str, seed: int, length: Length) -> tuple[Curve, list[float]]:
    """Return the curve of Stable-Baselines3's PPO, and the evaluation's returns."""
    env = VecNormalize(make_vec_env(env_id, 1, seed=seed), gamma=0.99)
    callback = EpisodesCurve(length)
    model = stable_baselines3.PPO(
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
    model.learn(length.env_steps, callback=callback)
    env.training = env.norm_reward = False
    returns: Any = evaluate_policy(model, env, EPISODES, return_episode_rewards=True)[0]
    return callback.curve, returns


def make_theirs(name: str, config: Any, env: Any, seed: int, **options: Any) -> Any:
    """Return Stable-Baselines3's SAC or TD3 with the options of a config of rlox."""
    return {"sac": stable_baselines3.SAC, "td3": stable_baselines3.TD3}[name](
        "MlpPolicy",
        env,
        seed=seed,
        learning_rate=config.learning_rate,
        buffer_size=config.buffer_size,
        learning_starts=config.learning_starts,
        batch_size=config.batch_size,
        tau=config.tau,
        gamma=config.gamma,
        train_freq=config.train_freq,
        gradient_steps=config.gradient_steps,
        policy_kwargs={"net_arch": [config.hidden] * 2},
        device="cpu",
        **options,
    )


def train_their_off_policy(
    name: str, env_id: str, seed: int, length: Length
) -> tuple[Curve, list[float]]:
    """Return the curve of Stable-Baselines3's SAC or TD3, and the evaluation's returns."""
    config: Any = (SACConfig if name == "sac" else TD3Config)(**SETTINGS[name])
    env, eval_env = make_vec_env(env_id, 1, seed=seed), make_vec_env(env_id, 1, seed=0)
    callback = EvaluationsCurve(length, eval_env)
    options: dict[str, Any] = {}
    if name == "td3":
        size = env.action_space.sample().size
        options["policy_delay"] = config.policy_delay
        options["target_policy_noise"] = config.target_noise
        options["target_noise_clip"] = config.noise_clip
        options["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, config.noise_std))
    model = make_theirs(name, config, env, seed, **options)
    model.learn(length.env_steps, callback=callback)
    returns: Any = evaluate_policy(model, eval_env, EPISODES, return_episode_rewards=True)[0]
    return callback.curve, returns


TRAINERS: dict[tuple[str, str], Any] = {
    ("ppo", "rlox"): train_ppo,
    ("ppo", "stable-baselines3"): train_their_ppo,
    ("sac", "rlox"): partial(train_off_policy, "sac"),
    ("sac", "stable-baselines3"): partial(train_their_off_policy, "sac"),
    ("td3", "rlox"): partial(train_off_policy, "td3"),
    ("td3", "stable-baselines3"): partial(train_their_off_policy, "td3"),
}


def runs_until(algorithm: str, env_steps: int | None) -> list[dict[str, Any]]:
    """Return the runs of the usual length, or those of ``env_steps`` and starts of longer ones.

    SAC and TD3 learn the same whatever the length; PPO, whose step size falls to 0 at the end, does
    not. The longest run of a seed counts.
    """
    found: dict[str, dict[str, Any]] = {}
    for folder in [FOLDER] if env_steps is None else folders_from(algorithm, env_steps):
        for path in folder.glob(f"{algorithm}-*.json"):
            run = json.loads(path.read_text(encoding="utf-8"))
            if env_steps is not None:
                run["curve"] = [point for point in run["curve"] if point[0] <= env_steps]
                run["final_return"] = run["curve"][-1][1]
            found[path.name] = run
    return [found[name] for name in sorted(found)]


def folders_from(algorithm: str, env_steps: int) -> list[Path]:
    """Return the folders of runs at least that long, the longest last; for PPO the exact one."""
    if algorithm == "ppo":
        return [folder_of(env_steps)]
    lengths = sorted(int(path.name) for path in FOLDER.iterdir() if path.name.isdecimal())
    return [folder_of(length) for length in lengths if length >= env_steps]


def summarize(algorithm: str, env_steps: int | None) -> None:
    """Print final returns with deviations, and draw all curves, for runs of one length."""
    import matplotlib.pyplot as plt

    runs: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs_until(algorithm, env_steps):
        runs[run["env"]][run["contender"]].append(run)
    figure, axes = plt.subplots(1, len(runs), figsize=(4 * len(runs), 3.2), squeeze=False)
    for axis, (env_id, contenders) in zip(axes[0], runs.items(), strict=True):
        length = length_of(algorithm, env_id, env_steps)
        for name, of_contender in contenders.items():
            finals = [run["final_return"] for run in of_contender]
            spread = f" ± {np.std(finals, ddof=1):,.0f}" if len(finals) > 1 else ""
            print(
                f"| {env_id} | {name} | {len(finals)} | {np.mean(finals):,.0f}{spread} | "
                f"{', '.join(f'{final:,.0f}' for final in finals)} |"
            )
            steps = np.arange(length.every, length.env_steps, length.every)
            curves = [np.interp(steps, *np.transpose(run["curve"])) for run in of_contender]
            iqm = bootstrap_iqm([np.stack(curves)])
            axis.plot(steps, iqm.value, label=name)
            axis.fill_between(steps, iqm.low, iqm.high, alpha=0.2)
        axis.set(title=env_id, xlabel="env steps")
    axes[0][0].set_ylabel("mean return")
    axes[0][0].legend()
    figure.tight_layout()
    longer = f"-{env_steps}" if env_steps else ""
    figure.savefig(PICTURES / f"{algorithm}-mujoco{longer}.png", dpi=100)


if __name__ == "__main__":
    main()
