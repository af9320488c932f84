"""Spaces: nested spaces, rows of observations and actions, action masks."""

from rlox.spaces.data import agent_numbers, predict_each
from rlox.spaces.masks import (
    MASK_KEY,
    ActionMasks,
    Request,
    memory_of,
    read_request,
    remembered,
    without_mask,
)
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
)

__all__ = [
    "MASK_KEY",
    "ActionLeaf",
    "ActionMasks",
    "ActionRows",
    "ObservationRows",
    "Request",
    "agent_numbers",
    "channels_first",
    "is_nested",
    "join",
    "leaf_spaces",
    "map_leaves",
    "map_nested",
    "memory_of",
    "predict_each",
    "read_request",
    "remembered",
    "require_finite",
    "split",
    "without_mask",
]
