"""Conformance checks of :class:`rlox.Algorithm`.

Every check takes the registered name, an env that any number of copies can be made of (an id or a
callable), and the arguments of :func:`rlox.make`; choose them such that an iteration takes
milliseconds. The env is watched by a probe, so counters and returns are compared with what the env
saw, not with what the algorithm says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from rlox_testing.cases import CARTPOLE, open_case
from rlox_testing.declarations import (
    check_config_documented,
    check_config_round_trip,
    check_spec,
    check_unknown_option,
)
from rlox_testing.probes import check, require, run_checks
from rlox_testing.restoring import check_checkpoint, check_resume
from rlox_testing.training import check_callbacks, check_seeding, check_training

__all__ = ["ALGORITHM_CHECKS", "check_algorithm", "check_predict", "require_actions"]


@check
def check_predict(name: str, env: Any = CARTPOLE, **arguments: Any) -> str | None:
    """Check actions for one observation and for batches: type, shape, dtype, within bounds."""
    with open_case(name, env, arguments) as case:
        watched = case.probe()
        algorithm = case.build(watched)
        obs = np.concatenate([np.array(watched.reset_all(seed)) for seed in (0, 100, 200)])
        space = watched.action_space
        batch = algorithm.predict(obs)
        require_actions(batch, len(obs), space)
        require_actions(algorithm.predict(obs[:1]), 1, space)
        require_actions(algorithm.predict(obs, deterministic=False), len(obs), space)
        for i in (0, len(obs) - 1):
            action = algorithm.predict(obs[i])
            if isinstance(space, spaces.Discrete):
                require(
                    type(action) is int,
                    f"one discrete action must be an int, got {type(action).__name__}",
                )
            else:
                _require_array(action, space.shape or (), space)
            require(space.contains(action), f"the action {action!r} is not in {space}")
            require(
                np.allclose(action, batch[i], atol=1e-4),
                f"one observation gives {action}, the same one in a batch {batch[i]}",
            )
    return None


def _require_array(actions: Any, shape: tuple[int, ...], space: spaces.Space[Any]) -> None:
    require(
        isinstance(actions, np.ndarray),
        f"actions must be a NumPy array, got {type(actions).__name__}",
    )
    require(actions.shape == shape, f"actions must have shape {shape}, got {actions.shape}")
    require(actions.dtype == space.dtype, f"actions must be {space.dtype}, got {actions.dtype}")


def require_actions(actions: Any, size: int, space: spaces.Space[Any]) -> None:
    """Require (size, ...) actions of the space's dtype, each in the space."""
    _require_array(actions, (size, *(space.shape or ())), space)
    outside = [row for row in actions if not space.contains(row)]
    require(not outside, f"the actions {outside[:1]} are not in {space}")


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
