"""PPO on MuJoCo tasks with learning: rlox, Stable-Baselines3, and a loop over EnvPool.

    python benchmarks/ppo_mujoco.py [--rounds 7] [--n-steps 240] [--only Ant-v5]

Eight envs and Stable-Baselines3's default settings: two tanh networks of two layers of 64, ten
epochs of minibatches of 64 rows. A run collects one rollout of eight times ``--n-steps`` env steps
and learns from it, so the shares of collecting and learning are those of any length. Contenders run
in turn in one process, on one thread and on all cores, where rlox steps its envs on all too.
EnvPool, if installed, is stepped as by CleanRL: actions of all envs, a step of all, and torch's
autograd and Adam. ``physics alone`` is MuJoCo's own steps for as many env steps, ``physics and
products`` these with the matrix products of acting and learning in torch, on one thread, the
fastest at such sizes. Memory is that of a process with one contender.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from measure import (
    interleave,
    interleave_counted,
    kept,
    machine,
    peak_mib,
    peaks_alone,
    ratio_summary,
    summary,
    usable_cores,
    write,
)
from products import multiply, products_of_acting, products_of_ppo
from rlox import set_num_threads
from rlox.nn import torch_threads
from rlox_onpolicy.ppo import PPO
from simulators import CALLS, physics
from torch import nn

TASKS = {"HalfCheetah-v5": (17, 6), "Hopper-v5": (11, 3), "Ant-v5": (105, 8)}
"""Sizes of observations and actions, by task."""
PHYSICS, PRODUCTS = "physics alone, ", "physics and products, "
"""Floors. A number of threads follows, as in all names."""
N_ENVS = 8
SETTINGS: dict[str, Any] = {
    "n_epochs": 10,
    "batch_size": 64,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}


class EnvPoolLoop:
    """PPO over EnvPool in the style of CleanRL: one file's loop, nothing compiled."""

    def __init__(self, env_id: str, threads: int, n_steps: int) -> None:
        """Make the envs and the networks."""
        import envpool

        self.env = envpool.make_gymnasium(env_id, num_envs=N_ENVS, num_threads=threads, seed=0)
        self.n_steps = n_steps
        dims = self.env.observation_space.shape[-1], self.env.action_space.shape[-1]
        self.policy, self.value = network(dims[0], dims[1]), network(dims[0], 1)
        self.log_std = nn.Parameter(torch.zeros(dims[1]))
        self.parameters = [*self.policy.parameters(), *self.value.parameters(), self.log_std]
        self.optimizer = torch.optim.Adam(self.parameters, lr=SETTINGS["learning_rate"], eps=1e-5)
        self.obs = torch.as_tensor(self.env.reset()[0], dtype=torch.float32)
        self.done = torch.zeros(N_ENVS)

    def normal(self, obs: torch.Tensor) -> Any:  # whose methods have no types
        """Return the policy's distribution."""
        return torch.distributions.Normal(self.policy(obs), self.log_std.exp())

    def run(self) -> None:
        """Collect a rollout and learn from it."""
        obs, actions, log_probs, rewards, dones, values = ([] for _ in range(6))
        for _ in range(self.n_steps):
            with torch.no_grad():
                normal = self.normal(self.obs)
                action = normal.sample()
                values.append(self.value(self.obs).flatten())
            obs.append(self.obs)
            actions.append(action)
            log_probs.append(normal.log_prob(action).sum(1))
            dones.append(self.done)
            low_to_high = action.clamp(-1, 1).double().numpy()
            next_obs, reward, terminated, truncated, _ = self.env.step(low_to_high)
            rewards.append(torch.as_tensor(reward, dtype=torch.float32))
            self.done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
            self.obs = torch.as_tensor(next_obs, dtype=torch.float32)
        with torch.no_grad():
            next_value, advantage = self.value(self.obs).flatten(), torch.zeros(N_ENVS)
        next_done, advantages = self.done, []
        for t in reversed(range(self.n_steps)):
            delta = rewards[t] + SETTINGS["gamma"] * next_value * (1 - next_done) - values[t]
            trace = SETTINGS["gamma"] * SETTINGS["gae_lambda"] * (1 - next_done)
            advantage = delta + trace * advantage
            advantages.append(advantage)
            next_value, next_done = values[t], dones[t]
        flat = torch.cat(advantages[::-1])
        self.learn(torch.cat(obs), torch.cat(actions), torch.cat(log_probs), flat,
                   flat + torch.cat(values))  # fmt: skip

    def learn(self, obs: Any, actions: Any, log_probs: Any, advantages: Any, returns: Any) -> None:
        """Take the gradient steps of a rollout."""
        for _ in range(SETTINGS["n_epochs"]):
            for rows in torch.split(torch.randperm(len(obs)), SETTINGS["batch_size"]):
                normal = self.normal(obs[rows])
                ratio = (normal.log_prob(actions[rows]).sum(1) - log_probs[rows]).exp()
                weight = advantages[rows]
                weight = (weight - weight.mean()) / (weight.std() + 1e-8)
                gains = torch.min(ratio * weight, ratio.clamp(0.8, 1.2) * weight).mean()
                errors = (self.value(obs[rows]).flatten() - returns[rows]).square().mean()
                loss = SETTINGS["vf_coef"] * errors - gains
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, SETTINGS["max_grad_norm"])
                self.optimizer.step()


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Return two layers of 64 units and a linear one."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


