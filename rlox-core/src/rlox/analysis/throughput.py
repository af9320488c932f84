"""A model of the throughput of actors and a learner.

    u = T (N e + i) + c                        seconds of an unroll
    steps/s = U N T / period(U)

where the period between two updates follows from the order in which unrolls are handed out, and is
never shorter than what processors, the learner's process and its link need for U unrolls.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ActorCosts", "Prediction", "predict_throughput"]

UPDATES = 60
"""Updates that are played through; the first third, in which the queue fills, does not count."""


@dataclass(frozen=True)
class ActorCosts:
    """What actors and learner cost, by part; times in seconds, N envs and T steps an unroll."""

    n_envs: int
    n_steps: int
    env: float
    """One step of one env e."""
    inference: float
    """The policy for N observations, and keeping the step, i."""
    call: float
    """Handing weights over and an unroll back on this machine, c; beside the actor's own time."""
    actor_processor: float
    """Processor time of an unroll in its actor."""
    handling: float
    """Processor time of the learner's process for taking an unroll in."""
    update: float
    """An update of no rows: what every update takes."""
    update_unroll: float
    """What each unroll adds to an update."""
    unroll_bytes: int
    """Bytes of an unroll b."""
    weight_bytes: int
    """Bytes of the weights w."""

    @property
    def unroll(self) -> float:
        """Seconds of an unroll u, undisturbed and on this machine."""
        return self.n_steps * (self.n_envs * self.env + self.inference) + self.call

    def update_of(self, unrolls: int) -> float:
        """Return the seconds in which a learner takes unrolls in and learns from them."""
        return self.update + unrolls * (self.update_unroll + self.handling)


@dataclass(frozen=True)
class Prediction:
    """What the model says of a number of actors."""

    actors: int
    env_steps_per_second: float
    bottleneck: str
    """What is at its limit: actors, processors, learner, or link."""


def predict_throughput(
    costs: ActorCosts,
    actors: int,
    *,
    unrolls: int | None = None,
    queue: int = 0,
    processors: int | None = None,
    link: float | None = None,
) -> Prediction:
    """Predict env steps per second, and say what limits them.

    Args:
        costs: as measured.
        actors: A.
        unrolls: of an update U; ``None``: one of each actor.
        queue: unrolls collected ahead Q, taken in the fixed order.
        processors: cores that actors and learner share; ``None``: each has one of its own.
        link: bytes per second of the learner's link; ``None``: the actors are on its machine.

    Raises:
        ValueError: a number is out of range.
    """
    size = actors if unrolls is None else unrolls
    if min(actors, size) < 1 or queue < 0:
        raise ValueError(
            f"actors and unrolls must be at least 1 and the queue at least 0, got {actors}, "
            f"{size} and {queue}"
        )
    moved = 0.0 if link is None else costs.unroll_bytes / link
    collect, update = costs.unroll + moved, costs.update_of(size)
    busy = costs.actor_processor + costs.call
    if processors is not None:  # of those that collect at the same time, each gets a share
        collect = max(collect, min(actors, size + queue) * busy / processors)
    limits = {
        "actors": 0.0,  # their order decides, below
        "processors": 0.0 if processors is None else (size * busy + update) / processors,
        "learner": update,
        "link": size * moved + (costs.weight_bytes / link if link else 0.0),
    }
    if queue < size:
        del limits["processors"]  # whoever waits for the other needs none
    limits["actors"] = _period(actors, size, queue, collect, update)
    slowest = max(limits, key=lambda name: limits[name])
    if slowest == "actors":
        slowest = _limit_of_order(costs, collect, limits["actors"], update, moved)
    period = max(limits.values())
    return Prediction(actors, size * costs.n_envs * costs.n_steps / period, slowest)


def _period(actors: int, size: int, queue: int, collect: float, update: float) -> float:
    """Return the seconds between two updates in the fixed order of unrolls.

    Unroll k belongs to update ⌊k/U⌋, actor k mod A collects it, and it begins once update
    ⌈(k + 1 - Q) / U⌉ - 1 is over; see :class:`rlox.rollouts.ActorPool`.
    """
    free, ends = [0.0] * actors, [0.0]
    for number in range(UPDATES):
        arrived = 0.0
        for k in range(number * size, (number + 1) * size):
            needed = min(number, max(0, -(-(k + 1 - queue) // size) - 1))
            free[k % actors] = max(free[k % actors], ends[needed]) + collect
            arrived = max(arrived, free[k % actors])
        ends.append(max(ends[-1], arrived) + update)
    skipped = UPDATES // 3
    return (ends[-1] - ends[skipped]) / (UPDATES - skipped)


def _limit_of_order(
    costs: ActorCosts, collect: float, period: float, update: float, moved: float
) -> str:
    """Return what most of a period is spent on that no resource limits by itself."""
    if update > period / 2:
        return "learner"
    if collect > costs.unroll + moved:
        return "processors"
    return "link" if moved > collect / 2 else "actors"
