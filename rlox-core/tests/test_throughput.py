"""The model of throughput: its closed forms, orders in between, limits, and wrong numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from rlox.analysis.throughput import ActorCosts, predict_throughput

COSTS = ActorCosts(
    n_envs=2,
    n_steps=10,
    env=0.004,
    inference=0.001,
    call=0.01,
    actor_processor=0.02,
    handling=0.002,
    update=0.01,
    update_unroll=0.003,
    unroll_bytes=1_000_000,
    weight_bytes=4_000,
)
"""u = 10 (2 x 0.004 + 0.001) + 0.01 = 0.1 s, and an update of U unrolls takes 0.01 + 0.005 U s."""


def test_an_unroll_and_an_update_add_up() -> None:
    """As the page says: T (N e + i) + c, and g."""
    assert COSTS.unroll == pytest.approx(0.1)
    assert COSTS.update_of(4) == pytest.approx(0.03)


@pytest.mark.parametrize(("actors", "unrolls", "rounds"), [(1, 1, 1), (4, 4, 1), (2, 6, 3)])
def test_without_a_queue_one_follows_the_other(actors: int, unrolls: int, rounds: int) -> None:
    """U N T / (u ceil(U / A) + g)."""
    found = predict_throughput(COSTS, actors, unrolls=unrolls)
    period = 0.1 * rounds + 0.01 + 0.005 * unrolls
    assert found.env_steps_per_second == pytest.approx(20 * unrolls / period)
    assert found.bottleneck == "actors"


def test_with_a_queue_the_slower_decides() -> None:
    """N T A / u while actors are slower, U N T / g beyond."""
    few = predict_throughput(COSTS, 2, unrolls=2, queue=2)
    assert few.env_steps_per_second == pytest.approx(20 * 2 / 0.1)
    assert few.bottleneck == "actors"
    many = predict_throughput(COSTS, 50, unrolls=2, queue=50)
    assert many.env_steps_per_second == pytest.approx(20 * 2 / 0.02)
    assert many.bottleneck == "learner"


def test_a_short_queue_lies_between() -> None:
    """Half of the unrolls are collected while the learner learns from those before."""
    slow = replace(COSTS, update=0.09)  # g = 0.1 s for two unrolls
    speeds = [
        predict_throughput(slow, 2, unrolls=2, queue=queue).env_steps_per_second
        for queue in (0, 1, 2)
    ]
    assert speeds[0] == pytest.approx(40 / 0.2)
    assert speeds[2] == pytest.approx(40 / 0.1)
    assert speeds[0] <= speeds[1] <= speeds[2]


def test_cores_are_shared() -> None:
    """Actors that compute 0.03 s an unroll, hand-over included, on one core."""
    alone = predict_throughput(COSTS, 8, unrolls=8, queue=8)
    shared = predict_throughput(COSTS, 8, unrolls=8, queue=8, processors=1)
    assert shared.bottleneck == "processors"
    assert shared.env_steps_per_second < alone.env_steps_per_second
    busiest = 8 * 20 / (8 * 0.03 + 0.05)
    assert shared.env_steps_per_second <= busiest


def test_a_link_that_is_full_is_named() -> None:
    """1 MB an unroll over 10 MB/s: at most ten unrolls a second."""
    found = predict_throughput(COSTS, 100, unrolls=100, queue=100, link=1e7)
    assert found.bottleneck == "link"
    assert found.env_steps_per_second == pytest.approx(200, rel=0.01)


def test_more_actors_are_never_slower() -> None:
    """On any number of cores."""
    for processors in (None, 2):
        speeds = [
            predict_throughput(
                COSTS, actors, queue=actors, processors=processors
            ).env_steps_per_second
            for actors in (1, 2, 4, 16, 64)
        ]
        assert all(a <= b * 1.0001 for a, b in pairwise(speeds))


def test_numbers_out_of_range_are_refused() -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match="actors and unrolls must be at least 1"):
        predict_throughput(COSTS, 0)
