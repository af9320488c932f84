"""The Rust envs and the GAE kernels against their peers and compiled loops.

python benchmarks/kernels.py [--rounds 15]

Peers that are not installed are left out: TorchRL, EnvPool, and numba, which compiles the loops
that serve as limits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import rlox_native
from gymnasium.vector import AutoresetMode
from measure import interleave, interleave_calls, machine, summary, write
from rlox.kernels import reference

GAE_CALLS = 5
"""Calls in a row; after the first, caches hold the data of the call before."""

GAE_SIZES = ((2048, 1), (128, 8), (2048, 64), (32, 4096))
ENV_SIZES = (1, 8, 64, 256, 1024, 4096)
ENV_IDS = ("CartPole-v1", "Pendulum-v1")

Contenders = dict[str, Callable[[], Any]]


def python_loop(rewards: Any, values: Any, ends: Any, last: float) -> list[float]:
    """Return the advantages of one env, by a loop over the elements of its arrays."""
    advantages, following, carried = [0.0] * len(rewards), last, 0.0
    for t in reversed(range(len(rewards))):
        goes_on = 0.0 if ends[t] else 1.0
        delta = rewards[t] + 0.99 * following * goes_on - values[t]
        carried = delta + 0.99 * 0.95 * goes_on * carried
        advantages[t], following = carried, values[t]
    return advantages


def gae_contenders(n_steps: int, n_envs: int) -> Contenders:
    """Return the contenders for float32 advantages of T steps of N envs, time-major."""
    rng = np.random.default_rng(0)
    shape = (n_steps, n_envs)
    rewards, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    ends = rng.random(shape) < 0.01
    truncated = np.zeros(shape, bool)
    final, last = np.zeros(shape, np.float32), np.zeros(n_envs, np.float32)
    arrays = (rewards, values, ends, truncated, final, last, 0.99, 0.95)
    batched: Any = rlox_native.compute_gae_batched_f32
    flat = [np.ascontiguousarray(a.T).ravel() for a in (rewards, values, ends)]
    out = np.empty_like(rewards), np.empty_like(rewards)
    flat_out = np.empty(rewards.size, np.float32), np.empty(rewards.size, np.float32)
    moved = [(np.empty_like(a), a) for a in (*arrays[:5], *out)]

    def copy() -> None:
        for target, source in moved:
            np.copyto(target, source)

    contenders: Contenders = {
        "copy of all inputs and outputs": copy,
        "rlox time-major": lambda: rlox_native.compute_gae_time_major(*arrays),
        "rlox time-major, out=": lambda: rlox_native.compute_gae_time_major(*arrays, out=out),
        "rlox env-major, out=": lambda: batched(*flat, last, n_steps, 0.99, 0.95, out=flat_out),
        "NumPy loop over time": lambda: reference.compute_gae_time_major(*arrays),
    }
    contenders["Python loop"] = lambda: [
        python_loop(rewards[:, env], values[:, env], ends[:, env], 0.0) for env in range(n_envs)
    ]
    if find_spec("numba"):
        from compiled import gae

        contenders["compiled loop"] = lambda: gae(rewards, values, ends, last, 0.99, 0.95, *out)
    if find_spec("torchrl"):
        contenders |= torchrl_contenders(rewards, values, ends, last)
    return contenders


def torchrl_contenders(rewards: Any, values: Any, ends: Any, last: Any) -> Contenders:
    """Return TorchRL's function that loops over time, and its vectorised one."""
    import torch
    from torchrl.objectives.value import functional

    torch.set_num_threads(1)

    def batch_major(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array.T))[..., None]

    following = np.concatenate([values[1:], last[None]])
    done = batch_major(ends)
    arguments = (
        0.99, 0.95, batch_major(values), batch_major(following), batch_major(rewards), done, done,
    )  # fmt: skip
    return {
        "TorchRL per step": lambda: functional.generalized_advantage_estimate(*arguments),
        "TorchRL vectorised": lambda: functional.vec_generalized_advantage_estimate(*arguments),
    }


