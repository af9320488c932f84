"""What MAPPO learns on simple_spread at equal env steps: rlox, BenchMARL, and SB3 with SuperSuit.

python benchmarks/mappo_learning.py [--env-steps 20000] [--seeds 3] [--benchmarl PYTHON]
[--supersuit PYTHON]

rlox and BenchMARL have equal networks (two layers of 64), envs (10 of 25 steps, through mpe2),
iterations (1,000 env steps), epochs (45), minibatches (400 env steps), step size 7e-4, λ = 0.9 and
no entropy bonus. Stable-Baselines3 has a PPO whose policy all agents share, in 16 envs, with that
step size and the same networks; its critic sees what one agent sees. Each policy then plays 300
episodes, whose seeds are those of the others, with the most probable actions; the return is the
mean over agents. Interpreters of the peers: ``mappo_end_to_end.py`` says how to make BenchMARL's;
``uv venv ss; uv pip install --python ss stable-baselines3==2.9.2 supersuit==3.11.0
"pettingzoo>=1.27" "mpe2>=1.1.1"`` makes the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

CYCLES, EPISODES, FIRST_SEED = 25, 300, 10_000
RLOX, BENCHMARL, SUPERSUIT = "rlox", "BenchMARL", "Stable-Baselines3 with SuperSuit"

Act = Callable[[dict[str, Any]], dict[str, Any]]


def play(env: Any, act: Act) -> list[float]:
    """Return the returns of the episodes of a parallel env, each the mean over agents."""
    returns = []
    for number in range(EPISODES):
        obs, _ = env.reset(seed=FIRST_SEED + number)
        total = 0.0
        while env.agents:
            obs, rewards, *_ = env.step(act(obs))
            total += sum(rewards.values()) / len(rewards)
        returns.append(total)
    return returns


def learn_rlox(seed: int, env_steps: int) -> list[float]:
    """Return the returns after training with rlox."""
    import rlox
    from mpe2 import simple_spread_v3

    algorithm = rlox.make(
        "mappo", "mpe2/simple_spread_v3", seed=seed, env_backend="pettingzoo", n_envs=10,
        n_steps=100, n_epochs=45, batch_size=1_200, learning_rate=7e-4, gae_lambda=0.9,
        ent_coef=0.0, hidden=64, env_kwargs={"max_cycles": CYCLES},
    )  # fmt: skip
    algorithm.train(env_steps)

    def act(obs: dict[str, Any]) -> dict[str, Any]:
        pairs = enumerate(obs.items())
        return {name: algorithm.predict(seen, agent_idx=k) for k, (name, seen) in pairs}

    return play(simple_spread_v3.parallel_env(max_cycles=CYCLES), act)


def learn_benchmarl(seed: int, env_steps: int) -> list[float]:
    """Return the returns after training with BenchMARL."""
    import torch
    from benchmarl.experiment import Experiment
    from mappo_end_to_end import benchmarl_parts
    from pettingzoo.mpe import simple_spread_v3
    from tensordict import TensorDict
    from torchrl.envs.utils import ExplorationType, set_exploration_type

    torch.set_num_threads(1)
    parts = benchmarl_parts(1_000)
    parts["config"].max_n_frames = env_steps
    experiment = Experiment(**parts, seed=seed)
    experiment.run()

    def act(obs: dict[str, Any]) -> dict[str, Any]:
        rows = torch.stack([torch.as_tensor(seen) for seen in obs.values()])
        shown = TensorDict({"agent": TensorDict({"observation": rows}, [len(rows)])}, [])
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            chosen = experiment.policy(shown)["agent", "action"]
        return dict(zip(obs, chosen.tolist(), strict=True))

    return play(simple_spread_v3.parallel_env(max_cycles=CYCLES), act)


def learn_supersuit(seed: int, env_steps: int) -> list[float]:
    """Return the returns after training with Stable-Baselines3 and SuperSuit."""
    import numpy as np
    import supersuit
    import torch
    from mpe2 import simple_spread_v3
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    torch.manual_seed(seed)  # PPO(seed=) asks the vector env for a method that it lacks
    np.random.seed(seed)  # noqa: NPY002  # the generator that Stable-Baselines3 draws from
    env = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(max_cycles=CYCLES))
    envs = supersuit.concat_vec_envs_v1(env, 16, num_cpus=1, base_class="stable_baselines3")
    networks = {"net_arch": [64, 64]}
    model = PPO("MlpPolicy", envs, learning_rate=7e-4, n_steps=64, batch_size=256,
                policy_kwargs=networks, device="cpu")  # fmt: skip
    model.learn(3 * env_steps)  # its steps are agents'

    def act(obs: dict[str, Any]) -> dict[str, Any]:
        chosen, _ = model.predict(np.stack(list(obs.values())), deterministic=True)
        return dict(zip(obs, chosen.tolist(), strict=True))

    return play(simple_spread_v3.parallel_env(max_cycles=CYCLES), act)


LEARN = {RLOX: learn_rlox, BENCHMARL: learn_benchmarl, SUPERSUIT: learn_supersuit}


def start(name: str, python: str, env_steps: int, seeds: int) -> subprocess.Popen[str]:
    """Start a contender's training of all seeds in a process of its own."""
    command = [python, __file__, "--contender", name, "--env-steps", str(env_steps)]
    return subprocess.Popen(
        [*command, "--seeds", str(seeds)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"},
    )  # fmt: skip


def main() -> None:
    """Train, play, and write ``benchmarks/results/<processor>/mappo_learning.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env-steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--benchmarl", help="interpreter that has BenchMARL")
    parser.add_argument("--supersuit", help="interpreter that has SuperSuit")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender is not None:
        for seed in range(given.seeds):
            returns = LEARN[given.contender](seed, given.env_steps)
            print("returns", json.dumps(returns), flush=True)
        return

    from measure import machine, write

    pythons = {RLOX: sys.executable, BENCHMARL: given.benchmarl, SUPERSUIT: given.supersuit}
    started = {
        name: start(name, python, given.env_steps, given.seeds)
        for name, python in pythons.items()
        if python
    }
    rows = []
    for name, process in started.items():
        lines = process.communicate()[0].splitlines()
        if process.returncode:
            raise RuntimeError(f"{name} ended with status {process.returncode}")
        found = [json.loads(line[8:]) for line in lines if line.startswith("returns ")]
        means = [sum(returns) / len(returns) for returns in found]
        rows.append({"contender": name, "mean_returns": [round(mean, 2) for mean in means]})
        print(f"{name:34s} {rows[-1]['mean_returns']}")
    options = {"env_steps": given.env_steps, "episodes": EPISODES}
    where = machine(["rlox-marl", "rlox-native", "pettingzoo", "mpe2", "torch"])
    print(write("mappo_learning", {**options, "machine": where, "simple_spread": rows}))


if __name__ == "__main__":
    main()
