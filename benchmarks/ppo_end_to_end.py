"""PPO on CartPole-v1, env steps per second with learning: rlox and Stable-Baselines3.

Equal hyperparameters, one torch thread each, both in one process and in turn, so that a busy
machine slows both alike. rlox runs twice: with its Rust env and with gymnasium's, which is what
Stable-Baselines3 steps.

    python benchmarks/ppo_end_to_end.py [--rounds 15] [--iterations 8]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import interleave, machine, ratio_summary, summary, write
from rlox_onpolicy.ppo import PPO
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.env_util import make_vec_env

SETTINGS: dict[str, Any] = {
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
"""Common to both; both have two 64×64 tanh networks and Adam."""


def main() -> None:
    """Measure and write ``benchmarks/results/ppo_end_to_end.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=8, help="rollouts per run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    where = machine(["rlox-core", "rlox-native", "stable-baselines3", "torch", "gymnasium"])
    for n_envs in (8, 64):
        env_steps = n_envs * SETTINGS["n_steps"] * arguments.iterations
        contenders = contenders_for(n_envs, env_steps)
        interleave(contenders, 1)
        seconds = interleave(contenders, arguments.rounds)
        speeds = {name: [env_steps / s for s in runs] for name, runs in seconds.items()}
        for name, values in speeds.items():
            ratio = ratio_summary(values, speeds["stable-baselines3"])
            rows.append(
                {
                    "contender": name,
                    "n_envs": n_envs,
                    "env_steps_per_second": summary(values),
                    "ratio_to_stable_baselines3": ratio,
                }
            )
            print(
                f"{n_envs:3d} envs  {name:20s} {summary(values)['median']:9,.0f} env steps/s  "
                f"{ratio['median']:5.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f})"
            )
    breakdown = where_time_goes()
    for part, milliseconds in breakdown.items():
        print(f"{part:30s} {milliseconds:7.2f} ms per iteration")
    path = write(
        "ppo_end_to_end",
        {
            "settings": SETTINGS,
            "rounds": arguments.rounds,
            "machine": where,
            "rows": rows,
            "rlox_native_env_milliseconds_per_iteration_of_1024_env_steps": breakdown,
        },
    )
    print(path)


def contenders_for(n_envs: int, env_steps: int) -> dict[str, Callable[[], Any]]:
    """Return the runs of ``env_steps`` env steps each."""
    sb3 = SB3PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs, seed=0), device="cpu", **SETTINGS)
    ours = {
        backend: PPO("CartPole-v1", n_envs=n_envs, env_backend=backend, **SETTINGS)
        for backend in ("native", "gymnasium")
    }
    return {
        "stable-baselines3": lambda: sb3.learn(env_steps, reset_num_timesteps=False),
        "rlox, native env": lambda: ours["native"].train(env_steps),
        "rlox, gymnasium env": lambda: ours["gymnasium"].train(env_steps),
    }


def where_time_goes(repeats: int = 50) -> dict[str, float]:
    """Return the median milliseconds that each part of one iteration of 8 envs takes."""
    ppo = PPO("CartPole-v1", env_backend="native", **SETTINGS)
    ppo.train(4096)
    batch = ppo.collector.collect(ppo.policy, 128)
    obs = batch.obs[:8]
    minibatch = next(batch.sample_minibatches(256))
    env, actions = ppo.collector.env, batch.actions[:8].numpy()
    gradient_steps = SETTINGS["n_epochs"] * 1024 // SETTINGS["batch_size"]

    def milliseconds(run: Callable[[], Any]) -> float:
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            runs.append((time.perf_counter() - started) * 1e3)
        return summary(runs)["median"]

    def forward_only() -> Any:
        return ppo._loss(minibatch, {"clip_eps": 0.2, "ent_coef": 0.01})

    def full_step() -> None:
        ppo.optimizer.step(forward_only()[0], 1e-9)

    with torch.no_grad():
        act = milliseconds(lambda: ppo.policy.get_action_and_logprob(obs))
    collect = milliseconds(lambda: ppo.collector.collect(ppo.policy, 128))
    env_step = milliseconds(lambda: env.step_all(actions))
    forward, step = milliseconds(forward_only), milliseconds(full_step)
    return {
        "collect: policy": 128 * act,
        "collect: env": 128 * env_step,
        "collect: everything else": collect - 128 * (act + env_step),
        "learn: forward and loss": gradient_steps * forward,
        "learn: backward and Adam": gradient_steps * (step - forward),
    }


if __name__ == "__main__":
    main()