def stepping(step: Callable[[Any], Any], actions: Any) -> Callable[[], None]:
    """Return a run of all the actions."""

    def run() -> None:
        for row in actions:
            step(row)

    return run


def env_contenders(env_id: str, n_envs: int, calls: int) -> Contenders:
    """Return runs of ``calls`` vector steps with random actions."""
    rng = np.random.default_rng(0)
    if env_id == "CartPole-v1":
        actions = rng.integers(0, 2, (calls, n_envs))
    else:
        actions = rng.uniform(-2, 2, (calls, n_envs, 1)).astype(np.float32)
    native = rlox_native.VecEnv(n_envs, seed=0, env_id=env_id)
    native.reset_all()
    out = native.step_all(actions[0])
    arrays = (out["obs"], out["rewards"], out["terminated"], out["truncated"], out["final_obs"])
    contenders: Contenders = {
        "rlox step_all": stepping(native.step_all, actions),
        "rlox step_into": stepping(lambda row: native.step_into(row, *arrays), actions),
    }
    if n_envs <= 64:  # more take minutes, at the same speed per env
        sync = gymnasium.make_vec(
            env_id,
            num_envs=n_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
        sync.reset(seed=0)
        contenders["gymnasium sync"] = stepping(sync.step, actions)
    if gymnasium.spec(env_id).vector_entry_point:
        vectorised = gymnasium.make_vec(
            env_id, num_envs=n_envs, vectorization_mode="vector_entry_point"
        )
        vectorised.reset(seed=0)
        contenders["gymnasium vectorised"] = stepping(vectorised.step, actions)
    if find_spec("envpool"):
        import envpool

        pool = envpool.make_gymnasium(env_id, num_envs=n_envs, seed=0)
        pool.reset()
        contenders["EnvPool"] = stepping(pool.step, actions)
    if find_spec("numba"):
        import compiled

        fused = compiled.cartpole if env_id == "CartPole-v1" else compiled.pendulum
        state = rng.uniform(-0.05, 0.05, (n_envs, 4 if env_id == "CartPole-v1" else 2))
        elapsed = np.zeros(n_envs, np.int64)
        buffers = [np.empty_like(array) for array in arrays]
        contenders["compiled loop"] = stepping(
            lambda row: fused(state, elapsed, row, *buffers), actions
        )
    return contenders


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/kernels.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    peers = [name for name in ("numba", "torchrl", "envpool") if find_spec(name)]
    where = machine(["rlox-native", "gymnasium", "numpy", *peers])
    gae = []
    for n_steps, n_envs in GAE_SIZES:
        contenders = gae_contenders(n_steps, n_envs)
        interleave(contenders, 1)
        for name, calls_seconds in interleave_calls(contenders, rounds, GAE_CALLS).items():
            first, others = calls_seconds[:, 0] * 1e6, calls_seconds[:, 1:].ravel() * 1e6
            us, warm = summary(first.tolist()), summary(others.tolist())
            row = {"n_steps": n_steps, "n_envs": n_envs, "contender": name}
            gae.append({**row, "us": us, "warm_us": warm})
            size = f"GAE {n_envs:5d} x {n_steps:5d}"
            print(f"{size}  {name:30s} {us['median']:10.1f} us, then {warm['median']:10.1f} us")
    envs = []
    for env_id in ENV_IDS:
        for n_envs in ENV_SIZES:
            calls = max(2048 // n_envs, 8)
            contenders = env_contenders(env_id, n_envs, calls)
            interleave(contenders, 1)
            for name, seconds in interleave(contenders, rounds).items():
                speed = summary([n_envs * calls / s for s in seconds])
                result = {"env_id": env_id, "n_envs": n_envs, "contender": name}
                envs.append({**result, "env_steps_per_second": speed})
                print(f"{env_id} {n_envs:5d}  {name:22s} {speed['median']:14,.0f} env steps/s")
    print(write("kernels", {"rounds": rounds, "machine": where, "gae": gae, "vec_env": envs}))


if __name__ == "__main__":
    main()
