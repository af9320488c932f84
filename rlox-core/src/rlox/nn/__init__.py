"""Torch parts that the algorithm families share (extra ``torch``)."""

from rlox.nn.devices import find_device, flush_denormals, torch_threads
from rlox.nn.flat import FlatOptimizer
from rlox.nn.mlp import TanhMLP
from rlox.nn.relu import EnsembleMLP, ReluMLP
from rlox.nn.state import (
    frozen,
    load_module_state,
    load_parts_state,
    module_state,
    parts_state,
)

__all__ = [
    "EnsembleMLP",
    "FlatOptimizer",
    "ReluMLP",
    "TanhMLP",
    "find_device",
    "flush_denormals",
    "frozen",
    "load_module_state",
    "load_parts_state",
    "module_state",
    "parts_state",
    "torch_threads",
]
