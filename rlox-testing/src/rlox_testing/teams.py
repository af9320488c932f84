"""Conformance checks of algorithms of several agents."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from rlox.algorithm import make
from rlox.envs.teams import make_team_env
from rlox.protocols import MultiAgentVecEnv, StatefulVecEnv
from rlox.registry.table import algorithm_class

from rlox_testing.arrays import RewritingVecEnv
from rlox_testing.cases import Case
from rlox_testing.declarations import check_config_documented, check_config_round_trip, check_spec
from rlox_testing.known_envs import check_team_masks
from rlox_testing.probes import (
    Recorder,
    RowRecorder,
    check,
    refused,
    require,
    require_same,
    require_seeded,
    run_checks,
)
from rlox_testing.restoring import full_state

Algorithm = Any


def _rows(metrics: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.endswith("_per_second")}


@check
def check_team_options(name: str, env: Any, **arguments: Any) -> None:
    """Check that an unknown option, and a wrong number of agents, are errors."""
    for option, value in {"optoin": 1, "n_agents": 1000}.items():
        with refused(option):
            make(name, env=env, **{**arguments, option: value}).close()


@check
def check_team_training(name: str, env: Any, **arguments: Any) -> None:
    """Check two iterations: the clock counts copies of the env, rows have each agent's return."""
    rows, recorder = RowRecorder(), Recorder()
    with make(name, env=env, logger=rows, callbacks=[recorder], **arguments) as algorithm:
        agents = _closed(env, algorithm).possible_agents
        for iteration in (1, 2):
            metrics = algorithm.train(1)
            require(
                algorithm.clock.iterations == iteration,
                f"train(1) must take one iteration, took {algorithm.clock.iterations}",
            )
        n_envs = algorithm.config.n_envs
        expected = [n_envs * (i + 1) for i in range(len(recorder.steps))]
        require(
            recorder.steps == expected,
            f"a vector step of {n_envs} envs is {n_envs} env steps, whatever the number of agents; "
            f"on_step saw {recorder.steps[:3]}...",
        )
        require(len(rows.rows) == 2, f"the logger must get a row per iteration, got {rows.rows}")
        for agent in agents:
            require(f"return/{agent}" in metrics, f"metrics need 'return/{agent}'")
        for key, value in metrics.items():
            require(isinstance(value, float), f"the metric '{key}' must be a float")
        means = [metrics[f"return/{agent}"] for agent in agents]
        require(
            math.isnan(metrics["mean_reward"])
            or math.isclose(metrics["mean_reward"], float(np.mean(means)), rel_tol=1e-5),
            f"mean_reward must be the mean of the agents' returns {means}, got "
            f"{metrics['mean_reward']}",
        )


def _closed(env: Any, algorithm: Algorithm) -> MultiAgentVecEnv:
    """Return an env like the algorithm's, closed again."""
    with closing(make_team_env(env, n_envs=1, backend=algorithm.config.env_backend)) as vec_env:
        return vec_env


@check
def check_team_seeding(name: str, env: Any, **arguments: Any) -> None:
    """Check that one seed gives one state, bit by bit, and that evaluations change nothing."""
    require_seeded(
        lambda seed: make(name, env=env, **{**arguments, "seed": seed}),
        lambda algorithm: algorithm.evaluate(n_episodes=1, deterministic=False),
    )


@check
def check_team_evaluation(name: str, env: Any, **arguments: Any) -> None:
    """Check that evaluations play whole episodes and report the returns of every agent."""
    with make(name, env=env, **arguments) as algorithm:
        algorithm.train(1)
        one = algorithm.evaluate(n_episodes=3, seed=5)
        two = algorithm.evaluate(n_episodes=3, seed=5)
        require(
            set(one.agent_returns) == set(_closed(env, algorithm).possible_agents),
            f"agent_returns must name every agent, got {sorted(one.agent_returns)}",
        )
        require(
            np.allclose(np.mean(list(one.agent_returns.values()), axis=0), one.returns),
            "returns must be the means of the agents' returns",
        )
        require(
            np.array_equal(one.returns, two.returns), "one seed must give the same episodes twice"
        )


@check
def check_team_resume(name: str, env: Any, **arguments: Any) -> str | None:
    """Check that saving, restoring and going on equals training straight through, bit by bit."""
    with tempfile.TemporaryDirectory() as folder, make(name, env=env, **arguments) as straight:
        path = Path(folder, "first.rlox")
        straight.train(1)
        straight.save(path)
        given = {} if isinstance(env, str) else {"env_id": env}
        with algorithm_class(name).from_checkpoint(path, **given) as resumed:
            if not isinstance(_closed(env, straight), StatefulVecEnv):
                require(
                    resumed.clock.env_steps == straight.clock.env_steps, "the clock was not saved"
                )
                return "the env does not expose its state"
            for _ in range(2):
                rows = _rows(straight.train(1)), _rows(resumed.train(1))
                require_same(*rows, "rows differ after a resume")
            require_same(
                full_state(straight), full_state(resumed), "a resumed training ends elsewhere"
            )
    return None


@check
def check_team_rewritten_arrays(name: str, env: Any, **arguments: Any) -> None:
    """Check that an env may write into all arrays that it returned before, and into the actions."""
    config: Any = Case(name, env, arguments).config

    def trained(rewrites: bool) -> dict[str, Any]:
        made = make_team_env(env, n_envs=config.n_envs, backend=config.env_backend)
        reused: Any = RewritingVecEnv(made, rewrites=rewrites)
        with make(name, env=reused, **arguments) as algorithm:
            for _ in range(2):
                algorithm.train(1)
            state = algorithm.state_dict()
        made.close()
        return state

    require_same(trained(False), trained(True), "copy arrays that are kept beyond the next step")


MULTI_AGENT_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_spec,
    check_config_documented,
    check_config_round_trip,
    check_team_options,
    check_team_training,
    check_team_seeding,
    check_team_evaluation,
    check_team_resume,
    check_team_masks,
    check_team_rewritten_arrays,
)
"""All checks of an algorithm for teams, in the order they are run."""


def check_multi_agent_algorithm(name: str, env: Any, **arguments: Any) -> dict[str, str]:
    """Run every check of an algorithm that learns from an env of several agents.

    Args:
        name: registered name of the algorithm.
        env: an id, or a callable that makes an env of several agents.
        arguments: of :func:`rlox.make`, above all options that make an iteration small.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(MULTI_AGENT_CHECKS, name, env, **arguments)
