"""Iterations of MAPPO on simple_spread in Rust, in NumPy and through mpe2, and BenchMARL's.

python benchmarks/mappo_end_to_end.py [--rounds 5] [--env-steps 1000] [--benchmarl PYTHON]

Equal networks (two layers of 64), envs (10 of 25 steps, discrete actions), epochs (45), minibatches
(400 env steps, 1,200 rows of agents) and one thread; agent steps, three per env step. Contenders
run in processes of their own and take turns, an iteration each. BenchMARL needs an interpreter of
its own: ``uv venv bm; uv pip install --python bm benchmarl==1.5.1 torchrl==0.10.1
tensordict==0.10.0 torch==2.8.0 "pettingzoo[mpe]==1.25.0"``. Rates and shares are of processor time,
because wall-clock time says little on a busy machine: ``env`` is its steps, ``acting`` the rest of
a rollout with its advantages, ``update`` the rest of the iteration. BenchMARL's env is not timed by
itself: its share ``rollout`` is both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

N_ENVS, CYCLES, EPOCHS, AGENTS, FRAMES = 10, 25, 45, 3, 400
BACKENDS = {"rlox, native_teams": "native_teams", "rlox, vectorized": "vectorized",
            "rlox, mpe2": "pettingzoo"}  # fmt: skip
PEER = "BenchMARL"


class Shares:
    """Processor time of the parts of one iteration."""

    def __init__(self) -> None:
        self.env = self.rollout = 0.0
        self._began = time.process_time()

    def timing(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``step``, its time counted as the env's."""

        def timed(*args: Any) -> Any:
            before = time.process_time()
            found = step(*args)
            self.env += time.process_time() - before
            return found

        return timed

    def begin(self) -> None:
        """Begin an iteration."""
        self.env, self._began = 0.0, time.process_time()

    def end_rollout(self) -> None:
        """Record the end of the rollout."""
        self.rollout = time.process_time() - self._began


def take_turns(iterate: Callable[[], Any], shares: Shares) -> None:
    """Run an iteration for each line of input, and report its times."""
    while True:
        wait()
        before = time.process_time(), time.perf_counter()
        shares.begin()
        iterate()
        report(before, shares)


def wait() -> None:
    """Wait for the next turn; exit with the parent."""
    if not sys.stdin.readline():
        sys.exit(0)


def report(before: tuple[float, float], shares: Shares) -> None:
    """Write processor and wall-clock seconds, and those of the env and of the rollout."""
    whole = time.process_time() - before[0], time.perf_counter() - before[1]
    print("took", *whole, shares.env, shares.rollout, flush=True)


def run_rlox(backend: str, env_steps: int) -> None:
    """Train in turns with an env backend."""
    import rlox
    from rlox.callbacks import Callback

    shares = Shares()

    class Ends(Callback):
        """Records the ends of rollouts."""

        def on_rollout_end(self, **kwargs: Any) -> None:
            shares.end_rollout()

    algorithm = rlox.make(
        "mappo", "mpe2/simple_spread_v3", seed=0, env_backend=backend, torch_threads=1,
        n_envs=N_ENVS, n_steps=env_steps // N_ENVS, n_epochs=EPOCHS, batch_size=AGENTS * FRAMES,
        learning_rate=7e-4, gae_lambda=0.9, ent_coef=0.0, hidden=64,
        env_kwargs={"max_cycles": CYCLES}, callbacks=Ends(),
    )  # fmt: skip
    collector: Any = algorithm.collector
    env = collector.env
    timed = SimpleNamespace(
        **{name: getattr(env, name) for name in ("n_envs", "groups", "possible_agents", "reset_all",
                                                 "close")},
        step_all=shares.timing(env.step_all),
    )  # fmt: skip
    collector.env = collector.envs.env = timed
    take_turns(lambda: algorithm.train(env_steps), shares)


