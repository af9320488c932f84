"""Advantages and returns: GAE (Schulman et al. 2016, eq. 11 and 16), V-trace, λ- and n-step.

    δ_t = r_t + γ V'_t − V_t
    A_t = δ_t + γ λ c_t A_{t+1}        G_t = A_t + V_t

V'_t is the value of the state that the step truly led to: 0 after termination, the value of the
final observation after truncation, V_{t+1} otherwise. c_t is 0 if an episode ended for either
reason, so that no trace crosses episodes.

V-trace (Espeholt et al. 2018, eq. 1, remark 1 and sec. 4.2):

    ρ_t = min(ρ̄, π/μ)        c_t = min(c̄, π/μ)
    vs_t = V_t + ρ_t (r_t + γ V'_t − V_t) + γ c_t (vs_{t+1} − V_{t+1})
    A_t = ρ_t (r_t + γ vs'_t − V_t)

vs'_t belongs to the same state as V'_t; the last term of vs_t is dropped at both kinds of end.

Value targets: Sutton and Barto 2018, eq. 3.9, 7.1 and 12.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, Rollout, in_range, real, shaped, size, write

Pair = tuple[Array, Array]


def _vector(
    name: str, values: npt.ArrayLike, dtype: type[np.floating[Any]], length: int | None
) -> Array:
    raw = real(name, values)
    if raw.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {raw.shape}")
    if length is not None and len(raw) != length:
        raise ValueError(f"{name} must have length {length}, got {len(raw)}")
    return raw.astype(dtype, copy=False)


def compute_gae_time_major(
    rewards: Array,
    values: Array,
    terminated: Array,
    truncated: Array,
    final_values: Array,
    last_values: Array,
    gamma: float,
    lam: float,
    *,
    out: Pair | None = None,
) -> tuple[Array, Array]:
    """Compute advantages and returns of N envs over T steps, with truncated episodes bootstrapped.

    Args:
        rewards: (T, N) float32 or float64; the results have the same dtype.
        values: (T, N) V(s_t).
        terminated: (T, N) bool, the task ended after step t.
        truncated: (T, N) bool, the episode was cut after step t.
        final_values: (T, N) value of the true final observation; read only if truncated.
        last_values: (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        lam: trace decay λ in [0, 1].
        out: arrays for advantages and returns, with the results' shape and dtype.

    Returns:
        Advantages and returns, each (T, N).

    Raises:
        TypeError: ``out`` is not a tuple of two arrays of the results' dtype.
        ValueError: shapes disagree, or gamma or lam lies outside [0, 1].
    """
    rewards = np.asarray(rewards)
    if rewards.ndim != 2:
        raise ValueError(f"rewards must have shape (T, N), got {rewards.shape}")
    dtype = np.float32 if rewards.dtype == np.float32 else np.float64
    given = {"values": values, "terminated": terminated, "truncated": truncated}
    for name, array in {**given, "final_values": final_values}.items():
        shaped(name, array, rewards.shape)
    shaped("last_values", last_values, rewards.shape[1:])
    in_range("gamma", gamma, 0, 1)
    in_range("lam", lam, 0, 1)
    terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
    advantages = np.empty(rewards.shape, dtype)
    next_value, next_advantage = np.asarray(last_values, dtype), np.zeros(rewards.shape[1], dtype)
    for t in reversed(range(len(rewards))):
        successor = np.where(truncated[t], final_values[t], next_value)
        successor = np.where(terminated[t], 0, successor)
        delta = rewards[t] + gamma * successor - values[t]
        goes_on = ~(terminated[t] | truncated[t])
        advantages[t] = delta + np.where(goes_on, gamma * lam * next_advantage, 0)
        next_value, next_advantage = np.asarray(values[t], dtype), advantages[t]
    return _write((advantages, advantages + np.asarray(values, dtype)), out)


def compute_gae_batched(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_values: npt.ArrayLike,
    n_steps: int,
    gamma: float,
    lam: float,
    *,
    out: Pair | None = None,
) -> tuple[Array, Array]:
    """Compute advantages and returns of several envs, as flat arrays in env-major order.

    Args:
        rewards: (N * n_steps,), env 0's steps first.
        values: (N * n_steps,) V(s_t).
        dones: (N * n_steps,) nonzero if the episode ended after the step; no value follows.
        last_values: (N,) value of the observation after the last step.
        n_steps: steps per env.
        gamma: discount in [0, 1].
        lam: trace decay λ in [0, 1].
        out: arrays for advantages and returns, with the results' shape and dtype.

    Returns:
        Advantages and returns, each (N * n_steps,) float64.

    Raises:
        TypeError: ``out`` is not a tuple of two arrays of the results' dtype.
        ValueError: lengths disagree, or gamma or lam lies outside [0, 1].
    """
    flat = {"dones": dones, "rewards": rewards, "values": values}
    return _batched(flat, last_values, n_steps, gamma, lam, np.float64, out)


def compute_gae_batched_f32(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_values: npt.ArrayLike,
    n_steps: int,
    gamma: float,
    lam: float,
    *,
    out: Pair | None = None,
) -> tuple[Array, Array]:
    """Compute :func:`compute_gae_batched` in float32."""
    flat = {"dones": dones, "rewards": rewards, "values": values}
    return _batched(flat, last_values, n_steps, gamma, lam, np.float32, out)


def _batched(
    flat: Mapping[str, npt.ArrayLike], last_values: npt.ArrayLike, n_steps: int, gamma: float,
    lam: float, dtype: type[np.floating[Any]], out: Pair | None,
) -> Pair:  # fmt: skip
    if n_steps < 1:
        raise ValueError(f"n_steps must be at least 1, got {n_steps}")
    last = _vector("last_values", last_values, dtype, None)
    size = len(last) * n_steps

    def time_major(name: str, array: npt.ArrayLike) -> Array:
        env_major = _vector(name, array, dtype, size)
        return cast("Array", env_major.reshape(len(last), n_steps).T)

    dones, rewards, values = (time_major(name, array) for name, array in flat.items())
    ended, cut, final = dones != 0, np.zeros(dones.shape, bool), np.zeros(dones.shape, dtype)
    found = compute_gae_time_major(rewards, values, ended, cut, final, last, gamma, lam)
    advantages, returns = found
    return _write((advantages.T.ravel(), returns.T.ravel()), out)


def compute_gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    last_value: float,
    gamma: float,
    lam: float,
    *,
    out: Pair | None = None,
) -> tuple[Array, Array]:
    """Compute advantages and returns of one trajectory.

    Args:
        rewards: (T,).
        values: (T,) V(s_t).
        dones: (T,) nonzero if the episode ended after step t; no value follows.
        last_value: value of the observation after the last step.
        gamma: discount in [0, 1].
        lam: trace decay λ in [0, 1].
        out: arrays for advantages and returns, with the results' shape and dtype.

    Returns:
        Advantages and returns, each (T,) float64.

    Raises:
        TypeError: ``out`` is not a tuple of two arrays of the results' dtype.
        ValueError: lengths disagree, or gamma or lam lies outside [0, 1].

    Example:
        >>> compute_gae([1.0, 1.0], [0.5, 0.5], [0, 1], 9.0, gamma=1.0, lam=1.0)[1].tolist()
        [2.0, 1.0]
    """
    rewards = _vector("rewards", rewards, np.float64, None)
    if len(rewards) == 0:
        return _write((np.empty(0), np.empty(0)), out)
    values = _vector("values", values, np.float64, len(rewards))
    dones = _vector("dones", dones, np.float64, len(rewards))
    last_values = [last_value + 0.0]  # accepts an integer of any size, refuses a text
    return compute_gae_batched(
        rewards, values, dones, last_values, len(rewards), gamma, lam, out=out
    )


def _write(results: Pair, out: Pair | None) -> Pair:
    """Return the results, in the arrays ``out`` if given."""
    if out is None:
        return results
    # an array of two rows could be mistaken for a pair with a single step
    if not (isinstance(out, tuple) and len(out) == 2):
        raise TypeError(f"out must be a tuple of two arrays, got {type(out).__name__}")
    names = ("out[0]", "out[1]")
    write(dict(zip(names, results, strict=True)), dict(zip(names, out, strict=True)))
    return out


def compute_vtrace(
    log_rhos: npt.ArrayLike,
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    dones: npt.ArrayLike,
    bootstrap_value: npt.ArrayLike,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    *,
    truncated: npt.ArrayLike | None = None,
    final_values: npt.ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Compute V-trace targets and policy-gradient advantages of one env or of N.

    Args:
        log_rhos: (T,) or (T, N) log π(a|s) - log μ(a|s), of the learning policy π and the acting
            policy μ.
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t) of the learning policy.
        dones: (T,) or (T, N) nonzero if the task ended after step t.
        bootstrap_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        rho_bar: ρ̄, at least 0; decides which policy the value function evaluates.
        c_bar: c̄, at least 0 and in the paper at most ρ̄; decides how fast it is learned.
        truncated: (T,) or (T, N) nonzero if the episode was cut after step t.
        final_values: (T,) or (T, N) value of the true final observation; read only if truncated.

    Returns:
        vs, the value function's targets, and the advantages, each like ``rewards``.

    Raises:
        ValueError: shapes disagree, a number is out of its range, or only one of ``truncated`` and
            ``final_values`` is given.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> vs, _ = compute_vtrace([0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [0, 1], 9.0, gamma=1.0)
        >>> vs.tolist()  # with ρ = 1 the targets are n-step returns
        [2.0, 1.0]
    """
    in_range("gamma", gamma, 0, 1)
    in_range("rho_bar", rho_bar, 0, math.inf)
    in_range("c_bar", c_bar, 0, math.inf)
    rollout = Rollout.parse(
        rewards, values, dones, bootstrap_value, truncated, final_values,
        last_name="bootstrap_value",
    )  # fmt: skip
    values, rewards = rollout.values, rollout.rewards
    dtype = rewards.dtype.type
    ratios = np.exp(shaped("log_rhos", log_rhos, rewards.shape).astype(dtype))
    rho, c = np.minimum(ratios, dtype(rho_bar)), np.minimum(ratios, dtype(c_bar))
    discount = dtype(gamma)
    vs, advantages = np.empty_like(rewards), np.empty_like(rewards)
    next_value = next_vs = rollout.last_value
    for t in reversed(range(len(rewards))):
        goes_on = ~(rollout.terminated[t] | rollout.truncated[t])
        delta = rho[t] * (rewards[t] + discount * rollout.successor(t, next_value) - values[t])
        correction = np.where(goes_on, discount * c[t] * (next_vs - next_value), dtype(0))
        vs[t] = values[t] + (delta + correction)
        advantages[t] = rho[t] * (rewards[t] + discount * rollout.successor(t, next_vs) - values[t])
        next_value, next_vs = values[t], vs[t]
    return vs, advantages


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

    They equal the advantages of GAE plus the values.

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

    m is n, or less if the episode or the rollout ends earlier.

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
    # the k-step returns of a row come from the (k-1)-step returns of the next
    for _ in range(min(size("n", n), len(returns))):
        following = np.concatenate([returns[1:], rollout.last_value[None]])
        discounted = rollout.rewards.dtype.type(gamma) * rollout.successor(slice(None), following)
        returns = rollout.rewards + discounted
    return returns


def _backwards(rollout: Rollout, gamma: float, blend: Callable[[Array, Array], Array]) -> Array:
    """Return G_t = r_t + γ blend(V_{t+1}, G_{t+1}); at ends both are the successor's value."""
    in_range("gamma", gamma, 0, 1)
    returns = np.empty_like(rollout.rewards)
    following = rollout.last_value
    for t in reversed(range(len(returns))):
        discounted = rollout.rewards.dtype.type(gamma) * rollout.successor(t, following)
        returns[t] = rollout.rewards[t] + discounted
        following = blend(rollout.values[t], returns[t])
    return returns
