"""PPO on CartPole-v1, env steps per second with learning: rlox, Stable-Baselines3 and sbx.

Equal hyperparameters, one thread each, all in one process and in turn, so that a busy machine slows
all alike. rlox runs with either learner backend, and with gymnasium's env, which is what the others
step. sbx, which is Stable-Baselines3 in JAX, takes part where it is installed.

    python benchmarks/ppo_end_to_end.py [--rounds 15] [--iterations 8]
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measure import interleave, machine, ratio_summary, summary, write
from rlox.runner import Hooks
from rlox_onpolicy.ppo import PPO
from rlox_onpolicy.ppo_update import minibatch_loss
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
    where = machine(
        ["rlox-core", "rlox-native", "stable-baselines3", "sbx-rl", "jax", "torch", "gymnasium"]
    )
    for n_envs in (8, 64):
        env_steps = n_envs * SETTINGS["n_steps"] * arguments.iterations
        contenders = contenders_for(n_envs, env_steps)
        interleave(contenders, 1)
        seconds = interleave(contenders, arguments.rounds)
        speeds = {name: [env_steps / s for s in runs] for name, runs in seconds.items()}
        for name, values in speeds.items():
            ratio = ratio_summary(values, speeds["stable-baselines3"])
            row = {
                "contender": name,
                "n_envs": n_envs,
                "env_steps_per_second": summary(values),
                "ratio_to_stable_baselines3": ratio,
            }
            if "sbx" in speeds:
                row["ratio_to_sbx"] = ratio_summary(values, speeds["sbx"])
            rows.append(row)
            print(
                f"{n_envs:3d} envs  {name:36s} {summary(values)['median']:9,.0f} env steps/s  "
                f"{ratio['median']:5.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f})"
            )
    breakdown = where_time_goes()
    shares = native_share_of_peak()
    print(shares)
    for part, milliseconds in breakdown.items():
        print(f"{part:30s} {milliseconds:7.2f} ms per iteration")
    path = write(
        "ppo_end_to_end",
        {
            "settings": SETTINGS,
            "rounds": arguments.rounds,
            "machine": where,
            "rows": rows,
            "torch_learner_milliseconds_per_iteration_of_1024_env_steps": breakdown,
            "native_learner": shares,
        },
    )
    print(path)


def contenders_for(n_envs: int, env_steps: int) -> dict[str, Callable[[], Any]]:
    """Return the runs of ``env_steps`` env steps each."""
    sb3 = SB3PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs, seed=0), device="cpu", **SETTINGS)
    backends = {
        "rlox, native learner": ("native", "native"),
        "rlox, native learner, gymnasium env": ("native", "gymnasium"),
        "rlox, torch learner": ("torch", "native"),
        "rlox, torch learner, gymnasium env": ("torch", "gymnasium"),
    }
    contenders: dict[str, Callable[[], Any]] = {
        "stable-baselines3": lambda: sb3.learn(env_steps, reset_num_timesteps=False)
    }
    if importlib.util.find_spec("sbx") is not None:
        contenders["sbx"] = sbx_contender(n_envs, env_steps)
    for name, (learner, env) in backends.items():
        ppo = PPO("CartPole-v1", n_envs=n_envs, backend=learner, env_backend=env, **SETTINGS)
        contenders[name] = partial(ppo.train, env_steps)
    return contenders


def sbx_contender(n_envs: int, env_steps: int) -> Callable[[], Any]:
    """Return sbx's run; its networks are made equal to the others'."""
    import flax.linen as nn
    import sbx

    model = sbx.PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs, seed=0),
        policy_kwargs={"net_arch": [64, 64], "activation_fn": nn.tanh},
        **SETTINGS,
    )
    return lambda: model.learn(env_steps, reset_num_timesteps=False)


def native_share_of_peak(repeats: int = 50) -> dict[str, float]:
    """Return the native learner's arithmetic per second beside that of a large matrix product."""
    ppo = PPO("CartPole-v1", backend="native", **SETTINGS)
    hooks = Hooks(ppo)
    batch = ppo.learner.collect(128, hooks)
    rates = {"learning_rate": 1e-9, "clip_eps": 0.2, "ent_coef": 0.01}
    square = torch.rand(1024, 1024)
    milliseconds = {
        name: 1e3 * min(runs)
        for name, runs in interleave(
            {
                "collect": lambda: ppo.learner.collect(128, hooks),
                "update": lambda: ppo.learner.update(batch, rates, hooks),
                "product": lambda: square @ square,
            },
            repeats,
        ).items()
    }
    # multiply-adds of both networks a row: forward, and backward twice that but for the first layer
    inputs, hidden, outputs = 4, 64, 2 + 1
    first, second, last = 2 * inputs * hidden, 2 * hidden * hidden, outputs * hidden
    update = 2 * (2 * first + 3 * second + 3 * last) * 1024 * SETTINGS["n_epochs"]
    peak = 2 * 1024**3 / milliseconds["product"] / 1e6
    return {
        "collect_milliseconds": milliseconds["collect"],
        "update_milliseconds": milliseconds["update"],
        "update_gflop_per_second": update / milliseconds["update"] / 1e6,
        "sgemm_1024_gflop_per_second": peak,
        "share_of_sgemm": update / milliseconds["update"] / 1e6 / peak,
    }


def where_time_goes(repeats: int = 50) -> dict[str, float]:
    """Return the median milliseconds that each part of one iteration of 8 envs takes."""
    ppo = PPO("CartPole-v1", backend="torch", env_backend="native", **SETTINGS)
    ppo.train(4096)
    batch = ppo.collector.collect(ppo.policy, 128)
    obs = batch.obs[:8]
    minibatch = next(batch.sample_minibatches(256))
    env, actions = ppo.collector.env, batch.actions[:8].numpy()
    gradient_steps = SETTINGS["n_epochs"] * 1024 // SETTINGS["batch_size"]
    rates = {"clip_eps": 0.2, "ent_coef": 0.01}

    def milliseconds(run: Callable[[], Any]) -> float:
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            runs.append((time.perf_counter() - started) * 1e3)
        return summary(runs)["median"]

    def forward_only() -> Any:
        return minibatch_loss(ppo.agent, ppo.config, minibatch, rates)

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
