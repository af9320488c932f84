"""Statistics over runs: few seeds, heavy tails.

Pure NumPy; the estimators are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the
Edge of the Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["IntervalEstimate", "bootstrap_iqm", "interquartile_mean"]

Floats = npt.NDArray[np.float64]

CHUNK = 1 << 22
"""Numbers that are resampled at a time."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A statistic with its bootstrap confidence interval, a number or an array (T,) each."""

    value: Floats
    low: Floats
    high: Floats


def interquartile_mean(scores: npt.ArrayLike, axis: int = 0) -> Any:
    """Return the mean of the middle half of the scores.

    Of n scores the ⌊n/4⌋ smallest and largest are left out, so of fewer than four none is: more
    robust than the mean, and statistically more efficient than the median.

    Args:
        scores: runs along ``axis``.
        axis: of the runs.

    Raises:
        ValueError: there is no score, or one is not finite.

    Source:
        Agarwal et al. 2021, sec. 4.3; equals ``scipy.stats.trim_mean(scores, 0.25, axis)``.
    """
    array = np.asarray(scores, np.float64)
    if array.ndim == 0 or not array.shape[axis]:
        raise ValueError("there are no scores")
    if not np.isfinite(array).all():
        raise ValueError("scores must be finite")
    cut = array.shape[axis] // 4
    middle = np.sort(array, axis).take(range(cut, array.shape[axis] - cut), axis)
    return middle.mean(axis)


def bootstrap_iqm(
    strata: Sequence[npt.ArrayLike],
    *,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> IntervalEstimate:
    """Return the interquartile mean of all runs and its stratified percentile bootstrap interval.

    Runs are drawn with replacement within each stratum, which keeps its number of runs, and the
    interval holds the middle ``confidence`` of the resamples' interquartile means. A single run
    has no spread: its interval is a point.

    Args:
        strata: per task (R_k,) scores of its R_k runs, or (R_k, T) curves on T common points.
        confidence: share in (0, 1).
        n_resamples: number of resamples.
        seed: fixes the draws.

    Raises:
        ValueError: there is no score, one is not finite, or an option is out of range.

    Source:
        Agarwal et al. 2021, sec. 4.1: stratified over tasks.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    arrays = [np.asarray(stratum, np.float64) for stratum in strata]
    if not arrays or any(not len(array) for array in arrays):
        raise ValueError("there are no scores")
    everything = np.concatenate(arrays)
    value = interquartile_mean(everything)
    rng = np.random.default_rng(seed)
    at_once = max(CHUNK // max(everything.size, 1), 1)
    resampled = []
    for done in range(0, n_resamples, at_once):
        count = min(at_once, n_resamples - done)
        drawn = [a[rng.integers(len(a), size=(count, len(a)))] for a in arrays]
        resampled.append(interquartile_mean(np.concatenate(drawn, axis=1), axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(resampled), [tail, 1 - tail], axis=0)
    return IntervalEstimate(np.asarray(value), low, high)
