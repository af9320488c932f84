"""Value targets: discounted, n-step and lambda returns.

Sutton and Barto 2018, eq. 3.9, 7.1 and 12.2.

V'_t is the value of the state that step t truly led to: 0 after termination, the value of the final
observation after truncation, V_{t+1} otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.reference.arrays import Array, Rollout, in_range, size


def compute_discounted_returns(
    rewards: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_value: npt.ArrayLike,
    gamma: float,
    *,
    truncated: npt.ArrayLike | None = None,
    final_values: npt.ArrayLike | None = None,
) -> Array:
    """Compute discounted returns, G_t = r_t + γ G_{t+1}, of one env or of N.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        dones: (T,) or (T, N) nonzero if the task ended after step t.
        last_value: () or (N,) value of the observation after the last step, 0 for none.
        gamma: discount in [0, 1].
        truncated: (T,) or (T, N) nonzero if the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only if truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, gamma lies outside [0, 1], or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> compute_discounted_returns([1.0, 1.0, 1.0], [0, 0, 0], 8.0, 0.5).tolist()
        [2.75, 3.5, 5.0]
    """
    rollout = Rollout.parse(rewards, rewards, dones, last_value, truncated, final_values)
    return _backwards(rollout, gamma, lambda _, following: following)


def compute_lambda_returns(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_value: npt.ArrayLike,
    gamma: float,
    lam: float,
    *,
    truncated: npt.ArrayLike | None = None,
    final_values: npt.ArrayLike | None = None,
) -> Array:
    """Compute λ-returns, G_t = r_t + γ ((1 - λ) V_{t+1} + λ G_{t+1}), of one env or of N.

    They are the advantages of GAE plus the values.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t).
        dones: (T,) or (T, N) nonzero if the task ended after step t.
        last_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        lam: λ in [0, 1]; 0: one-step returns, 1: discounted returns.
        truncated: (T,) or (T, N) nonzero if the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only if truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, a factor lies outside [0, 1], or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.
    """
    in_range("lam", lam, 0, 1)
    rollout = Rollout.parse(rewards, values, dones, last_value, truncated, final_values)
    dtype = rollout.rewards.dtype.type
    weight, rest = dtype(lam), dtype(1 - lam)
    return _backwards(rollout, gamma, lambda value, following: rest * value + weight * following)


def compute_n_step_returns(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_value: npt.ArrayLike,
    gamma: float,
    n: SupportsIndex,
    *,
    truncated: npt.ArrayLike | None = None,
    final_values: npt.ArrayLike | None = None,
) -> Array:
    """Compute n-step returns, γ^0 r_t + … + γ^{m-1} r_{t+m-1} + γ^m V'_{t+m-1}, of one env or of N.

    m is n, or less if the episode or the rollout ends before.

    Args:
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t).
        dones: (T,) or (T, N) nonzero if the task ended after step t.
        last_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        n: number of rewards, at least 1.
        truncated: (T,) or (T, N) nonzero if the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only if truncated.

    Returns:
        Returns like ``rewards``.

    Raises:
        ValueError: shapes disagree, a number is out of its range, or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> compute_n_step_returns([1, 1, 1], [0, 4, 8], [0, 0, 0], 16, gamma=0.5, n=2).tolist()
        [3.5, 5.5, 9.0]
    """
    in_range("gamma", gamma, 0, 1)
    rollout = Rollout.parse(rewards, values, dones, last_value, truncated, final_values)
    returns = rollout.values
    # the k-step returns of a row from the (k-1)-step ones of the next
    for _ in range(min(size("n", n), len(returns))):
        following = np.concatenate([returns[1:], rollout.last_value[None]])
        returns = np.stack(
            [
                rollout.rewards[t] + rollout.rewards.dtype.type(gamma) * rollout.successor(t, row)
                for t, row in enumerate(following)
            ]
        )
    return returns


def _backwards(rollout: Rollout, gamma: float, blend: Callable[[Array, Array], Array]) -> Array:
    """Return G_t = r_t + γ blend(V_{t+1}, G_{t+1}); at ends the successor's value is both."""
    in_range("gamma", gamma, 0, 1)
    returns = np.empty_like(rollout.rewards)
    following = rollout.last_value
    for t in reversed(range(len(returns))):
        discounted = rollout.rewards.dtype.type(gamma) * rollout.successor(t, following)
        returns[t] = rollout.rewards[t] + discounted
        following = blend(rollout.values[t], returns[t])
    return returns
