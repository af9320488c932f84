"""Throughput of actors against the model that predicts it, and the scaling over Ray's nodes.

python benchmarks/cluster.py [--rounds 5] [--seconds 2.5] [--only NAME ...]
python benchmarks/cluster.py --nodes [--rounds 5]

For each configuration the costs are measured as ``rlox bench cluster`` does, with one actor, and
the throughput of the training itself, the median of its rounds, is compared with what the model
makes of them; rows of other configurations that were measured on such a machine stay. With
``--nodes``, trainings take turns on clusters of one, two and four nodes of Ray on this machine,
each with two actors, whose envs sleep or compute.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import rlox
from measure import kept, machine, summary, write
from rlox import registry
from rlox.analysis.throughput import ActorCosts, predict_throughput
from rlox.cli.bench.actor_costs import measure_actor_costs
from rlox.cli.sweeps.processes import usable_cores


class Slow(gymnasium.Env[Any, Any]):
    """An env whose step sleeps, or computes, for a while; episodes of 200 steps.

    Args:
        sleep: seconds that a step sleeps.
        loops: rounds of a loop that a step computes, 30,000 being about a millisecond.
        image: whether observations are 84 x 84 x 4 bytes and not four numbers.
    """

    def __init__(self, sleep: float = 0.0, loops: int = 0, image: bool = False) -> None:
        box = gymnasium.spaces.Box
        vector = box(-1.0, 1.0, (4,), np.float32)
        self.observation_space = box(0, 255, (84, 84, 4), np.uint8) if image else vector
        self.action_space = gymnasium.spaces.Discrete(2)
        self._sleep, self._loops, self._steps = sleep, loops, 0
        self._seen = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Return zeros."""
        super().reset(seed=seed)
        self._steps = 0
        return self._seen, {}

    def step(self, action: Any) -> Any:
        """Spend the time."""
        if self._sleep:
            time.sleep(self._sleep)
        for _ in range(self._loops):
            pass
        self._steps += 1
        return self._seen, 1.0, False, self._steps == 200, {}


@dataclass(frozen=True)
class Setting:
    """A training whose throughput is predicted and measured."""

    name: str
    env: Any
    options: dict[str, Any]
    algorithm: str = "impala"

    def config(self) -> Any:
        """Return its options."""
        return registry.config_class(self.algorithm)(seed=0, **self.options)


SLEEPS, SLEEPS_LONG = partial(Slow, sleep=0.005), partial(Slow, sleep=0.01)
COMPUTES, IMAGES = partial(Slow, loops=30_000), partial(Slow, sleep=0.002, image=True)


def setting(name: str, env: Any, backend: str, actors: int, n: int, t: int, q: int = 0,
            algorithm: str = "impala", **more: Any) -> Setting:  # fmt: skip
    """Return a setting of A actors of N envs, unrolls of T steps and a queue of Q."""
    sizes = {"n_actors": actors, "n_envs": n, "n_steps": t, "queue_size": q}
    return Setting(name, env, {"actor_backend": backend, **sizes, **more}, algorithm)


# fmt: off
SETTINGS = (
    setting("Ray, sleeps 10 ms, A 1", SLEEPS_LONG, "ray", 1, 1, 32),
    setting("Ray, sleeps 10 ms, A 2", SLEEPS_LONG, "ray", 2, 1, 32),
    setting("Ray, sleeps 10 ms, A 4, Q 4", SLEEPS_LONG, "ray", 4, 1, 32, 4),
    setting("Ray, images of 2 ms, A 2", IMAGES, "ray", 2, 1, 16),
    setting("Ray, computes, A 2", COMPUTES, "ray", 2, 1, 32),
    setting("processes, sleep 5 ms, A 2", SLEEPS, "process", 2, 2, 16),
    setting("processes, sleep 5 ms, A 4, Q 4", SLEEPS, "process", 4, 2, 16, 4),
    setting("processes, sleep 5 ms, A 3, U 2, Q 1", SLEEPS, "process", 3, 1, 16, 1,
            unrolls_per_update=2),
    setting("threads, sleep 5 ms, A 4", SLEEPS, "thread", 4, 2, 16),
    setting("processes, compute, A 1", COMPUTES, "process", 1, 1, 32),
    setting("processes, compute, A 4", COMPUTES, "process", 4, 1, 32),
    setting("APPO, processes, CartPole in Rust, A 2, Q 2", "CartPole-v1", "process", 2, 8, 128, 2,
            "appo"),
)
# fmt: on


def predict(costs: ActorCosts, config: Any) -> Any:
    """Return what the model says of a config on this machine."""
    return predict_throughput(
        costs,
        config.n_actors,
        unrolls=config.update_size,
        queue=config.queue_size,
        processors=usable_cores(),
    )


