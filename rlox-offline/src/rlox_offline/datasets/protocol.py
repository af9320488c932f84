"""Protocol and validation of datasets, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.envs.make import fixed_env_count, make_vec_env
from rlox.errors import DatasetError, SpaceError
from rlox.spaces.rows import is_bounded

SHAPES = {
    "obs": ("(B, obs_dim)", (2,)),
    "actions": ("(B, act_dim) or (B,)", (1, 2)),
    "rewards": ("(B,)", (1,)),
    "next_obs": ("(B, obs_dim)", (2,)),
    "terminated": ("(B,)", (1,)),
}

CHECKED_ROWS = 4096
"""Rows checked before a training begins."""

TOLERANCE = 1e-4
"""Share of their range by which recorded actions may exceed their bounds, due to rounding."""


@runtime_checkable
class OfflineDataset(Protocol):
    """Recorded transitions; bring your own, or take :class:`rlox.OfflineDatasetBuffer`.

    Optional attributes: ``obs_mean`` and ``obs_std``, each (obs_dim,), describe the normalisation
    of the sampled observations, and algorithms normalise an env's observations in the same way;
    ``act_low`` and ``act_high`` (act_dim,) are the bounds of continuous actions, ``n_actions`` is
    the number of discrete ones.

    An optional method ``with_returns(gamma, reward_scale, reward_shift)`` returns a dataset whose
    samples include ``returns_to_go`` (B,): the discounted returns from each transition on, with
    rewards times ``reward_scale`` plus ``reward_shift``.
    """

    def sample(self, batch_size: int, seed: int) -> Mapping[str, npt.NDArray[Any]]:
        """Return transitions drawn with ``seed``; equal seeds give equal transitions.

        Returns:
            ``obs`` and ``next_obs`` (B, obs_dim), ``actions`` (B, act_dim) or (B,), ``rewards``
            (B,) and ``terminated`` (B,), which is false if the episode was merely cut.
        """

    def __len__(self) -> int:
        """Return the number of transitions."""


def check_rows(dataset: OfflineDataset, continuous: bool) -> Mapping[str, npt.NDArray[Any]]:
    """Return rows of a dataset, after checking that an algorithm can learn from them.

    Args:
        dataset: dataset to check.
        continuous: whether actions must be floats; else integers.

    Raises:
        DatasetError: the object is not a dataset, or a column is missing, has the wrong shape or
            type, or holds values that are not finite.
    """
    if not (hasattr(dataset, "sample") and hasattr(dataset, "__len__")):
        raise DatasetError(
            f"a dataset has sample(batch_size, seed) and a length, got {type(dataset).__name__}; "
            "rlox_offline.datasets.Dataset(columns) makes one of arrays"
        )
    n = min(len(dataset), CHECKED_ROWS)
    if n < 1:
        raise DatasetError("the dataset holds no transitions")
    rows = dataset.sample(n, 0)
    missing = [key for key in SHAPES if key not in rows]
    if missing:
        raise DatasetError(
            f"the dataset's samples lack {', '.join(missing)}; expected {', '.join(SHAPES)}"
        )
    for key, (expected, dims) in SHAPES.items():
        column = np.asarray(rows[key])
        if len(column) != n or column.ndim not in dims:
            raise DatasetError(f"{key} must have shape {expected}, got {column.shape}")
        if not np.isfinite(column).all():
            raise DatasetError(f"{key} holds values that are not finite")
    if rows["obs"].shape != rows["next_obs"].shape:
        raise DatasetError(
            f"obs and next_obs differ in shape: {rows['obs'].shape} and {rows['next_obs'].shape}"
        )
    if continuous != (rows["actions"].dtype.kind == "f"):
        expected, option = ("floats", "False") if continuous else ("integers", "True")
        raise DatasetError(
            f"actions must be {expected}, got {rows['actions'].dtype}; an algorithm that has the "
            f"option learns from them with continuous={option}"
        )
    return rows


def action_bounds(
    dataset: object, space: object, act_high: float | None, act_dim: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the bounds of continuous actions, each (act_dim,).

    The first finite ones of: ±``act_high``, the dataset's bounds, those of the action space of the
    env or policy, and ±1.

    Raises:
        DatasetError: see :func:`require_bounds`.
    """
    bounds: list[tuple[Any, Any]] = [(-1.0, 1.0)]
    if isinstance(space, spaces.Box) and space.shape == (act_dim,):
        bounds.append((space.low, space.high))
    bounds.append((getattr(dataset, "act_low", None), getattr(dataset, "act_high", None)))
    if act_high is not None:
        bounds.append((-act_high, act_high))
    low, high = next(
        (low, high)
        for low, high in reversed(bounds)
        if low is not None and high is not None and is_bounded(low, high)
    )
    return require_bounds(low, high, act_dim)


