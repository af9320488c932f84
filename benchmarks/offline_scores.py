"""Scores of the offline algorithms on recorded datasets: rlox and d3rlpy at equal settings.

One run per call, so that several can run at once: two layers of 64 (or ``--hidden``), minibatches
of 128, 10,000 gradient steps (or ``--steps``), rlox's default step sizes, normalised observations,
rewards of a tenth (or ``--reward-scale``). Policies of the same seed are evaluated in the same
episodes. The datasets are SAC's, with names that begin with the env's:

    rlox dataset record sac --env Pendulum-v1 --config examples/sac-pendulum.yaml
        --total-timesteps 20000 --n-transitions 10000 --to 'datasets/Pendulum-v1-{kind}.npz'
    python benchmarks/offline_scores.py run rlox iql datasets/Pendulum-v1-medium.npz 0
    python benchmarks/offline_scores.py run d3rlpy iql datasets/Pendulum-v1-medium.npz 0
    python benchmarks/offline_scores.py summarize

Every run adds a file to ``results/offline_scores``; ``summarize`` prints a table of the scores,
where 0 is a random policy's return and 100 the expert's.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rlox
import torch
from measure import RESULTS, machine
from rlox.envs.evaluation import Predictor
from rlox_offline.configs import CQLConfig, IQLConfig
from rlox_offline.datasets import load_dataset

FOLDER = RESULTS / "offline_scores"
ALGORITHMS = ("bc", "td3_bc", "iql", "cql")
BATCH, EPISODES = 128, 20


@dataclass(frozen=True)
class Settings:
    """Settings of both libraries that options change."""

    hidden: int = 64
    steps: int = 10_000
    reward_scale: float = 0.1

    def label(self, algorithm: str) -> str:
        """Return an algorithm's name with the settings that differ from the defaults."""
        changed = {
            name: value for name, value in asdict(self).items() if value != getattr(Settings, name)
        }
        hidden = changed.pop("hidden", None)
        parts = [f"{name.replace('_', '-')}-{value:g}" for name, value in changed.items()]
        return "-".join([algorithm, *([] if hidden is None else [str(hidden)]), *parts])


def main() -> None:
    """Make one run, or print a table of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train once")
    run.add_argument("contender", choices=TRAINERS)
    run.add_argument("algorithm", choices=ALGORITHMS)
    run.add_argument("dataset", type=Path)
    run.add_argument("seed", type=int)
    run.add_argument("--hidden", type=int, default=Settings.hidden)
    run.add_argument("--steps", type=int, default=Settings.steps)
    run.add_argument("--reward-scale", type=float, default=Settings.reward_scale)
    commands.add_parser("summarize", help="print a table")
    arguments = parser.parse_args()
    if arguments.command == "summarize":
        summarize()
        return
    torch.set_num_threads(1)
    dataset = load_dataset(str(arguments.dataset))
    env_id, _, kind = arguments.dataset.stem.rpartition("-")
    settings = Settings(arguments.hidden, arguments.steps, arguments.reward_scale)
    train = TRAINERS[arguments.contender]
    policy = train(arguments.algorithm, dataset, arguments.seed, settings)
    evaluation = rlox.evaluate(policy, env_id, n_episodes=EPISODES, seed=arguments.seed)
    score = evaluation.normalized_score(dataset.random_return, dataset.expert_return)
    result = {
        "contender": arguments.contender,
        "algorithm": settings.label(arguments.algorithm),
        "env": env_id,
        "kind": kind,
        "seed": arguments.seed,
        "mean_return": evaluation.mean_return,
        "score": score,
        "transitions": len(dataset),
        "settings": asdict(settings),
        "machine": machine(["rlox-core", "rlox-native", "d3rlpy", "gymnasium", "torch"]),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = "-".join(str(result[key]) for key in ("contender", "algorithm", "env", "kind", "seed"))
    (FOLDER / f"{name}.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(name, f"{evaluation.mean_return:.1f}, score {score:.1f}", flush=True)


def train_ours(name: str, dataset: Any, seed: int, settings: Settings) -> Predictor:
    """Return rlox's policy."""
    options: dict[str, Any] = {} if name == "bc" else {"reward_scale": settings.reward_scale}
    if name == "cql":
        options["mode_targets"] = True  # as d3rlpy's are
    make: Any = rlox.make  # of any name
    algorithm: rlox.Algorithm = make(
        name, dataset=dataset, hidden=settings.hidden, batch_size=BATCH, seed=seed, **options
    )
    algorithm.train(settings.steps)
    return algorithm


