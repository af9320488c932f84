"""Estimators of the KL divergence to a reference model, per sampled token.

With r = log q - log p at a token sampled from p (Schulman 2020, "Approximating KL Divergence"):

    k1 = -r        k2 = r² / 2        k3 = exp(r) - r - 1
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rlox_llm.losses.checks import require_name

__all__ = ["KL_ESTIMATORS", "kl_per_token"]


def _k1(r: Tensor) -> Tensor:
    return -r


def _k2(r: Tensor) -> Tensor:
    return r.square() / 2


def _k3(r: Tensor) -> Tensor:
    return r.expm1() - r


KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {"k1": _k1, "k2": _k2, "k3": _k3}
"""From r = log q - log p to the estimate, by name."""


def kl_per_token(logps: Tensor, ref_logps: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate KL(policy ‖ reference) at each sampled token.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the policy, in nats.
        ref_logps: (B, T) the same under the reference.
        estimator: a name of :data:`KL_ESTIMATORS`. k1 and k3 are unbiased; the gradient of k2
            alone is unbiased without an importance ratio.

    Returns:
        (B, T) estimates in nats.

    Raises:
        ValueError: there is no estimator of that name.
    """
    return KL_ESTIMATORS[require_name("kl_estimator", estimator, KL_ESTIMATORS)](ref_logps - logps)