def require_bounds(
    low: npt.ArrayLike, high: npt.ArrayLike, act_dim: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return bounds of continuous actions, each broadcast to (act_dim,).

    Raises:
        DatasetError: the shape differs, or a lower bound is not below its upper bound.
    """
    shape = (act_dim,)
    try:
        lower = np.broadcast_to(np.asarray(low, np.float32), shape)
        upper = np.broadcast_to(np.asarray(high, np.float32), shape)
    except (TypeError, ValueError):
        raise DatasetError(
            f"act_low and act_high must be numbers or have shape {shape}, got {low!r} and {high!r}"
        ) from None
    if not (lower < upper).all():
        raise DatasetError(
            f"act_low must be below act_high in every dimension, got {lower} and {upper}; "
            "leave out a dimension in which there is no choice"
        )
    return lower, upper


def check_actions(actions: npt.NDArray[Any], space: spaces.Box | spaces.Discrete) -> None:
    """Refuse recorded actions outside the action space, apart from rounding.

    Raises:
        DatasetError: an action lies outside.
    """
    if isinstance(space, spaces.Discrete):
        outside = (actions < 0) | (actions >= space.n)
    else:
        actions = actions.reshape(-1, *space.shape)
        slack = TOLERANCE * (space.high - space.low)
        outside = (actions < space.low - slack) | (actions > space.high + slack)
    if outside.any():
        raise DatasetError(
            f"the dataset has the action {actions[outside][0].item():g}, which is not in {space}; "
            "pass act_high= (act_dim= for discrete actions) or the env it comes from"
        )


def spaces_of(
    env: Any, env_kwargs: Mapping[str, Any] | None = None
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return one env's observation and action space; ``env`` as for :func:`rlox.make`."""
    vec_env = make_vec_env(env, env_kwargs=env_kwargs)
    if fixed_env_count(env) is None:
        vec_env.close()
    return vec_env.observation_space, vec_env.action_space


def check_env(
    env_observations: gymnasium.Space[Any],
    env_actions: gymnasium.Space[Any],
    observations: spaces.Box,
    actions: spaces.Box | spaces.Discrete,
) -> None:
    """Refuse an env whose spaces do not fit the dataset's.

    Args:
        env_observations: observation space of one env.
        env_actions: action space of one env; may have more discrete actions than the dataset.
        observations: the dataset's observation space.
        actions: the dataset's action space.

    Raises:
        SpaceError: the spaces differ in kind or size.
    """
    if isinstance(actions, spaces.Discrete):
        fits = isinstance(env_actions, spaces.Discrete) and env_actions.start == 0
        fits = fits and actions.n <= env_actions.n  # type: ignore[attr-defined]
    else:
        fits = isinstance(env_actions, spaces.Box) and env_actions.shape == actions.shape
    if not fits or env_observations.shape != observations.shape:
        raise SpaceError(
            f"the dataset has observations of shape {observations.shape} and actions in {actions}, "
            f"but the env has observations in {env_observations} and actions in {env_actions}; "
            "pass the env that the dataset comes from"
        )