def train_theirs(name: str, dataset: Any, seed: int, settings: Settings) -> Predictor:
    """Return d3rlpy's policy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import d3rlpy
    from d3rlpy.optimizers import AdamFactory
    from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory

    d3rlpy.seed(seed)
    encoder = d3rlpy.models.VectorEncoderFactory([settings.hidden] * 2)
    of_critic = {"critic_encoder_factory": encoder, "actor_encoder_factory": encoder}
    iql, cql = IQLConfig(), CQLConfig()
    cosine = AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=settings.steps))
    common: Any = {
        "batch_size": BATCH,
        "action_scaler": d3rlpy.preprocessing.MinMaxActionScaler(
            minimum=dataset.act_low, maximum=dataset.act_high
        ),
        "observation_scaler": d3rlpy.preprocessing.StandardObservationScaler(
            mean=dataset.columns["obs"].mean(0), std=dataset.columns["obs"].std(0)
        ),
        "reward_scaler": d3rlpy.preprocessing.MultiplyRewardScaler(
            multiplier=settings.reward_scale
        ),
    }
    configs: dict[str, Any] = {
        "bc": d3rlpy.algos.BCConfig(
            learning_rate=iql.learning_rate, encoder_factory=encoder, **common
        ),
        "td3_bc": d3rlpy.algos.TD3PlusBCConfig(**of_critic, **common),
        "iql": d3rlpy.algos.IQLConfig(
            actor_optim_factory=cosine, value_encoder_factory=encoder, **of_critic, **common
        ),
        # without a rate d3rlpy keeps the penalty's weight constant, as rlox does
        "cql": d3rlpy.algos.CQLConfig(
            actor_learning_rate=cql.actor_learning_rate,
            critic_learning_rate=cql.learning_rate,
            temp_learning_rate=cql.actor_learning_rate,
            alpha_learning_rate=0.0,
            **of_critic,
            **common,
        ),
    }
    columns = dataset.columns
    recorded = d3rlpy.dataset.MDPDataset(
        *(columns[key] for key in ("obs", "actions", "rewards", "terminated", "truncated"))
    )
    algorithm = configs[name].create(device="cpu:0")
    algorithm.build_with_dataset(recorded)
    for _ in range(settings.steps):
        algorithm.update(recorded.sample_transition_batch(BATCH))
    return Theirs(algorithm)


class Theirs:
    """A policy of d3rlpy."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the modes; it draws no actions here."""
        return self._algorithm.predict(np.asarray(obs, np.float32))


TRAINERS = {"rlox": train_ours, "d3rlpy": train_theirs}


def summarize() -> None:
    """Print mean and deviation of the scores, by dataset and algorithm."""
    scores: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for path in sorted(FOLDER.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        scores[run["env"], run["kind"], run["algorithm"]][run["contender"]].append(run["score"])
    columns = ("env", "dataset", "algorithm", "rlox", "d3rlpy", "seeds")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for (env_id, kind, algorithm), of_contenders in scores.items():
        found = [of_contenders[contender] for contender in TRAINERS]
        cells = [
            f"{np.mean(values):.0f} ± {np.std(values, ddof=1):.0f}" if len(values) > 1 else "-"
            for values in found
        ]
        counts = ", ".join(str(len(values)) for values in found)
        print(f"| {env_id} | {kind} | {algorithm} | {' | '.join(cells)} | {counts} |")


if __name__ == "__main__":
    main()
