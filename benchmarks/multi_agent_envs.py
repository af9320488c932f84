"""simple_spread: rlox's in Rust and NumPy, mpe2's through rlox's adapter, and mpe2's alone.

python benchmarks/multi_agent_envs.py [--rounds 9]

Three agents, discrete random actions drawn beforehand, one process; env steps, not agent steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import interleave, machine, summary, write
from mpe2 import simple_spread_v3
from rlox_marl.envs import PettingZooVecEnv, SimpleSpreadVecEnv
from rlox_native import MultiAgentVecEnv

ENV_ID = "mpe2/simple_spread_v3"
SIZES = (1, 16, 128, 1024)
OURS = {"Rust": MultiAgentVecEnv, "NumPy": SimpleSpreadVecEnv}
CALLS = 50


def stepping(envs: Any) -> Callable[[], Any]:
    """Return a call that steps a vector env with rows of random actions."""
    actions = np.random.default_rng(0).integers(5, size=(CALLS, envs.n_envs, 3))
    envs.reset_all(0)
    return lambda: [envs.step_all({"agent": row}) for row in actions]


def alone() -> Callable[[], Any]:
    """Return a call that steps an env of mpe2."""
    env = simple_spread_v3.parallel_env()
    actions = np.random.default_rng(0).integers(5, size=(CALLS, 3)).tolist()
    env.reset(seed=0)

    def call() -> None:
        for row in actions:
            if not env.agents:
                env.reset()
            env.step(dict(zip(env.possible_agents, row, strict=True)))

    return call


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/multi_agent_envs.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    ours = {f"{kind}, {n} envs": (make, n) for kind, make in OURS.items() for n in SIZES}
    sizes = {name: n for name, (_, n) in ours.items()} | {"mpe2 through rlox, 8 envs": 8}
    contenders = {name: stepping(make(n)) for name, (make, n) in ours.items()}
    contenders["mpe2 through rlox, 8 envs"] = stepping(PettingZooVecEnv(ENV_ID, 8))
    contenders["mpe2 alone"] = alone()
    interleave(contenders, 1)
    rows = []
    for name, seconds in interleave(contenders, rounds).items():
        speed = summary([sizes.get(name, 1) * CALLS / s for s in seconds])
        rows.append({"contender": name, "env_steps_per_second": speed})
        print(f"{name:28s} {speed['median']:12,.0f} env steps/s")
    where = machine(["rlox-marl", "rlox-native", "pettingzoo", "mpe2", "numpy"])
    print(write("multi_agent_envs", {"rounds": rounds, "machine": where, "simple_spread": rows}))


if __name__ == "__main__":
    main()
