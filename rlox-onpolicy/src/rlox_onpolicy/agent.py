"""Metrics of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from rlox.batches.rollout import RolloutBatch

__all__ = ["make_metrics"]

MetricsT = TypeVar("MetricsT")


def make_metrics(
    kind: type[MetricsT],
    algorithm: Any,
    batch: RolloutBatch,
    terms: Mapping[str, float],
    **more: float,
) -> MetricsT:
    """Return the metrics of an iteration.

    Args:
        kind: dataclass of the metrics; those that an objective does not report are NaN, and what
            it reports beyond them is among ``added``.
        algorithm: whose episodes and added losses are reported.
        batch: what was learned from.
        terms: means of the loss's terms.
        more: further metrics.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    statistics = algorithm.collector.statistics
    known = {
        "mean_reward": statistics.mean_return,
        "mean_episode_length": statistics.mean_length,
        "episodes": float(statistics.finished),
        "explained_variance": batch.explained_variance(),
        **{name: value for name, value in terms.items() if name in names},
        **more,
    }
    added = {name: value for name, value in terms.items() if name not in names}
    return kind(
        **{name: float("nan") for name in names}
        | known
        | {"added": added | algorithm.added_losses.means()}
    )