def benchmarl_parts(env_steps: int) -> dict[str, Any]:
    """Return the arguments of BenchMARL's experiment, without its seed.

    Args:
        env_steps: of one iteration.
    """
    from benchmarl.algorithms import MappoConfig
    from benchmarl.environments import PettingZooTask
    from benchmarl.experiment import ExperimentConfig
    from benchmarl.models.mlp import MlpConfig

    config = ExperimentConfig.get_from_yaml()
    config.prefer_continuous_actions = False
    config.on_policy_collected_frames_per_batch = env_steps
    config.on_policy_n_envs_per_worker = N_ENVS
    config.on_policy_n_minibatch_iters = EPOCHS
    config.on_policy_minibatch_size = FRAMES
    config.lr, config.evaluation, config.render = 7e-4, False, False
    config.loggers, config.create_json = [], False
    config.save_folder = tempfile.mkdtemp()
    task = PettingZooTask.SIMPLE_SPREAD.get_from_yaml()
    task.config["max_cycles"] = CYCLES
    model = MlpConfig.get_from_yaml()
    model.num_cells = [64, 64]
    return {
        "task": task, "algorithm_config": MappoConfig.get_from_yaml(), "model_config": model,
        "critic_model_config": model, "config": config,
    }  # fmt: skip


def run_benchmarl(env_steps: int) -> None:
    """Train in turns with BenchMARL, paused between its iterations."""
    import torch
    from benchmarl.experiment import Callback, Experiment

    class Turns(Callback):  # type: ignore[misc]
        """Reports an iteration when its training ends, and waits before the next."""

        before: tuple[float, float]
        shares = Shares()

        def on_batch_collected(self, batch: Any) -> None:
            self.shares.end_rollout()

        def on_train_end(self, training_td: Any, group: str) -> None:
            report(self.before, self.shares)
            self.begin()

        def begin(self) -> None:
            wait()
            self.before = time.process_time(), time.perf_counter()
            self.shares.begin()

    torch.set_num_threads(1)
    turns = Turns()
    experiment = Experiment(**benchmarl_parts(env_steps), seed=0)
    experiment.callbacks.append(turns)  # not an argument, which would be pickled
    turns.begin()
    experiment.run()


class Contender:
    """A process that trains in turns.

    Args:
        name: of the contender.
        python: an interpreter that has it.
        env_steps: of one iteration.
    """

    def __init__(self, name: str, python: str, env_steps: int) -> None:
        command = [python, __file__, "--env-steps", str(env_steps), "--contender", name]
        self.seconds: list[tuple[float, ...]] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"},
        )  # fmt: skip

    def turn(self) -> None:
        """Let it run an iteration."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("took "):
                self.seconds.append(tuple(map(float, line.split()[1:])))
                return
        raise RuntimeError(f"a contender ended with status {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/mappo_end_to_end.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--env-steps", type=int, default=1_000, help="of one iteration")
    parser.add_argument("--benchmarl", help="interpreter that has BenchMARL")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender == PEER:
        return run_benchmarl(given.env_steps)
    if given.contender is not None:
        return run_rlox(BACKENDS[given.contender], given.env_steps)

    from measure import machine, summary, write

    pythons = dict.fromkeys(BACKENDS, sys.executable)
    if given.benchmarl:
        pythons[PEER] = given.benchmarl
    made = {name: Contender(name, python, given.env_steps) for name, python in pythons.items()}
    try:
        for _ in range(given.rounds + 1):  # the first warms up
            for one in made.values():
                one.turn()
    finally:
        for one in made.values():
            one.close()
    rows = []
    for name, one in made.items():
        processor, wall = (
            summary([AGENTS * given.env_steps / pair[kind] for pair in one.seconds[1:]])
            for kind in (0, 1)
        )
        whole, _, env, rollout = (sum(times) for times in zip(*one.seconds[1:], strict=True))
        parts = {"env": env, "acting": rollout - env, "update": whole - rollout}
        if name == PEER:
            parts = {"rollout": rollout, "update": whole - rollout}
        rows.append(
            {
                "contender": name,
                "shares": {part: round(spent / whole, 3) for part, spent in parts.items()},
                "agent_steps_per_processor_second": processor,
                "agent_steps_per_second": wall,
            }
        )
        print(f"{name:22s} {processor['median']:10,.0f} agent steps per processor second")
        print(f"{'':22s} {rows[-1]['shares']}")
    options = {"rounds": given.rounds, "env_steps": given.env_steps}
    where = machine(["rlox-marl", "rlox-native", "pettingzoo", "mpe2", "torch"])
    print(write("mappo_end_to_end", {**options, "machine": where, "simple_spread": rows}))
    return None


if __name__ == "__main__":
    main()
