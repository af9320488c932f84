"""Analysis of runs: learning curves and statistics."""

from rlox_tools.analysis.learning_curves import (
    Curve,
    Group,
    XAxis,
    aggregate,
    default_metric,
    find_runs,
    group_runs,
    has_values,
    read_curve,
)
from rlox_tools.analysis.runs import Run, differing_options, read_record, read_run
from rlox_tools.analysis.statistics import IntervalEstimate, bootstrap_iqm, interquartile_mean

__all__ = [
    "Curve",
    "Group",
    "IntervalEstimate",
    "Run",
    "XAxis",
    "aggregate",
    "bootstrap_iqm",
    "default_metric",
    "differing_options",
    "find_runs",
    "group_runs",
    "has_values",
    "interquartile_mean",
    "read_curve",
    "read_record",
    "read_run",
]
