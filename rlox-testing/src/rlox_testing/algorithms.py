"""Conformance checks of :class:`rlox.Algorithm`.

Every check takes the registered name, an env that can be copied (an id or a callable), and the
arguments of :func:`rlox.make`; choose them such that an iteration takes milliseconds. A probe
watches the env, so counters and returns are compared with the env's, not with the algorithm's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlox_testing.arrays import check_few_rows, check_odd_numbers, check_rewritten_arrays
from rlox_testing.cases import CARTPOLE, open_case
from rlox_testing.declarations import (
    check_config_documented,
    check_config_round_trip,
    check_spec,
    check_unknown_option,
)
from rlox_testing.known_envs import check_masks, check_memory, check_order
from rlox_testing.probes import (
    EPISODE_MEANS,
    ProbeGroup,
    ProbeVecEnv,
    Recorder,
    RowRecorder,
    check,
    require,
    require_actions,
    require_seeded,
    run_checks,
)
from rlox_testing.restoring import check_checkpoint, check_resume


@check
def check_training(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check two iterations: the clock counts the env's steps, metrics are floats, all is logged."""
    with open_case(name, env, arguments) as case:
        watched, rows = case.probe(), RowRecorder()
        algorithm = case.build(watched, logger=rows)
        for iteration in (1, 2):
            metrics = algorithm.train(1)
            require(
                algorithm.clock.iterations == iteration,
                f"train(1) must take one iteration, took {algorithm.clock.iterations} in "
                f"{iteration} calls; leave the clock to hooks",
            )
            require(
                algorithm.clock.env_steps == watched.env_steps,
                f"the clock says {algorithm.clock.env_steps} env steps, the env made "
                f"{watched.env_steps}; a vector step of N envs is N env steps",
            )
            _require_metrics(metrics, watched)
        steps = [step for step, _ in rows.rows]
        require(
            len(steps) == 2 and steps[-1] == algorithm.clock.env_steps,
            f"the logger must get one row per iteration, got rows at the env steps {steps}",
        )


def _require_metrics(metrics: Mapping[str, Any], watched: ProbeVecEnv | ProbeGroup) -> None:
    require("mean_reward" in metrics, f"metrics need 'mean_reward', got {sorted(metrics)}")
    for key, value in metrics.items():
        require(
            isinstance(value, float),
            f"the metric '{key}' must be a float, got {type(value).__name__}",
        )
        unknown = key in EPISODE_MEANS and not watched.returns and math.isnan(value)
        require(math.isfinite(value) or unknown, f"the metric '{key}' is {value}")
    reported, seen = metrics["mean_reward"], watched.mean_return
    require(
        (math.isnan(reported) and math.isnan(seen)) or math.isclose(reported, seen, rel_tol=1e-5),
        f"mean_reward is {reported}, but the mean return of the last 100 finished episodes is "
        f"{seen}",
    )


@check
def check_seeding(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that one seed gives one state, bit for bit, with predictions too; others differ."""
    with open_case(name, env, arguments) as case:
        space = case.probe().observation_space
        require_seeded(
            lambda seed: case.build(case.probe(), seed=seed),
            lambda algorithm: algorithm.predict(space.sample(), deterministic=False),
        )


@check
def check_callbacks(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that callbacks see every vector step in env steps, start and end once, and can stop."""
    with open_case(name, env, arguments) as case:
        watched, recorder = case.probe(), Recorder()
        n_envs = watched.n_envs
        case.build(watched, recorder).train(1)
        expected = [n_envs * (i + 1) for i in range(watched.vector_steps)]
        require(
            recorder.steps == expected,
            f"on_step must come after each vector step with step = {expected[:3]}..., got "
            f"{recorder.steps[:3]}... ({len(recorder.steps)} of {len(expected)})",
        )
        _require_start_and_end(recorder)
        watched, recorder = case.probe(), Recorder(stop_at=2 * n_envs)
        algorithm = case.build(watched, recorder)
        algorithm.train(max(expected[-1], 4 * n_envs))
        # actors finish their unroll, whose further steps are not reported
        made = 2 * n_envs if isinstance(watched, ProbeGroup) else watched.env_steps
        require(
            algorithm.clock.env_steps == made == 2 * n_envs,
            f"on_step returned False after {2 * n_envs} env steps, but training went on to "
            f"{max(made, algorithm.clock.env_steps)}",
        )
        _require_start_and_end(recorder)


def _require_start_and_end(recorder: Recorder) -> None:
    events = recorder.events
    for event, position in (("on_training_start", 0), ("on_training_end", -1)):
        require(
            events.count(event) == 1 and events[position] == event,
            f"{event} must come exactly once, and {'last' if position else 'first'}; "
            f"it came {events.count(event)} times",
        )


@check
def check_predict(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check actions for one observation and for batches: type, shape, dtype, within bounds."""
    with open_case(name, env, arguments) as case:
        watched = case.probe()
        algorithm = case.build(watched)
        obs = np.concatenate([np.array(watched.reset_all(seed)) for seed in (0, 100, 200)])
        require_actions(algorithm, obs, watched.action_space)


ALGORITHM_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_spec,
    check_config_documented,
    check_config_round_trip,
    check_unknown_option,
    check_training,
    check_seeding,
    check_predict,
    check_checkpoint,
    check_resume,
    check_callbacks,
    check_order,
    check_memory,
    check_masks,
    check_rewritten_arrays,
    check_odd_numbers,
    check_few_rows,
)
"""All checks of an algorithm, in the order in which :func:`check_algorithm` runs them."""


def check_algorithm(name: str, env: Any = CARTPOLE, **arguments: Any) -> dict[str, str]:
    """Run every check of an algorithm that learns from an env.

    Args:
        name: registered name of the algorithm.
        env: a gymnasium id, or a callable that makes a gymnasium env.
        arguments: of :func:`rlox.make`, above all options that make an iteration small.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(ALGORITHM_CHECKS, name, env, **arguments)
