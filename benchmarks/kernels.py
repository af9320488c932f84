"""The Rust env and the GAE kernels against what there is in Python.

python benchmarks/kernels.py [--rounds 15]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import rlox_native
from gymnasium.vector import AutoresetMode
from measure import interleave, machine, summary, write
from rlox import reference

GAE_SIZES = ((2048, 1), (128, 8), (2048, 64), (2048, 256))
ENV_SIZES = (1, 8, 64, 256, 1024)


def gae_contenders(n_steps: int, n_envs: int) -> dict[str, Callable[[], Any]]:
    """Return the contenders for float32 advantages of T steps of N envs, time-major."""
    rng = np.random.default_rng(0)
    shape = (n_steps, n_envs)
    rewards, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    terminated = rng.random(shape) < 0.01
    truncated = np.zeros(shape, bool)
    final, last = np.zeros(shape, np.float32), np.zeros(n_envs, np.float32)
    arrays = (rewards, values, terminated, truncated, final, last, 0.99, 0.95)
    flat = [np.ascontiguousarray(a.T).ravel() for a in (rewards, values, terminated)]
    flat[2] = flat[2].astype(np.float32)
    outputs = np.empty_like(rewards), np.empty_like(rewards)

    def copy() -> None:
        np.copyto(outputs[0], rewards)
        np.copyto(outputs[1], values)

    return {
        "copy of two inputs": copy,
        "rlox time-major": lambda: rlox_native.compute_gae_time_major(*arrays),
        "rlox env-major": lambda: rlox_native.compute_gae_batched_f32(
            *flat, last, n_steps, 0.99, 0.95
        ),
        "NumPy loop over time": lambda: reference.compute_gae_time_major(*arrays),
    }


def env_contenders(n_envs: int, calls: int) -> dict[str, Callable[[], Any]]:
    """Return runs of ``calls`` vector steps of CartPole-v1 with random actions."""
    actions = np.random.default_rng(0).integers(0, 2, (calls, n_envs))
    native = rlox_native.VecEnv(n_envs, seed=0)
    native.reset_all()
    out = native.step_all(actions[0])
    arrays = (out["obs"], out["rewards"], out["terminated"], out["truncated"], out["final_obs"])
    vectorised = gymnasium.make_vec(
        "CartPole-v1", num_envs=n_envs, vectorization_mode="vector_entry_point"
    )
    sync = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=n_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    vectorised.reset(seed=0)
    sync.reset(seed=0)

    def stepping(step: Callable[[Any], Any]) -> Callable[[], None]:
        def run() -> None:
            for row in actions:
                step(row)

        return run

    return {
        "rlox step_all": stepping(native.step_all),
        "rlox step_into": stepping(lambda row: native.step_into(row, *arrays)),
        "gymnasium vectorised": stepping(vectorised.step),
        "gymnasium sync": stepping(sync.step),
    }


def main() -> None:
    """Measure and write ``benchmarks/results/kernels.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    where = machine(["rlox-native", "gymnasium", "numpy"])
    gae = []
    for n_steps, n_envs in GAE_SIZES:
        contenders = gae_contenders(n_steps, n_envs)
        interleave(contenders, 3)
        for name, seconds in interleave(contenders, 5 * rounds).items():
            row = {k: v * 1e6 for k, v in summary(seconds).items()}
            gae.append({"n_steps": n_steps, "n_envs": n_envs, "contender": name, "us": row})
            print(f"GAE {n_envs:5d} x {n_steps}  {name:22s} {row['median']:10.1f} us")
    envs = []
    for n_envs in ENV_SIZES:
        calls = max(4096 // n_envs, 32)
        contenders = env_contenders(n_envs, calls)
        interleave(contenders, 1)
        for name, seconds in interleave(contenders, rounds).items():
            speed = summary([n_envs * calls / s for s in seconds])
            envs.append({"n_envs": n_envs, "contender": name, "env_steps_per_second": speed})
            print(f"envs {n_envs:5d}  {name:22s} {speed['median']:14,.0f} env steps/s")
    print(write("kernels", {"rounds": rounds, "machine": where, "gae": gae, "vec_env": envs}))


if __name__ == "__main__":
    main()
