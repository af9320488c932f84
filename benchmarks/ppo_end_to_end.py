"""PPO on CartPole-v1, env steps per second with learning: rlox, Stable-Baselines3 and sbx.

Equal hyperparameters, all in one process and in turn, so that a busy machine slows all alike. Each
runs with one thread or with one per core, whichever was faster in a short trial. rlox runs with
either learner backend, and with gymnasium's env, which the others step. sbx, which is
Stable-Baselines3 in JAX, takes part if it is installed. Memory is that of a process with one
contender.

    python benchmarks/ppo_end_to_end.py [--rounds 9] [--envs 8]
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measure import (
    interleave,
    machine,
    on_one_core,
    peak_mib,
    peaks_alone,
    ratio_summary,
    summary,
    usable_cores,
    write,
)
from rlox.batches.rollout import RolloutBatch, estimate_advantages
from rlox.losses import ClippedSurrogate, make_objective
from rlox.nn import torch_threads
from rlox.training.hooks import Hooks
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
"""Settings of all contenders, which have two 64×64 tanh networks and Adam."""

Train = Callable[[int], Any]
"""A function that trains for a number of env steps."""

ITERATIONS = {8: 8, 64: 1}
"""Rollouts per run, by the number of envs."""


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/ppo_*.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--envs", type=int, choices=ITERATIONS, help="measure these numbers alone")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help='as "sbx"; for --peak')
    parser.add_argument("--peak", action="store_true", help="print the MiB of one contender")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak:
        train = makers_for(arguments.envs)[arguments.contenders[0], 1]()
        train(3 * arguments.envs * SETTINGS["n_steps"])
        print(peak_mib())
        return
    packages = ["rlox-core", "rlox-native", "stable-baselines3", "torch", "gymnasium"]
    where = machine(packages, sbx=["sbx-rl", "jax"])
    for n_envs in [arguments.envs] if arguments.envs else ITERATIONS:
        result = {
            "settings": SETTINGS,
            "rounds": arguments.rounds,
            "machine": where,
            "rows": compare(n_envs, arguments.rounds),
        }
        print(write(f"ppo_end_to_end_{n_envs}", result))
    breakdown = where_time_goes()
    shares = native_share_of_peak()
    print(shares)
    for part, milliseconds in breakdown.items():
        print(f"{part:30s} {milliseconds:7.2f} ms per iteration")
    result = {
        "settings": SETTINGS,
        "machine": where,
        "torch_learner_milliseconds_per_iteration_of_1024_env_steps": breakdown,
        "native_learner": shares,
    }
    print(write("ppo_where_time_goes", result))


def compare(n_envs: int, rounds: int) -> list[dict[str, Any]]:
    """Return the speed of every contender with its best threads, and its ratios to the peers."""
    rollout = n_envs * SETTINGS["n_steps"]
    makers = makers_for(n_envs)
    names = dict.fromkeys(name for name, _ in makers)
    peaks = peaks_alone(names, "--envs", str(n_envs))
    runs = {key: make() for key, make in makers.items()}
    tried = interleave({key: partial(run, rollout) for key, run in runs.items()}, 2)
    trial = {key: summary([rollout / s for s in seconds[1:]]) for key, seconds in tried.items()}
    best = {
        name: max((key for key in runs if key[0] == name), key=lambda key: trial[key]["median"])
        for name in names
    }
    env_steps = rollout * ITERATIONS[n_envs]
    seconds = interleave(
        {name: partial(runs[key], env_steps) for name, key in best.items()}, rounds
    )
    speeds = {name: [env_steps / s for s in each] for name, each in seconds.items()}
    rows = []
    for name, values in speeds.items():
        row: dict[str, Any] = {
            "contender": name,
            "n_envs": n_envs,
            "threads": best[name][1],
            "env_steps_per_second": summary(values),
            "env_steps_per_second_in_trials_by_threads": {
                threads: figures for (other, threads), figures in trial.items() if other == name
            },
            "peak_mib": peaks[name],
        }
        for peer in filter(speeds.__contains__, ("stable-baselines3", "sbx")):
            row[f"ratio_to_{peer.replace('-', '_')}"] = ratio_summary(values, speeds[peer])
        rows.append(row)
        ratios = "  ".join(
            f"{figures['median']:6.2f}x ({figures['min']:.2f}-{figures['max']:.2f})"
            for key, figures in row.items()
            if key.startswith("ratio")
        )
        speed = row["env_steps_per_second"]["median"]
        print(f"{n_envs:3d} envs  {name:36s} {speed:9,.0f} env steps/s {ratios}  "
              f"{peaks[name]:.0f} MiB", flush=True)  # fmt: skip
    return rows


def makers_for(n_envs: int) -> dict[tuple[str, int], Callable[[], Train]]:
    """Return functions that make trainings, by contender and threads."""

    def sb3(threads: int) -> Train:
        made = SB3PPO(
            "MlpPolicy", make_vec_env("CartPole-v1", n_envs, seed=0), device="cpu", **SETTINGS
        )

        def learn(env_steps: int) -> None:
            with torch_threads(threads):
                made.learn(env_steps, reset_num_timesteps=False)

        return learn

    def sbx_on_one_core() -> Train:
        run = sbx_run(n_envs)
        return lambda env_steps: on_one_core(partial(run, env_steps))

    def ours(learner: str, env: str, threads: int) -> Train:
        options: dict[str, Any] = {"backend": learner, "env_backend": env, "torch_threads": threads}
        return PPO("CartPole-v1", n_envs=n_envs, **options, **SETTINGS).train

    settings = sorted({1, usable_cores()})
    makers: dict[tuple[str, int], Callable[[], Train]] = {
        ("stable-baselines3", threads): partial(sb3, threads) for threads in settings
    }
    if importlib.util.find_spec("sbx") is not None:
        makers["sbx", 1] = sbx_on_one_core
        makers["sbx", usable_cores()] = partial(sbx_run, n_envs)
    for learner in ("native", "torch"):
        for env, suffix in (("native", ""), ("gymnasium", ", gymnasium env")):
            for threads in settings if learner == "torch" else [1]:
                makers[f"rlox, {learner} learner{suffix}", threads] = partial(
                    ours, learner, env, threads
                )
    return makers


def sbx_run(n_envs: int) -> Train:
    """Return sbx's training, with networks equal to the others'."""
    import flax.linen as nn
    import sbx

    model = sbx.PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs, seed=0),
        policy_kwargs={"net_arch": [64, 64], "activation_fn": nn.tanh},
        **SETTINGS,
    )
    return lambda env_steps: model.learn(env_steps, reset_num_timesteps=False)


def native_share_of_peak(repeats: int = 50) -> dict[str, float]:
    """Return the native learner's arithmetic per second next to a large matrix product's."""
    ppo = PPO("CartPole-v1", backend="native", **SETTINGS)
    hooks = Hooks(ppo)

    def collect() -> RolloutBatch:
        unroll = ppo.learner.collect(128, hooks)
        return estimate_advantages(unroll, ppo.policy, ppo.config.gamma, ppo.config.gae_lambda)

    batch = collect()
    objective = make_objective(ClippedSurrogate, ppo.config, {"clip_eps": 0.2, "ent_coef": 0.01})
    square = torch.rand(1024, 1024)
    milliseconds = {
        name: 1e3 * min(runs)
        for name, runs in interleave(
            {
                "collect": collect,
                "update": lambda: ppo.learner.update(batch, objective, 1e-9, hooks),
                "product": lambda: square @ square,
            },
            repeats,
        ).items()
    }
    # multiply-adds of both networks a row: forward, and twice that backward without the first layer
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
    """Return the median milliseconds of each part of an iteration with 8 envs."""
    ppo = PPO("CartPole-v1", backend="torch", env_backend="native", **SETTINGS)
    ppo.train(4096)
    batch = ppo.collector.collect(ppo.policy, 128)
    obs = batch.obs[:8]
    minibatch = next(batch.sample_minibatches(256))
    env, actions = ppo.collector.env, batch.actions[:8].numpy()
    gradient_steps = SETTINGS["n_epochs"] * 1024 // SETTINGS["batch_size"]
    objective = make_objective(ClippedSurrogate, ppo.config, {"clip_eps": 0.2, "ent_coef": 0.01})

    def milliseconds(run: Callable[[], Any]) -> float:
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            runs.append((time.perf_counter() - started) * 1e3)
        return summary(runs)["median"]

    def forward_only() -> Any:
        return objective.loss(ppo.policy, minibatch)

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
