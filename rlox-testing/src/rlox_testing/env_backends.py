"""Conformance checks of :class:`rlox.protocols.VecEnv`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.envs.gymnasium import STEP_KEYS
from rlox.protocols import StatefulVecEnv, VecEnv, VecEnvStep
from rlox.registry.table import get_registry

from rlox_testing.probes import check, require, require_rows, require_same, run_checks

Make = Callable[[], VecEnv]


def _make(name: str, env_id: str, n_envs: int, options: Any) -> VecEnv:
    registration = get_registry().get("rlox_env_backends", name)
    env_ids = registration.spec.env_ids
    require(
        not env_ids or env_id in env_ids, f"the spec's env_ids must name '{env_id}', got {env_ids}"
    )
    env: VecEnv = registration.build(env_id, n_envs=n_envs, env_kwargs=None, options=options)
    require(env.n_envs == n_envs, f"n_envs must be {n_envs}, got {env.n_envs}")
    return env


def _action_batches(env: VecEnv, n_steps: int, seed: int) -> list[npt.NDArray[Any]]:
    """Return random actions, drawn from a copy so that the env's own space keeps its stream."""
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    return [np.stack([space.sample() for _ in range(env.n_envs)]) for _ in range(n_steps)]


def _snapshot(step: VecEnvStep) -> dict[str, npt.NDArray[Any]]:
    """Return a copy: an env may write its next step into the same arrays."""
    return {key: np.array(value) for key, value in step.items()}


def _trajectory(env: VecEnv, n_steps: int, seed: int) -> list[Any]:
    """Return the first observations, followed by every step."""
    steps: list[Any] = [np.array(env.reset_all(seed))]
    steps += [_snapshot(env.step_all(actions)) for actions in _action_batches(env, n_steps, seed)]
    return steps


def _check_of_envs(function: Callable[[Make, int, int], str | None]) -> Callable[..., str | None]:
    """Give a check its arguments, and close the envs that it makes."""

    def run(
        name: str,
        env_id: str,
        *,
        n_envs: int = 3,
        n_steps: int = 200,
        seed: int = 0,
        options: Any = None,
    ) -> str | None:
        with ExitStack() as opened:

            def make() -> VecEnv:
                opened.close()  # one at a time: a worker steps the envs of one learner
                env = _make(name, env_id, n_envs, options)
                opened.callback(env.close)
                return env

            return function(make, n_steps, seed)

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return check(run)


@_check_of_envs
def check_env_shapes(make: Make, n_steps: int, seed: int) -> None:
    """Check keys, shapes and dtypes of every reset and step, and that rewards are finite."""
    env = make()
    n_envs, space = env.n_envs, env.observation_space
    require_rows("the first observations", env.reset_all(seed), n_envs, space)
    for actions in _action_batches(env, n_steps, seed):
        step = env.step_all(actions)
        require(set(step) == set(STEP_KEYS), f"a step must have {STEP_KEYS}, got {tuple(step)}")
        require_rows("obs", step["obs"], n_envs, space)
        require_rows("final_obs", step["final_obs"], n_envs, space)
        for key, dtype in (("rewards", np.float64), ("terminated", bool), ("truncated", bool)):
            array = step[key]  # type: ignore[literal-required]
            require(
                isinstance(array, np.ndarray) and array.shape == (n_envs,) and array.dtype == dtype,
                f"{key} must be ({n_envs},) {np.dtype(dtype)}, got {np.shape(array)} "
                f"{np.asarray(array).dtype}",
            )
        require(np.isfinite(step["rewards"]).all(), f"rewards must be finite: {step['rewards']}")


@_check_of_envs
def check_env_autoreset(make: Make, n_steps: int, seed: int) -> str | None:
    """Check that final_obs equals obs, except at the end of an episode."""
    env = make()
    endings = resets = 0
    for step in _trajectory(env, n_steps, seed)[1:]:
        ended = step["terminated"] | step["truncated"]
        require(
            np.array_equal(step["obs"][~ended], step["final_obs"][~ended]),
            "final_obs must equal obs if the episode goes on",
        )
        for i in np.flatnonzero(ended):
            endings += 1
            resets += not np.array_equal(step["obs"][i], step["final_obs"][i])
    if not endings:
        return f"no episode ended within {n_steps} steps; raise n_steps"
    require(
        resets,
        f"all {endings} episodes ended with obs equal to final_obs; obs must be the first "
        "observation of the next episode, final_obs the last of the old one",
    )
    return None


@_check_of_envs
def check_env_seeding(make: Make, n_steps: int, seed: int) -> None:
    """Check that one seed gives one trajectory, bit by bit, in a new env and in a used one."""
    env = make()
    first = _trajectory(env, n_steps, seed)
    env = make()
    for what in ("a new env", "the same env"):
        require_same(
            first,
            _trajectory(env, n_steps, seed),
            f"the same seed and actions in {what} must give the same bits",
        )
    begun = np.array(env.reset_all([seed + i for i in range(env.n_envs)]))
    require_same(first[0], begun, "reset_all(s) must give env i the seed s + i")


@_check_of_envs
def check_env_state(make: Make, n_steps: int, seed: int) -> str | None:
    """Check that a restored env goes on exactly like the original."""
    env = make()
    if not isinstance(env, StatefulVecEnv):
        return "the env does not expose its state (rlox.protocols.StatefulVecEnv)"
    _trajectory(env, n_steps // 2, seed)
    state = env.state()
    if not state:
        return "the env's state is empty"
    arrays = isinstance(state, dict) and all(isinstance(v, np.ndarray) for v in state.values())
    require(arrays, "state() must return a dict of arrays")
    kept = copy.deepcopy(state)
    actions = _action_batches(env, n_steps, seed + 1)
    straight = [_snapshot(env.step_all(a)) for a in actions]
    require_same(kept, state, "state() must return a copy, but stepping changed it")
    other = make()
    assert isinstance(other, StatefulVecEnv)
    other.reset_all(seed + 2)
    other.set_state(state)
    require_same(
        straight,
        [_snapshot(other.step_all(a)) for a in actions],
        "a restored env must go on with the same bits",
    )
    return None


ENV_BACKEND_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_env_shapes,
    check_env_autoreset,
    check_env_seeding,
    check_env_state,
)
"""All checks of an env backend, in the order in which :func:`check_env_backend` runs them."""


def check_env_backend(
    name: str,
    env_id: str,
    *,
    n_envs: int = 3,
    n_steps: int = 200,
    seed: int = 0,
    options: Any = None,
) -> dict[str, str]:
    """Run every check of an env backend.

    Args:
        name: registered name of the backend.
        env_id: an id that it can build.
        n_envs: number of envs N.
        n_steps: vector steps with random actions; enough for some episode to end.
        seed: of envs and actions.
        options: an instance of the model of the backend's own options; ``None`` takes their
            defaults.

    Returns:
        The checks that did not apply, with the reason.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    arguments = {"n_envs": n_envs, "n_steps": n_steps, "seed": seed, "options": options}
    return run_checks(ENV_BACKEND_CHECKS, name, env_id, **arguments)
