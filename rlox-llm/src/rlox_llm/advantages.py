"""Group-relative advantages of rewarded completions, with TRL's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import rlox

__all__ = ["flat_groups", "group_advantages"]

EPS = 1e-4
"""Added to standard deviations, as TRL does."""


def group_advantages(
    rewards: npt.NDArray[np.float64], group_size: int, scale: str, leave_one_out: bool
) -> npt.NDArray[Any]:
    """Return the advantages (N,) of whole groups of completions.

    Completions without a reward have an advantage of 0, and count neither in means nor in standard
    deviations.

    Args:
        rewards: (N,), NaN where there is none.
        group_size: completions of each prompt; one alone has an advantage of 0.
        scale: whose sample standard deviation, plus 1e-4, divides deviations from the group's
            mean: that of the ``"group"``, of the ``"batch"``, or ``"none"``.
        leave_one_out: subtract the mean of the others of the group instead, and divide by nothing.
    """
    rewarded = ~np.isnan(rewards)
    if not rewarded.all():
        found = np.zeros(len(rewards))
        within = "none" if scale == "batch" else scale
        for start in range(0, len(rewards), group_size):
            kept = start + rewarded[start : start + group_size].nonzero()[0]
            if len(kept):
                found[kept] = group_advantages(rewards[kept], len(kept), within, leave_one_out)
        if scale == "batch" and not leave_one_out:
            found /= rewards[rewarded].std(ddof=int(rewarded.sum() > 1)) + EPS
        return found
    advantages: Any = rlox.compute_batch_group_advantages
    if leave_one_out:
        return np.asarray(
            advantages(rewards, group_size, scale="none") * (group_size / max(group_size - 1, 1))
        )
    ddof = int(group_size > 1)
    return np.asarray(advantages(rewards, group_size, ddof=ddof, eps=EPS, scale=scale))


def flat_groups(rewards: npt.NDArray[np.float64], group_size: int) -> float:
    """Return the share of groups whose rewards, as far as there are any, are all equal.

    Args:
        rewards: (N,), NaN where there is none.
        group_size: completions of each prompt.
    """
    groups = rewards.reshape(-1, group_size)
    without = np.isnan(groups)
    highest = np.where(without, -np.inf, groups).max(1)
    return float((highest <= np.where(without, np.inf, groups).min(1)).mean())
