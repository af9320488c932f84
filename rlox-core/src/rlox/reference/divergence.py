"""Kullback-Leibler divergence estimates from token log-probabilities.

p is the policy, q the reference.

Schulman 2020, "Approximating KL Divergence", http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from rlox.reference.arrays import Array, precision, size, vector


def compute_token_kl(log_p: npt.ArrayLike, log_q: npt.ArrayLike) -> float:
    """Sum exp(log p) (log p - log q).

    This is KL(p ‖ q) if the tokens are a whole vocabulary. Over sampled tokens it is neither
    that nor an estimate of it: there, take :func:`compute_token_kl_schulman`.

    Args:
        log_p: (L,) log-probabilities under the policy; -inf adds nothing.
        log_q: (L,) under the reference.

    Returns:
        The sum, in nats, computed in double precision.

    Raises:
        ValueError: the lengths differ, or there is not one dimension.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> round(compute_token_kl(np.log([0.5, 0.5]), np.log([0.9, 0.1])), 4)
        0.5108
    """
    return float(_exact(*_pair(log_p, log_q)).sum())


def compute_token_kl_schulman(log_p: npt.ArrayLike, log_q: npt.ArrayLike) -> float:
    """Sum k3 = exp(r) - r - 1 with r = log q - log p, over tokens sampled from p.

    Unbiased for KL(p ‖ q), and no term is negative.

    Args:
        log_p: (L,) log-probabilities of the sampled tokens under the policy.
        log_q: (L,) under the reference.

    Returns:
        The sum, in nats, computed in double precision; divide by L for the mean per token.

    Raises:
        ValueError: the lengths differ, or there is not one dimension.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> round(compute_token_kl_schulman([-1.2, -0.8, -1.5, -0.3], [-1.0, -0.9, -1.4, -0.5]), 4)
        0.0501
    """
    return float(_schulman(*_pair(log_p, log_q)).sum())


def compute_batch_token_kl(
    log_p: npt.ArrayLike, log_q: npt.ArrayLike, seq_len: SupportsIndex
) -> Array:
    """Compute :func:`compute_token_kl` of B sequences, one after the other.

    Args:
        log_p: (B * seq_len,); float32 makes the results single precision.
        log_q: (B * seq_len,). A place with the same finite value in both arrays, such as 0 in
            padding, adds nothing.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or hold an incomplete sequence, or ``seq_len`` is below 1.
        TypeError: an array holds something other than real numbers.
    """
    return _per_sequence(_exact(*_pair(log_p, log_q)), seq_len, precision(log_p))


def compute_batch_token_kl_schulman(
    log_p: npt.ArrayLike, log_q: npt.ArrayLike, seq_len: SupportsIndex
) -> Array:
    """Compute :func:`compute_token_kl_schulman` of B sequences, one after the other.

    Args:
        log_p: see :func:`compute_batch_token_kl`.
        log_q: see :func:`compute_batch_token_kl`.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or hold an incomplete sequence, or ``seq_len`` is below 1.
        TypeError: an array holds something other than real numbers.
    """
    return _per_sequence(_schulman(*_pair(log_p, log_q)), seq_len, precision(log_p))


def _pair(log_p: npt.ArrayLike, log_q: npt.ArrayLike) -> tuple[Array, Array]:
    p, q = vector("log_p", log_p), vector("log_q", log_q)
    if len(p) != len(q):
        raise ValueError(f"log_q must have length {len(p)} like log_p, got {len(q)}")
    return p.astype(np.float64), q.astype(np.float64)


def _exact(p: Array, q: Array) -> Array:
    impossible = p == -np.inf
    return np.where(impossible, 0.0, np.exp(p) * (np.where(impossible, 0.0, p) - q))


def _schulman(p: Array, q: Array) -> Array:
    return cast("Array", np.expm1(q - p) - (q - p))


def _per_sequence(terms: Array, seq_len: SupportsIndex, dtype: type[np.floating[Any]]) -> Array:
    length = size("seq_len", seq_len)
    if len(terms) % length:
        raise ValueError(f"log_p must hold whole sequences of {length}, got {len(terms)} tokens")
    return cast("Array", terms.reshape(-1, length).sum(1).astype(dtype))
