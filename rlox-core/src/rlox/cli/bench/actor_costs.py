"""Measured costs of actors, of their hand-over and of the learner."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from rlox import api, registry
from rlox.analysis.throughput import ActorCosts
from rlox.callbacks import Callback
from rlox.config.composition import selection
from rlox.errors import ConfigError

if TYPE_CHECKING:
    from rlox.config.model import Config
    from rlox.rollouts.actors import ActorPlan, Weights

__all__ = ["measure_actor_costs"]

SEVERAL = 4
"""Unrolls of the larger of the two updates that are timed."""


def measure_actor_costs(name: str, env: Any, config: Config, rounds: int = 5) -> ActorCosts:
    """Measure what the parts of a training with actors cost, with one actor.

    An actor in this process and one of the config's backend collect in turn; their difference is
    the hand-over. Updates of one unroll and of four say what an update costs, and what each unroll
    adds to it.

    Args:
        name: of an algorithm that learns from actors.
        env: its env.
        config: its options.
        rounds: measurements of each part; the median counts.

    Raises:
        ConfigError: the algorithm has no actors.
    """
    if "n_actors" not in type(config).model_fields:
        raise ConfigError(
            f"'{name}' has no actors to measure; rlox bench cluster is for impala, appo and others "
            "with the option n_actors"
        )
    few = {"n_actors": 1, "queue_size": 0, "max_lag": None, "min_workers": None}
    alone = config.replace(**few, unrolls_per_update=1)
    # typed loosely: that it has actors follows from its options
    with api.make(name, env, config=alone.replace(actor_backend="thread")) as made:
        algorithm: Any = made
        plan: ActorPlan = algorithm.actors.plan
        weights: Weights = algorithm.actors.weights(algorithm.agent)
        parts = _actor_parts(plan, weights, alone, rounds)
        size = int(algorithm.optimizer.parameters.nbytes)
    updates = {}
    for unrolls in (1, SEVERAL):
        options = config.replace(**few, unrolls_per_update=unrolls)
        updates[unrolls] = _learner_parts(name, env, options, rounds)
    (one, collecting), (several, _) = updates[1], updates[SEVERAL]
    each = max(0.0, (several - one) / (SEVERAL - 1))
    if (
        selection(alone, "actor_backend").name == "thread"
    ):  # whose actors collect in the learner's process
        collecting -= parts["actor_processor"]
    return ActorCosts(
        n_envs=plan.n_envs,
        n_steps=plan.n_steps,
        handling=max(0.0, collecting),
        update=max(0.0, one - each),
        update_unroll=each,
        weight_bytes=size,
        **parts,
    )


def _actor_parts(plan: ActorPlan, weights: Weights, config: Config, rounds: int) -> dict[str, Any]:
    """Return an actor's costs by their names in :class:`ActorCosts`."""
    from rlox.batches.unrolls import unroll_to_arrays
    from rlox.rollouts.actors import LocalActor

    chosen = selection(config, "actor_backend")
    make = registry.get_registry().get("rlox_actor_backends", chosen.name).build
    here, there = [], []
    with (
        closing(LocalActor(plan, 0)) as local,
        closing(make(plan, 0, options=chosen.options)) as elsewhere,
    ):
        unroll = local.collect(weights)
        elsewhere.collect(weights)  # resets its envs
        for _ in range(rounds):
            here.append(_timed(lambda: local.collect(weights)))
            there.append(_timed(lambda: elsewhere.collect(weights)))
        moved = sum(array.nbytes for array in unroll_to_arrays(unroll).values())
    collecting = statistics.median(wall for wall, _ in here)
    env = min(_env_seconds(plan, rounds), collecting / plan.n_steps)
    return {
        "env": env / plan.n_envs,
        "inference": collecting / plan.n_steps - env,
        "call": max(0.0, statistics.median(wall for wall, _ in there) - collecting),
        "actor_processor": statistics.median(busy for _, busy in here),
        "unroll_bytes": moved,
    }


def _env_seconds(plan: ActorPlan, rounds: int) -> float:
    """Return the seconds of a vector step with random actions."""
    from rlox.cli.bench.random_steps import random_steps
    from rlox.envs import make_vec_env

    made = make_vec_env(
        plan.env_of(0),
        n_envs=plan.n_envs,
        backend=plan.env_backend_of(0),
        vectorization=plan.vectorization,
        env_kwargs=plan.env_kwargs,
    )
    with closing(made) as envs:
        step = random_steps(envs, plan.seed)
        seconds = [_timed(lambda: step(plan.n_steps))[0] for _ in range(rounds)]
        return statistics.median(seconds) / plan.n_steps


def _learner_parts(name: str, env: Any, config: Config, rounds: int) -> tuple[float, float]:
    """Return seconds of an update, and processor seconds of this process for each unroll before.

    The second is what an unroll costs this process until the update begins.
    """
    clock = _PhaseClock()
    options: Any = config
    update_steps = options.unrolls_per_update * options.n_envs * options.n_steps
    with api.make(name, env, config=config, callbacks=clock) as algorithm:
        algorithm.train(update_steps)  # compiles, and starts the actor
        learning, collecting = [], []
        for _ in range(rounds):
            clock.spent.clear()
            algorithm.train(update_steps)
            learning.append(clock.spent["learn"][0])
            collecting.append(clock.spent["collect"][1] / options.unrolls_per_update)
    return statistics.median(learning), statistics.median(collecting)


def _timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Return seconds on the wall and of this process's processor time."""
    before = _now()
    run()
    after = _now()
    return after[0] - before[0], after[1] - before[1]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class _PhaseClock(Callback):
    """Seconds on the wall and of the processor, by phase."""

    def __init__(self) -> None:
        self.spent: dict[str, tuple[float, float]] = {}
        self._phase, self._since = "other", _now()

    def on_phase(self, **kwargs: Any) -> None:
        """Close the phase before and open the next."""
        now = _now()
        wall, busy = self.spent.get(self._phase, (0.0, 0.0))
        self.spent[self._phase] = (
            wall + now[0] - self._since[0],
            busy + now[1] - self._since[1],
        )
        self._phase, self._since = kwargs["phase"], now