def speeds_of(setting: Setting, expected: float, rounds: int, seconds: float) -> list[float]:
    """Return env steps per second of a training, by round."""
    config, speeds = setting.config(), []
    update = config.update_size * config.n_envs * config.n_steps
    steps = update * max(5, round(seconds * expected / update))
    with rlox.make(setting.algorithm, setting.env, config=config) as algorithm:
        algorithm.train(2 * update)
        for _ in range(rounds):
            started, before = time.perf_counter(), algorithm.clock.env_steps
            algorithm.train(steps)
            speeds.append((algorithm.clock.env_steps - before) / (time.perf_counter() - started))
    return speeds


def compare(rounds: int, seconds: float, only: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each setting: costs, prediction, measured speeds, and their ratio."""
    for each in SETTINGS:
        if only and not any(text in each.name for text in only):
            continue
        config, about = each.config(), machine([])
        costs = measure_actor_costs(each.algorithm, each.env, config, rounds)
        found = predict(costs, config)
        speeds = speeds_of(each, found.env_steps_per_second, rounds, seconds)
        median = statistics.median(speeds)
        row = {
            "name": each.name,
            "algorithm": each.algorithm,
            "options": each.options,
            "rounds": rounds,
            "seconds": seconds,
            **{name: about[name] for name in ("commit", "date", "load_before")},
            "costs": asdict(costs),
            "predicted": found.env_steps_per_second,
            "bottleneck": found.bottleneck,
            "measured": summary(speeds),
            "predicted_by_measured": found.env_steps_per_second / median,
        }
        found_text = f"predicted {found.env_steps_per_second:9,.0f} ({found.bottleneck})"
        ratio = row["predicted_by_measured"]
        print(f"{each.name:45} {found_text}, measured {median:9,.0f}: {ratio:.2f}", flush=True)
        yield row


def on_one_cluster(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows while one cluster of Ray on this machine serves all of them."""
    from rlox_distributed.ray_cluster import join_cluster

    cluster = join_cluster(None)
    try:
        yield from rows
    finally:
        cluster.leave()


def merged(before: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of settings that exist, in their order, the new one in its place."""
    rows = {row["name"]: row for row in [*before, new]}
    return [rows[each.name] for each in SETTINGS if each.name in rows]


@dataclass
class Nodes:
    """A cluster of so many nodes of this machine, and what trainings on it reached."""

    count: int
    speeds: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, rounds: int, seconds: float) -> None:
        """Start the cluster, train on it, and end it."""
        import ray
        from ray.cluster_utils import Cluster

        small = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args={**small, "num_cpus": 0})
        try:
            for _ in range(self.count):
                cluster.add_node(**small)
            ray.init(address=cluster.address, logging_level="ERROR")
            for name, env in (("sleeps 10 ms", SLEEPS_LONG), ("computes 1 ms", COMPUTES)):
                each = setting(name, env, "ray", 2 * self.count, 1, 32, 2 * self.count)
                expected = 2 * self.count * (90 if env is SLEEPS_LONG else 400)
                self.speeds[name] = speeds_of(each, expected, rounds, seconds)
        finally:
            ray.shutdown()
            cluster.shutdown()


def scale(rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each number of nodes and env: speeds, and how many times one node's."""
    found = [Nodes(count) for count in (1, 2, 4)]
    for nodes in found:
        nodes.measure(rounds, seconds)
    rows = []
    for nodes in found:
        for name, speeds in nodes.speeds.items():
            one = statistics.median(found[0].speeds[name])
            times = statistics.median(speeds) / one
            rows.append({"env": name, "nodes": nodes.count, "actors": 2 * nodes.count,
                         "env_steps_per_second": summary(speeds), "times_one_node": times,
                         "per_node": times / nodes.count})  # fmt: skip
            speed = f"{statistics.median(speeds):8,.0f} env steps/s, {times:.2f} times one node's"
            print(f"{name:15} {nodes.count} nodes: {speed}", flush=True)
    return rows


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5, help="of a round, about")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the settings' names")
    parser.add_argument("--nodes", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(["rlox-core", "torch", "ray"])}
    rounds, seconds = arguments.rounds, arguments.seconds
    if arguments.nodes:
        rows = scale(rounds, seconds)
        print(write("ray_nodes", {**result, "rounds": rounds, "seconds": seconds, "rows": rows}))
    else:
        for row in on_one_cluster(compare(rounds, seconds, arguments.only)):
            rows = merged(kept("cluster").get("rows", []), row)
            print(write("cluster", {**result, "rows": rows}))


if __name__ == "__main__":
    main()
