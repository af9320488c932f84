"""Group-relative advantages (GRPO), preference pairs, and divergences of tokens.

Shao et al. 2024, "DeepSeekMath", sec. 4.1.2.

A_i = (r_i - mean(r)) / (std(r) + ε) over the completions of one prompt.

Divergences are estimated from token log-probabilities, p of the policy and q of the reference:
Schulman 2020, "Approximating KL Divergence", http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, in_range, integers, precision, real, size, vector

Scale = Literal["group", "batch", "none"]


def compute_group_advantages(
    rewards: npt.ArrayLike, *, ddof: int = 0, eps: float = 0.0, scale: Scale = "group"
) -> Array:
    """Compute the advantages of one group.

    Args:
        rewards: (G,); float32 makes the results single precision.
        ddof: delta degrees of freedom of the standard deviation: 0 for the population's, 1 for the
            sample's, as in TRL.
        eps: added to the standard deviation; 1e-4 in TRL.
        scale: divisor of the deviations from the mean: the standard deviation of the group or
            of the whole batch, or none (Liu et al. 2025, Dr. GRPO).

    Returns:
        Advantages (G,); zeros for equal rewards.

    Raises:
        ValueError: an option is out of its range, or ``rewards`` is not one-dimensional.
        TypeError: ``rewards`` holds something other than real numbers.

    Example:
        >>> compute_group_advantages([0.9, 0.3, 0.7, 0.1]).round(4).tolist()
        [1.2649, -0.6325, 0.6325, -1.2649]
    """
    rewards = np.asarray(rewards)
    return compute_batch_group_advantages(
        rewards, max(rewards.size, 1), ddof=ddof, eps=eps, scale=scale
    )


def compute_batch_group_advantages(
    rewards: npt.ArrayLike,
    group_size: SupportsIndex,
    *,
    ddof: int = 0,
    eps: float = 0.0,
    scale: Scale = "group",
) -> Array:
    """Compute the advantages of P consecutive groups of G completions.

    Args:
        rewards: (P * G,).
        group_size: G, at least 1; a group of one gets the advantage 0.
        ddof: see :func:`compute_group_advantages`.
        eps: see :func:`compute_group_advantages`.
        scale: see :func:`compute_group_advantages`.

    Returns:
        Advantages (P * G,); zeros for groups of equal rewards.

    Raises:
        ValueError: an option is out of its range, or the last group is incomplete.
        TypeError: ``rewards`` holds something other than real numbers.
    """
    if scale not in ("group", "batch", "none"):
        raise ValueError(f"scale must be one of 'group', 'batch', 'none', got '{scale}'")
    members = size("group_size", group_size)
    in_range("eps", eps, 0, sys.float_info.max)
    _check_ddof(ddof, members)
    flat = vector("rewards", rewards)
    if len(flat) % members:
        raise ValueError(f"rewards must hold whole groups of {members}, got {len(flat)} rewards")
    groups = flat.astype(np.float64).reshape(-1, members)
    mean, std = _moments(groups, ddof)
    if scale == "batch":
        std = _moments(groups.reshape(1, -1), ddof)[1]
    factor = np.ones(()) if scale == "none" else _inverse(std, eps)
    return cast("Array", ((groups - mean) * factor).ravel().astype(precision(rewards)))


def normalize_advantages(advantages: npt.ArrayLike, *, ddof: int = 1, eps: float = 1e-8) -> Array:
    """Standardise advantages to mean 0 and standard deviation 1.

    Args:
        advantages: any shape; float32 makes the results single precision.
        ddof: delta degrees of freedom of the standard deviation; 1 as in torch's ``std``.
        eps: added to the standard deviation.

    Returns:
        (A - mean) / (std + eps), the same shape; zeros if all are equal, or for a single one.

    Raises:
        ValueError: ``eps`` is negative or not finite, or ``ddof`` leaves no degree of freedom.
        TypeError: ``advantages`` holds something other than real numbers.

    Example:
        >>> normalize_advantages([1.0, 2.0, 3.0]).round(6).tolist()
        [-1.0, 0.0, 1.0]
    """
    in_range("eps", eps, 0, sys.float_info.max)
    array = real("advantages", advantages)
    _check_ddof(ddof, array.size)
    mean, std = _moments(array.astype(np.float64).reshape(1, -1), ddof)
    standardised = (array.astype(np.float64).reshape(1, -1) - mean) * _inverse(std, eps)
    return standardised.reshape(array.shape).astype(precision(advantages))


def _check_ddof(ddof: int, n: int) -> None:
    """Refuse a ddof that leaves no degree of freedom; a single element (deviation 0) takes any."""
    in_range("ddof", ddof, 0, n - 1 if n > 1 else max(ddof, 0))


def _moments(groups: Array, ddof: int) -> tuple[Array, Array]:
    """Return mean and deviation of each row, relative to its first element: exact if constant."""
    if groups.size == 0:
        return np.zeros((len(groups), 1)), np.zeros((len(groups), 1))
    mean = groups[:, :1] + (groups - groups[:, :1]).mean(1, keepdims=True)
    freedom = max(groups.shape[1] - ddof, 1)
    return mean, np.sqrt(np.square(groups - mean).sum(1, keepdims=True) / freedom)


def _inverse(std: Array, eps: float) -> Array:
    flat = std == 0
    return np.where(flat, 0.0, 1 / (np.where(flat, 1.0, std) + eps))


Tokens = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class DPOPair:
    """A prompt with a preferred and a rejected completion, as token ids.

    Args:
        prompt_tokens: (P,) non-negative integers below 2**32, as in all three arrays.
        chosen_tokens: (C,) the preferred completion.
        rejected_tokens: (R,) the rejected completion.

    Raises:
        ValueError: an array is not one-dimensional, or an id is out of range.
        TypeError: an array holds something other than integers.

    Source:
        Rafailov et al. 2023, "Direct Preference Optimization", sec. 4.
    """

    prompt_tokens: Tokens
    """(P,) uint32."""
    chosen_tokens: Tokens
    """(C,) uint32."""
    rejected_tokens: Tokens
    """(R,) uint32."""

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "chosen_tokens", "rejected_tokens"):
            object.__setattr__(self, name, _token_ids(name, getattr(self, name)))

    def prompt_len(self) -> int:
        """Return the number of tokens of the prompt."""
        return len(self.prompt_tokens)

    def chosen_len(self) -> int:
        """Return the number of tokens of the preferred completion."""
        return len(self.chosen_tokens)

    def rejected_len(self) -> int:
        """Return the number of tokens of the rejected completion."""
        return len(self.rejected_tokens)


def _token_ids(name: str, values: npt.ArrayLike) -> Tokens:
    tokens = integers(name, vector(name, values))
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < 2**32):
        raise ValueError(f"{name} must lie in [0, {2**32 - 1}], got {tokens.min()}..{tokens.max()}")
    return tokens.astype(np.uint32)


def compute_token_kl(log_p: npt.ArrayLike, log_q: npt.ArrayLike) -> float:
    """Sum exp(log p) (log p - log q).

    This is KL(p ‖ q) if the tokens are the whole vocabulary. Over sampled tokens it is not even an
    estimate of the KL; use :func:`compute_token_kl_schulman` there.

    Args:
        log_p: (L,) log-probabilities under the policy; -inf adds nothing.
        log_q: (L,) under the reference.

    Returns:
        The sum, in nats, computed in double precision.

    Raises:
        ValueError: the lengths differ, or an array is not one-dimensional.
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
        ValueError: the lengths differ, or an array is not one-dimensional.
        TypeError: an array holds something other than real numbers.

    Example:
        >>> round(compute_token_kl_schulman([-1.2, -0.8, -1.5, -0.3], [-1.0, -0.9, -1.4, -0.5]), 4)
        0.0501
    """
    return float(_schulman(*_pair(log_p, log_q)).sum())


def compute_batch_token_kl(
    log_p: npt.ArrayLike, log_q: npt.ArrayLike, seq_len: SupportsIndex
) -> Array:
    """Compute :func:`compute_token_kl` for B consecutive sequences.

    Args:
        log_p: (B * seq_len,); float32 makes the results single precision.
        log_q: (B * seq_len,). A position with the same finite value in both arrays, such as 0 in
            padding, adds nothing.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or leave an incomplete sequence, or ``seq_len`` is below 1.
        TypeError: an array holds something other than real numbers.
    """
    return _per_sequence(_exact(*_pair(log_p, log_q)), seq_len, precision(log_p))


def compute_batch_token_kl_schulman(
    log_p: npt.ArrayLike, log_q: npt.ArrayLike, seq_len: SupportsIndex
) -> Array:
    """Compute :func:`compute_token_kl_schulman` for B consecutive sequences.

    Args:
        log_p: see :func:`compute_batch_token_kl`.
        log_q: see :func:`compute_batch_token_kl`.
        seq_len: tokens per sequence, at least 1.

    Returns:
        Sums (B,), in nats.

    Raises:
        ValueError: the lengths differ or leave an incomplete sequence, or ``seq_len`` is below 1.
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
