"""Goals of envs: their place in observations, and their rewards.

Observations of these envs are a ``Dict`` of ``observation``, ``achieved_goal`` and
``desired_goal``; the envs have a method ``compute_reward``, as in gymnasium-robotics.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.envs.gymnasium import make_env
from rlox.errors import ConfigError
from rlox.replay.buffers import GoalOptions
from rlox.replay.codecs import ReplayObservations
from rlox.spaces.rows import leaf_spaces

Array = npt.NDArray[Any]

GOALS = {"achieved_goal", "desired_goal"}


def find_goals(
    source: Any,
    space: gymnasium.Space[Any],
    *,
    env_kwargs: Mapping[str, Any],
    resources: ExitStack,
    buffer: str = "her",
) -> GoalOptions:
    """Return the goals of an env.

    Its ``compute_reward`` is called with goals (M, size) and an empty dict, once for many
    transitions; ``compute_terminated``, if the env has it, with one goal (size,) at a time,
    because most envs accept no batch.

    Args:
        source: the user's env. For an id or a callable, an extra env is created and queried.
        space: space of one env's observation.
        env_kwargs: arguments of the env that is made here.
        resources: closes the env that is made here.
        buffer: registered name of the buffer that the goals are for.

    Raises:
        ConfigError: the env has no goals, or its goals are not vectors of floats.
    """
    rows, size = ReplayObservations(space), _goal_size(space, buffer)
    env = _one_env(source, env_kwargs, resources, buffer)
    compute_terminated = None
    if env.has_wrapper_attr("compute_terminated"):
        compute_terminated = _one_by_one(env.get_wrapper_attr("compute_terminated"))
    return GoalOptions(
        size=size,
        achieved=rows.part("achieved_goal").start,
        desired=rows.part("desired_goal").start,
        compute_reward=_reward_function(env, size, buffer),
        compute_terminated=compute_terminated,
    )


def _goal_size(space: gymnasium.Space[Any], buffer: str) -> int:
    leaves = leaf_spaces(space)
    shapes = {leaves[name].shape for name in GOALS & set(leaves)}
    if not leaves.keys() >= GOALS or len(shapes) > 1:
        raise ConfigError(
            f"buffer='{buffer}' needs observations that are a Dict of observation, achieved_goal "
            f"and desired_goal, the goals of one shape, got {space}; take buffer='uniform'"
        )
    (shape,) = shapes
    if ReplayObservations(space).dtype != "float32" or shape is None or len(shape) != 1:
        raise ConfigError(
            f"buffer='{buffer}' needs goals that are vectors, and observations of floats alone, "
            f"got {space}; wrap the env with gymnasium.wrappers.TransformObservation"
        )
    return shape[0]


def _reward_function(env: gymnasium.Env[Any, Any], size: int, buffer: str) -> Any:
    if not env.has_wrapper_attr("compute_reward"):
        raise ConfigError(
            f"buffer='{buffer}' needs an env with compute_reward(achieved_goal, desired_goal, "
            f"info), which {type(env.unwrapped).__name__} has not"
        )
    compute_reward = env.get_wrapper_attr("compute_reward")
    goals = np.zeros((2, size), np.float32)
    shape = np.shape(compute_reward(goals, goals, {}))
    if shape != (2,):
        raise ConfigError(
            f"compute_reward must return (M,) rewards of goals (M, {size}), got shape {shape} for "
            "2; norms need axis=-1"
        )
    return compute_reward


def _one_env(
    source: Any, env_kwargs: Mapping[str, Any], resources: ExitStack, buffer: str
) -> gymnasium.Env[Any, Any]:
    if isinstance(source, gymnasium.Env):
        return source
    if isinstance(source, str) or callable(source):
        made = make_env(source, env_kwargs)
        resources.callback(made.close)
        return made
    envs = getattr(source, "envs", None)
    if envs:
        return envs[0]  # type: ignore[no-any-return]
    raise ConfigError(
        f"buffer='{buffer}' cannot ask {type(source).__name__} for compute_reward; pass the env's "
        "id or a callable that makes it, or a rlox.HerReplayBuffer of your own as buffer="
    )


def _one_by_one(function: Any) -> Any:
    def of_all(achieved: Array, desired: Array, info: dict[str, Any]) -> npt.NDArray[np.bool_]:
        pairs = zip(achieved, desired, strict=True)
        return np.array([bool(function(*pair, info)) for pair in pairs], np.bool_)

    return of_all
