"""V-trace targets and advantages (Espeholt et al. 2018).

Equation 1, remark 1 and section 4.2.

    ρ_t = min(ρ̄, π/μ)        c_t = min(c̄, π/μ)
    vs_t = V_t + ρ_t (r_t + γ V'_t − V_t) + γ c_t (vs_{t+1} − V_{t+1})
    A_t = ρ_t (r_t + γ vs'_t − V_t)

V'_t and vs'_t belong to the state that the step truly led to: 0 after termination, the value of the
final observation after truncation, row t + 1's otherwise; the last term of vs_t stops at both.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rlox.reference.arrays import Array, Rollout, in_range, shaped

__all__ = ["compute_vtrace"]


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
        log_rhos: (T,) or (T, N) log π(a|s) - log μ(a|s), of the policy that learns and the one
            that acted.
        rewards: (T,) or (T, N); float32 makes the computation single precision.
        values: (T,) or (T, N) V(s_t) of the policy that learns.
        dones: (T,) or (T, N) nonzero if the task ended after step t.
        bootstrap_value: () or (N,) value of the observation after the last step.
        gamma: discount in [0, 1].
        rho_bar: ρ̄, at least 0; decides which policy the value function belongs to.
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
