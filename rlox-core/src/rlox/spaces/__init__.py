"""Spaces: nested spaces, rows of observations and actions, action masks."""

from rlox.spaces.data import Request, memory_of, predict_agents, read_request, remembered
from rlox.spaces.rows import (
    ActionLeaf,
    ActionRows,
    ObservationRows,
    channels_first,
    is_nested,
    join,
    leaf_spaces,
    map_leaves,
    map_nested,
    require_finite,
    split,
    without_mask,
)

__all__ = [
    "ActionLeaf",
    "ActionRows",
    "ObservationRows",
    "Request",
    "channels_first",
    "is_nested",
    "join",
    "leaf_spaces",
    "map_leaves",
    "map_nested",
    "memory_of",
    "predict_agents",
    "read_request",
    "remembered",
    "require_finite",
    "split",
    "without_mask",
]
