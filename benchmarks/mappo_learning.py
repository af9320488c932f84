"""Returns of MAPPO on simple_spread at equal env steps: rlox, BenchMARL, SB3 with SuperSuit.

python benchmarks/mappo_learning.py [--env-steps 60000] [--seeds 5] [--peer-seeds 5] [--jobs 2]
[--runs FOLDER] [--benchmarl PYTHON] [--supersuit PYTHON]

All have the hyperparameters of Yu et al. 2022 for this env (10 epochs, step size 7e-4, entropy
bonus 0.01, λ = 0.95, clip 0.2, gradient norm 10), the discount of Lowe et al. 2017, who made it,
and iterations and minibatches for few env steps: 10 envs of 25 steps, 1,000 env steps an iteration,
four minibatches. Networks have two tanh layers of 64, one for all actors and one for their critic.
Options of some libraries alone stay at their defaults: rlox and Stable-Baselines3 standardise
advantages, BenchMARL does not; rlox's actors see which agent they are; Stable-Baselines3's PPO,
whose policy all agents share, has a critic that sees one agent's observation.

Every 20,000 env steps policies play 100 episodes with the most probable actions and 100 with drawn
ones, of the same seeds for all; the return is the mean over agents. Interpreters of the peers:
``mappo_end_to_end.py`` says how to make BenchMARL's; ``uv venv ss; uv pip install --python ss
stable-baselines3==2.9.2 supersuit==3.11.0 "pettingzoo>=1.27" "mpe2>=1.1.1"`` makes the other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from run_files import Point, append, points_of

CYCLES, EPISODES, FIRST_SEED, EVERY = 25, 100, 10_000, 20_000
N_ENVS, AGENTS, ITERATION, MINIBATCH, EPOCHS = 10, 3, 1_000, 250, 10  # two are in env steps
STEP_SIZE, ENTROPY, GAMMA, LAMBDA, GRADIENT_NORM = 7e-4, 0.01, 0.95, 0.95, 10.0
RANDOM, RLOX, BENCHMARL = "random actions", "rlox", "BenchMARL"
SUPERSUIT = "Stable-Baselines3 with SuperSuit"

# from observations by agent, and whether to take the most probable actions, to actions
Act = Callable[[dict[str, Any], bool], dict[str, Any]]
Report = Callable[[int, Act], None]  # takes the env steps so far


def play(env: Any, act: Act, greedy: bool) -> float:
    """Return the mean return of episodes of a parallel env, each the mean over agents."""
    total = 0.0
    for number in range(EPISODES):
        obs, _ = env.reset(seed=FIRST_SEED + number)
        while env.agents:
            obs, rewards, *_ = env.step(act(obs, greedy))
            total += sum(rewards.values()) / len(rewards)
    return total / EPISODES


def play_random(seed: int, env_steps: int, report: Report) -> None:
    """Play with random actions, without learning."""
    import numpy as np

    rng = np.random.default_rng(seed)
    report(env_steps, lambda obs, greedy: {name: int(rng.integers(5)) for name in obs})


def learn_rlox(seed: int, env_steps: int, report: Report) -> None:
    """Train with rlox."""
    import rlox

    algorithm = rlox.make(
        "mappo", "mpe2/simple_spread_v3", seed=seed, n_envs=N_ENVS, n_steps=ITERATION // N_ENVS,
        n_epochs=EPOCHS, batch_size=AGENTS * MINIBATCH, learning_rate=STEP_SIZE, gamma=GAMMA,
        gae_lambda=LAMBDA, ent_coef=ENTROPY, max_grad_norm=GRADIENT_NORM, hidden=64,
        torch_threads=1, env_kwargs={"max_cycles": CYCLES},
    )  # fmt: skip

    def act(obs: dict[str, Any], greedy: bool) -> dict[str, Any]:
        pairs = enumerate(obs.items())
        return {
            name: algorithm.predict(seen, deterministic=greedy, agent_idx=k)
            for k, (name, seen) in pairs
        }

    for done in range(EVERY, env_steps + 1, EVERY):
        algorithm.train(EVERY)
        report(done, act)


def learn_benchmarl(seed: int, env_steps: int, report: Report) -> None:
    """Train with BenchMARL."""
    import torch
    from benchmarl.experiment import Callback, Experiment
    from mappo_end_to_end import benchmarl_parts
    from tensordict import TensorDict
    from torchrl.envs.utils import ExplorationType, set_exploration_type

    torch.set_num_threads(1)
    parts = benchmarl_parts(ITERATION)
    config, algorithm = parts["config"], parts["algorithm_config"]
    config.on_policy_n_minibatch_iters, config.on_policy_minibatch_size = EPOCHS, MINIBATCH
    config.lr, config.gamma, config.clip_grad_val = STEP_SIZE, GAMMA, GRADIENT_NORM
    config.adam_eps, config.max_n_frames = 1e-5, env_steps
    algorithm.entropy_coef, algorithm.lmbda = ENTROPY, LAMBDA
    experiment = Experiment(**parts, seed=seed)

    def act(obs: dict[str, Any], greedy: bool) -> dict[str, Any]:
        rows = torch.stack([torch.as_tensor(seen) for seen in obs.values()])
        shown = TensorDict({"agent": TensorDict({"observation": rows}, [len(rows)])}, [])
        how = ExplorationType.DETERMINISTIC if greedy else ExplorationType.RANDOM
        with torch.no_grad(), set_exploration_type(how):
            chosen = experiment.policy(shown)["agent", "action"]
        return dict(zip(obs, chosen.tolist(), strict=True))

    class Points(Callback):  # type: ignore[misc]
        """Reports between iterations."""

        done = 0

        def on_train_end(self, training_td: Any, group: str) -> None:
            self.done += ITERATION
            if self.done % EVERY == 0:
                report(self.done, act)

    experiment.callbacks.append(Points())  # not an argument, which would be pickled
    experiment.run()


def learn_supersuit(seed: int, env_steps: int, report: Report) -> None:
    """Train with Stable-Baselines3 and SuperSuit."""
    import numpy as np
    import supersuit
    import torch
    from mpe2 import simple_spread_v3
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    torch.manual_seed(seed)  # PPO(seed=) asks the vector env for a method that it lacks
    np.random.seed(seed)  # noqa: NPY002  # the generator that Stable-Baselines3 draws from
    env = supersuit.pettingzoo_env_to_vec_env_v1(simple_spread_v3.parallel_env(max_cycles=CYCLES))
    envs = supersuit.concat_vec_envs_v1(env, N_ENVS, num_cpus=1, base_class="stable_baselines3")
    model = PPO(
        "MlpPolicy", envs, learning_rate=STEP_SIZE, n_steps=ITERATION // N_ENVS, n_epochs=EPOCHS,
        batch_size=AGENTS * MINIBATCH, gamma=GAMMA, gae_lambda=LAMBDA, ent_coef=ENTROPY,
        max_grad_norm=GRADIENT_NORM, device="cpu", policy_kwargs={"net_arch": [64, 64]},
    )  # fmt: skip

    def act(obs: dict[str, Any], greedy: bool) -> dict[str, Any]:
        chosen, _ = model.predict(np.stack(list(obs.values())), deterministic=greedy)
        return dict(zip(obs, chosen.tolist(), strict=True))

    for done in range(EVERY, env_steps + 1, EVERY):
        model.learn(AGENTS * EVERY, reset_num_timesteps=False)  # its steps are agents'
        report(done, act)


LEARN = {RANDOM: play_random, RLOX: learn_rlox, BENCHMARL: learn_benchmarl,
         SUPERSUIT: learn_supersuit}  # fmt: skip


def train(name: str, seed: int, env_steps: int, file: Path) -> None:
    """Train a contender with a seed, and append a line of JSON to a file at every point."""
    if name == BENCHMARL:
        from pettingzoo.mpe import simple_spread_v3
    else:
        from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env(max_cycles=CYCLES)
    file.unlink(missing_ok=True)

    def report(done: int, act: Act) -> None:
        greedy, drawn = (round(play(env, act, how), 2) for how in (True, False))
        append(file, {"env_steps": done, "greedy": greedy, "drawn": drawn})

    LEARN[name](seed, env_steps, report)


def points(name: str, python: str, seed: int, env_steps: int, folder: Path) -> list[Point]:
    """Return the points of a run, made in a process of its own unless its file is complete."""
    file = folder / f"{name.replace(' ', '-')}-{seed}.jsonl"

    def is_over(found: list[Point]) -> bool:
        return any(point["env_steps"] == env_steps for point in found)

    command = [python, __file__, "--contender", name, "--seed", str(seed)]
    found = points_of(
        file, is_over, [*command, "--env-steps", str(env_steps), "--file", file],
        stdout=subprocess.DEVNULL, env={"SDL_VIDEODRIVER": "dummy"},
    )  # fmt: skip
    return [point for point in found if point["env_steps"] <= env_steps]


def main() -> None:
    """Train, play, and write ``benchmarks/results/<processor>/mappo_learning.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--env-steps", type=int, default=60_000, help="a multiple of 20,000")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peer-seeds", type=int, default=5, help="seeds of the peers")
    parser.add_argument("--jobs", type=int, default=2, help="processes that train at once")
    parser.add_argument("--runs", type=Path, help="folder of runs; complete ones are not repeated")
    parser.add_argument("--benchmarl", help="interpreter that has BenchMARL")
    parser.add_argument("--supersuit", help="interpreter that has SuperSuit")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender is not None:
        return train(given.contender, given.seed, given.env_steps, given.file)

    from measure import machine, write

    folder = given.runs or Path(tempfile.mkdtemp())
    pythons = {BENCHMARL: given.benchmarl, SUPERSUIT: given.supersuit, RLOX: sys.executable,
               RANDOM: sys.executable}  # fmt: skip
    with ThreadPoolExecutor(given.jobs) as pool:
        started = {
            name: [
                pool.submit(points, name, python, seed, given.env_steps, folder)
                for seed in range(given.peer_seeds if python != sys.executable else given.seeds)
            ]
            for name, python in pythons.items()
            if python
        }
    rows = []
    for name, runs in started.items():
        found = [run.result() for run in runs]
        row = {"contender": name, "curves": found}
        for how in ("greedy", "drawn"):
            last = [run[-1][how] for run in found]
            row[f"median_{how}"] = statistics.median(last)
            print(f"{name:34s} {how:6s} {row[f'median_{how}']:7.2f} {last}")
        rows.append(row)
    options = {"env_steps": given.env_steps, "episodes": EPISODES}
    where = machine(["rlox-marl", "rlox-native", "pettingzoo", "mpe2", "torch"])
    print(write("mappo_learning", {**options, "machine": where, "simple_spread": rows}))
    return None


if __name__ == "__main__":
    main()