def contenders_for(env_id: str, n_steps: int) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Return functions that make trainings for one rollout, by name and threads."""
    env_steps = N_ENVS * n_steps

    def theirs(threads: int) -> Callable[[], None]:
        from stable_baselines3 import PPO as SB3PPO
        from stable_baselines3.common.env_util import make_vec_env

        made = SB3PPO("MlpPolicy", make_vec_env(env_id, N_ENVS, seed=0), n_steps=n_steps,
                      device="cpu", seed=0, **SETTINGS)  # fmt: skip

        def learn() -> None:
            with torch_threads(threads):
                made.learn(env_steps, reset_num_timesteps=False)

        return learn

    def ours(threads: int) -> Callable[[], None]:
        options: dict[str, Any] = {"env_backend": "mujoco", "physics_threads": threads}
        made = PPO(
            env_id, n_envs=N_ENVS, n_steps=n_steps, seed=0, backend="native", **options, **SETTINGS
        )

        def train() -> None:
            set_num_threads(threads)
            made.train(env_steps)

        return train

    def loop(threads: int) -> Callable[[], None]:
        made = EnvPoolLoop(env_id, threads, n_steps)

        def run() -> None:
            # One thread is torch's best with such small networks; EnvPool's vary.
            with torch_threads(1):
                made.run()

        return run

    def floor(threads: int, *, learns: bool) -> Callable[[], None]:
        alone, sizes = physics(env_id, N_ENVS, threads), (TASKS[env_id][0], 64, 64)
        learning = [products_of_ppo(*TASKS[env_id], 64, SETTINGS["batch_size"])]
        acting = [products_of_acting(N_ENVS, *sizes, n) for n in (TASKS[env_id][1], 1)]

        def run() -> None:
            for _ in range(round(n_steps / CALLS)):
                alone()
            if learns:
                minibatches = env_steps // SETTINGS["batch_size"] * SETTINGS["n_epochs"]
                multiply(acting, n_steps, learning, minibatches)

        return run

    threads = sorted({1, usable_cores()})
    runs: dict[str, Callable[[], Callable[[], Any]]] = {}
    runs |= {f"stable-baselines3, {n}": partial(theirs, n) for n in threads}
    if importlib.util.find_spec("envpool") is not None:
        runs |= {f"EnvPool loop, {n}": partial(loop, n) for n in threads}
    runs |= {f"rlox, {n}": partial(ours, n) for n in threads}
    runs |= {f"{PHYSICS}{n}": partial(floor, n, learns=False) for n in threads}
    return runs | {f"{PRODUCTS}{n}": partial(floor, n, learns=True) for n in threads}


def compare(
    env_id: str, n_steps: int, rounds: int, asked: list[str] | None
) -> list[dict[str, Any]]:
    """Return every contender's speed, and its time over rlox's."""
    makers, load = contenders_for(env_id, n_steps), os.getloadavg()
    names = asked or list(makers)
    measured = [name for name in names if not name.startswith((PHYSICS, PRODUCTS))]
    peaks = peaks_alone(measured, "--only", env_id)
    contenders = {name: makers[name]() for name in names}
    interleave(contenders, 1)
    seconds, processor = interleave_counted(contenders, rounds)
    ours = [name for name in contenders if name.startswith("rlox")]
    rows = []
    for name, taken in seconds.items():
        row: dict[str, Any] = {
            "env": env_id,
            "contender": name,
            "env_steps_per_second": summary([N_ENVS * n_steps / s for s in taken]),
            "times_as_long_as": {mine: ratio_summary(taken, seconds[mine]) for mine in ours},
            "times_as_long_as_by_processor_time": {
                mine: ratio_summary(processor[name], processor[mine]) for mine in ours
            },
            "peak_mib": peaks.get(name),
            "rounds": rounds,
            "load_average": [load, os.getloadavg()],
        }
        rows.append(row)
        by_processor = row["times_as_long_as_by_processor_time"]
        ratios = [
            f"{mine} {ratio['median']:.2f} ({by_processor[mine]['median']:.2f})"
            for mine, ratio in row["times_as_long_as"].items()
        ]
        speed = row["env_steps_per_second"]["median"]
        print(f"{env_id:16s} {name:24s} {speed:8.0f}/s", *ratios, peaks.get(name), sep="  ",
              flush=True)  # fmt: skip
    return rows


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/ppo_mujoco.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--n-steps", type=int, default=240, help="a multiple of 60")
    parser.add_argument("--only", choices=list(TASKS), help="the others keep their rows")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help='as "rlox, 1"; all')
    parser.add_argument("--peak", action="store_true", help="print the MiB of one contender")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        made = contenders_for(asked.only, asked.n_steps)[asked.contenders[0]]()
        interleave({"one": made}, 2)
        print(peak_mib())
        return
    packages = ["rlox-core", "rlox-native", "stable-baselines3", "mujoco", "gymnasium", "torch"]
    result = kept("ppo_mujoco")
    result |= {"settings": {**SETTINGS, "n_envs": N_ENVS, "n_steps": asked.n_steps}}
    result["machine"] = machine(packages, envpool=["envpool"])
    for env_id in [asked.only] if asked.only else TASKS:
        others = [row for row in result.get("rows", []) if row["env"] != env_id]
        result["rows"] = others + compare(env_id, asked.n_steps, asked.rounds, asked.contenders)
    print(write("ppo_mujoco", result))


if __name__ == "__main__":
    main()
