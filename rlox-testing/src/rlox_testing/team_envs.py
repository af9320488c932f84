"""Conformance checks of env backends of several agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.envs.teams import team_backend
from rlox.protocols import MultiAgentObs, MultiAgentStep, MultiAgentVecEnv, StatefulVecEnv
from rlox.registry.table import get_registry
from rlox.spaces.rows import ActionRows, map_leaves

from rlox_testing.probes import check, first_difference, require, require_same, run_checks

N_STEPS = 60


@contextmanager
def _opened(name: str, env_id: str, n_envs: int) -> Iterator[MultiAgentVecEnv]:
    """Yield N envs, and close them."""
    registration = get_registry().get("rlox_env_backends", name)
    require(registration.spec.teams, f"the spec of '{name}' must say teams=True")
    require(
        team_backend(env_id, name) is not None, f"the spec must have '{env_id}' among its env_ids"
    )
    env: MultiAgentVecEnv = registration.build(env_id, n_envs=n_envs, env_kwargs=None)
    with closing(env):
        require(env.n_envs == n_envs, f"n_envs must be {n_envs}, got {env.n_envs}")
        yield env


def _actions(
    env: MultiAgentVecEnv, shown: MultiAgentObs, rng: np.random.Generator
) -> dict[str, Any]:
    """Return random actions that the masks allow."""
    chosen: dict[str, Any] = {}
    for group in env.groups:
        rows = ActionRows(group.action_space)
        size = env.n_envs * len(group.agents)
        masks = shown["masks"].get(group.name)
        columns: list[npt.NDArray[Any]] = []
        for leaf in rows.leaves:
            if not leaf.sizes:
                columns.append(rng.uniform(-1, 1, (size, leaf.columns)))
            columns += [rng.integers(n, size=(size, 1)) for n in leaf.sizes]
        table = np.concatenate(columns, axis=1)
        if masks is not None and len(rows.leaves) == 1 and len(rows.leaves[0].sizes) == 1:
            possible = masks.reshape(size, -1)
            table = np.array([[rng.choice(np.flatnonzero(row))] for row in possible])
        single = isinstance(group.action_space, spaces.Discrete)
        flat = rows.to_env(table[:, 0] if single else table)
        shape = env.n_envs, len(group.agents)
        chosen[group.name] = map_leaves(
            lambda leaf, shape=shape: leaf.reshape(*shape, *leaf.shape[1:]), flat
        )
    return chosen


def _play(env: MultiAgentVecEnv, shown: MultiAgentObs, n_steps: int, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    steps: list[Any] = []
    for _ in range(n_steps):
        shown = env.step_all(_actions(env, shown, rng))
        steps.append(shown)
    return steps


@check
def check_team_rows(name: str, env_id: str) -> None:
    """Check shapes, that every env has an active agent, and that ended agents rest till a reset."""
    with _opened(name, env_id, 3) as env:
        agents = [agent for group in env.groups for agent in group.agents]
        require(
            sorted(agents) == sorted(env.possible_agents),
            f"every agent must be in one group, got {agents} of {env.possible_agents}",
        )
        shown = env.reset_all(0)
        gone = {g.name: np.zeros((3, len(g.agents)), np.bool_) for g in env.groups}
        for step in _play(env, shown, N_STEPS, 1):
            _require_step(env, step, gone)


def _require_step(
    env: MultiAgentVecEnv, step: MultiAgentStep, gone: dict[str, npt.NDArray[np.bool_]]
) -> None:
    acting = np.zeros(env.n_envs, np.bool_)
    for group in env.groups:
        name, shape = group.name, (env.n_envs, len(group.agents))
        for key in ("active", "rewards", "terminated", "truncated"):
            array: Any = step[key][name]
            require(array.shape == shape, f"{key}['{name}'] must be {shape}, got {array.shape}")
        require(np.isfinite(step["rewards"][name]).all(), f"rewards['{name}'] must be finite")
        ended = step["terminated"][name] | step["truncated"][name]
        require(not (ended & gone[name]).any(), "an agent ended twice in an episode")
        gone[name] |= ended
        over = step["episode_ended"][:, None]
        require(
            not (step["active"][name] & gone[name] & ~over).any(),
            f"an agent of '{name}' acts after its end, before its env's episode ended",
        )
        gone[name] &= ~over
        acting |= step["active"][name].any(axis=1)
    require(acting.all(), "in every env somebody must act next")


@check
def check_team_state(name: str, env_id: str) -> str | None:
    """Check that a state, if the env has one, makes another env go on exactly."""
    with _opened(name, env_id, 2) as one, _opened(name, env_id, 2) as other:
        if not isinstance(one, StatefulVecEnv):
            return "the env exposes no state"
        shown = one.reset_all(3)
        steps = _play(one, shown, N_STEPS // 2, 4)
        other.set_state(one.state())  # type: ignore[attr-defined]
        require_same(
            _play(one, steps[-1], N_STEPS, 5),
            _play(other, steps[-1], N_STEPS, 5),
            "an env with another's state goes elsewhere",
        )
    return None


@check
def check_team_env_seeding(name: str, env_id: str) -> None:
    """Check that one seed gives the same episodes, and another seed others."""
    played = []
    for seed in (1, 1, 2):
        with _opened(name, env_id, 2) as env:
            shown = env.reset_all(seed)
            played.append([shown, *_play(env, shown, N_STEPS // 2, 7)])
    require_same(played[0], played[1], "the seed 1 gives two different plays")
    require(first_difference(played[0], played[2]) is not None, "the seeds 1 and 2 play the same")


MULTI_AGENT_ENV_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_team_rows,
    check_team_env_seeding,
    check_team_state,
)
"""All checks of an env of several agents, in the order they are run."""


def check_multi_agent_env(name: str, env_id: str) -> dict[str, str]:
    """Run every check of an env backend of several agents.

    Args:
        name: registered name of the backend.
        env_id: an id of the backend, whose episodes depend on the seed.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    return run_checks(MULTI_AGENT_ENV_CHECKS, name, env_id)
